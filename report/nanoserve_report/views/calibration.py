"""The tables of a calibration: whose noise, what was called what, what the intervals held."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nanoserve_bench.calibration.records import (
    JUDGED_PAIRS,
    Calibration,
    Outcomes,
    SourceFacts,
)
from nanoserve_bench.calibration.study import Arms
from nanoserve_report import numbers
from nanoserve_report.links import Linker
from nanoserve_report.setting import slug
from nanoserve_report.tables import Cell, Column, Hole, Num, Table, Text, text_columns
from nanoserve_report.views import common

FACTORS: tuple[tuple[str, Callable[[Outcomes], int | None]], ...] = (
    ("batch factor", lambda row: row.batch_held),
    ("per-slot-second factor", lambda row: row.slot_held),
    ("system factor", lambda row: row.system_held),
    ("per-request factor", lambda row: row.request_held),
)
"""The factors of a ratio, and how often their intervals held the truth."""
CELL_PARTS = 5
"""Of the id of a cell: arm, device, dtype, slots, workload."""
REFUSED = Hole(reason="every study was refused for contention")


def source_words(facts: SourceFacts) -> str:
    """`nanoserve, 8 slots, day44x32, cpu float32`."""
    slots = numbers.count(facts.slots, "slot")
    return f"{facts.system}, {slots}, {facts.workload}, {facts.device} {facts.dtype}"


def rule_words(row: Outcomes) -> str:
    """The stopping rule of a kind of study."""
    if row.target_half_width is None:
        return numbers.count(row.most, "block")
    return f"{row.least} to {row.most} blocks, until {100 * row.target_half_width:g} %"


def drawing_words(run_length: int) -> str:
    """How recorded blocks are put together to studies."""
    return "one by one" if run_length == 1 else f"{run_length} in a row"


def arms_words(row: Outcomes) -> str:
    """What the A/A arm has in common with the ratio."""
    return "nothing" if row.arms == Arms.APART else "the baseline"


def truth_words(row: Outcomes) -> str:
    """What is true in these studies."""
    if row.effect == 1:
        return "nothing differs"
    return f"{100 * (row.effect - 1):.0f} % faster"


def rows_of(record: Calibration, source: str) -> Iterator[Outcomes]:
    """The outcomes of one source, the studies without an effect first."""
    rows = [row for row in record.outcomes if row.source == source]
    yield from sorted(rows, key=lambda row: row.effect != 1)


def noise(record: Calibration) -> Table:
    """Whose noise is played back, and what it is like."""
    rows: list[tuple[Cell, ...]] = [_noise_row(facts) for facts in record.sources]
    few = Hole(reason="too few pairs to play back")
    rows += [
        (Text(text=left_words(item.name)), common.whole(item.pairs), *(few,) * 7)
        for item in record.left_out
    ]
    return Table(
        caption="The recorded noise: one system against itself, block by block",
        columns=(
            Column(label="system", numeric=False),
            Column(label="pairs", unit="A/A blocks"),
            Column(label="disturbed", unit="blocks"),
            Column(label="scatter", unit="of the log ratio"),
            Column(label="mean", unit="of the log ratio"),
            Column(label="second place", unit="over the first, log"),
            Column(label="ratio", unit="correlation with the next block's"),
            Column(label="level", unit="correlation with the next block's"),
            Column(label="targets put to it", numeric=False),
        ),
        rows=tuple(rows),
        sortable=False,
        wrapped=True,
    )


def left_words(name: str) -> str:
    """A source that was not played back, in the words of those that were.

    Its name is that of a cell, `hf-generate/cpu/float32/1/day44@machine`; any other stays as it is.
    """
    parts = name.partition("@")[0].split("/")
    if len(parts) != CELL_PARTS or not parts[3].isdecimal():
        return name
    arm, device, dtype, slots, workload = parts
    return f"{arm}, {numbers.count(int(slots), 'slot')}, {workload}, {device} {dtype}"


def _noise_row(facts: SourceFacts) -> tuple[Cell, ...]:
    return (
        Text(text=source_words(facts)),
        common.whole(facts.pairs),
        common.whole(facts.contended),
        _percent(facts.deviation),
        _percent(facts.mean),
        _percent(facts.place),
        Num(value=facts.ratio_correlation, text=f"{facts.ratio_correlation:.2f}"),
        Num(value=facts.level_correlation, text=f"{facts.level_correlation:.2f}"),
        Text(text="yes" if facts.judged else f"no: fewer than {JUDGED_PAIRS} pairs"),
    )


def _percent(value: float) -> Num:
    return Num(value=value, text=f"{100 * value:.2f}{numbers.PERCENT}")


def inputs(record: Calibration, linker: Linker) -> Table:
    """The folders, each with the digest of its manifest, which digests all its other files."""
    return Table(
        caption="The folders that the noise was taken from",
        columns=text_columns("run", "sha256 of its manifest"),
        rows=tuple(
            (
                Text(text=item.run_id, href=linker.to(common.run_page(item.run_id))),
                Text(text=item.manifest_sha256, tone="code"),
            )
            for item in record.inputs
        ),
        sortable=False,
    )


KIND = (
    Column(label="truth", numeric=False),
    Column(label="stopping rule", numeric=False),
    Column(label="blocks drawn", numeric=False),
    Column(label="A/A arm shares", numeric=False),
)


def _kind(row: Outcomes) -> tuple[Cell, ...]:
    return (
        Text(text=truth_words(row)),
        Text(text=rule_words(row)),
        Text(text=drawing_words(row.run_length)),
        Text(text=arms_words(row)),
    )


def verdicts(record: Calibration, source: str) -> Table:
    """What the studies were called, with and without the envelope."""
    rows: list[tuple[Cell, ...]] = []
    for row in rows_of(record, source):
        if not row.stated or row.mean_blocks is None:
            rows.append((*_kind(row), *(REFUSED,) * 8))
            continue
        counts = (row.faster, row.slower, row.no_difference, row.undecided)
        rows.append(
            (
                *_kind(row),
                *(_share(row, count) for count in counts),
                _share(row, row.bare_faster),
                _share(row, row.bare_slower),
                Num(value=row.mean_blocks, text=f"{row.mean_blocks:.1f}"),
                Num(
                    value=row.refused,
                    text=f"{100 * row.refused / row.studies:.1f}{numbers.PERCENT}",
                ),
            )
        )
    return Table(
        caption="What simulated studies were called",
        columns=(
            *KIND,
            Column(label="faster", unit="% of studies"),
            Column(label="slower", unit="% of studies"),
            Column(label="no difference", unit="% of studies"),
            Column(label="undecided", unit="% of studies"),
            Column(label="faster", unit="without the envelope"),
            Column(label="slower", unit="without the envelope"),
            Column(label="blocks", unit="mean"),
            Column(label="refused", unit="for contention"),
        ),
        rows=tuple(rows),
        wrapped=True,
    )


def _share(row: Outcomes, count: int) -> Num:
    return Num.of(numbers.simulated(row.share(count)))


def coverage(record: Calibration, source: str) -> Table:
    """How often the intervals held the truth: of the ratio, and of each factor."""
    rows: list[tuple[Cell, ...]] = []
    for row in rows_of(record, source):
        if not row.stated:
            rows.append((*_kind(row), *(REFUSED,) * 5))
            continue
        held = (row.held, *(count(row) for _, count in FACTORS))
        rows.append(
            (
                *_kind(row),
                *(
                    Hole(reason=common.NO_HOLDS) if count is None else _share(row, count)
                    for count in held
                ),
            )
        )
    return Table(
        caption="How often the nominal 95 % interval held the truth",
        columns=(
            *KIND,
            Column(label="ratio", unit="% of studies"),
            *(Column(label=name, unit="% of studies") for name, _ in FACTORS),
        ),
        rows=tuple(rows),
    )


def methods(record: Calibration, source: str) -> Table:
    """Student's t beside what is often used instead, on the same studies."""
    return Table(
        caption="The same studies through other intervals",
        columns=(
            Column(label="interval", numeric=False),
            Column(label="blocks"),
            Column(label="blocks drawn", numeric=False),
            Column(label="held the truth", unit="% of studies"),
            Column(label="half-width", unit="mean, of the log ratio"),
        ),
        rows=tuple(
            (
                Text(text=row.method),
                common.whole(row.blocks),
                Text(text=drawing_words(row.run_length)),
                Num.of(numbers.simulated(row.share)),
                _percent(row.mean_half_width),
            )
            for row in record.intervals
            if row.source == source
        ),
    )


def files(name: str, linker: Linker) -> list[dict[str, str]]:
    """The files of a calibration, to download."""
    return [
        {"name": file, "href": linker.to(data_path(file))}
        for file in (f"{name}.json", f"{name}.csv", f"{name}-intervals.csv")
    ]


def data_path(file: str) -> str:
    """Where a calibration's file stands in the site."""
    return f"results/calibration/{file}"


def anchor(facts: SourceFacts) -> str:
    """Names a source's part of the page."""
    return slug(facts.name)
