"""The tables of one results folder: its trials, its rules, its machine, its launches, its files."""

from __future__ import annotations

import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from nanoserve_bench.figures import Figures
from nanoserve_bench.plan import Fact
from nanoserve_bench.records import SystemRun
from nanoserve_bench.schema import SystemRow
from nanoserve_bench.soundness import RuleOutcome, SoundCell
from nanoserve_bench.soundness.rules.pair_libraries import parse_libraries
from nanoserve_report.links import Linker
from nanoserve_report.sweeps import Folder, Sweep
from nanoserve_report.tables import Cell, Column, Hole, Num, Table, Text, text_columns
from nanoserve_report.views import common

MS = 1_000_000
MOST_TRIALS, MOST_CONTENTION = 300, 200
"""Rows of a table that are shown: a page stays small, and the raw files have all."""
Row = TypeVar("Row")
SHORT = 12
_DIGEST = re.compile(r"\b[0-9a-f]{40,}\b")
LAUNCH_FACTS = (
    "system", "version", "revision", "shape", "stamps", "device", "device_name", "dtype",
    "matmul_precision", "threads", "weights", "weight_bytes_per_step", "tokenizer", "attention",
    "cache", "decoding", "kernel_path",
)  # fmt: skip


def trials(sweep: Sweep, linker: Linker) -> Table:
    """Every measured trial of every sound cell, exact; a refused cell is one hole."""
    rows: list[tuple[Cell, ...]] = []
    for cell in sweep.cells:
        head = (Text(text=cell.cell.arm), common.whole(cell.cell.slots))
        if not isinstance(cell, SoundCell):
            hole = common.refused(cell.findings, sweep.name, linker)
            rows.append((*head, *(hole,) * 10))
            continue
        for block, run in sorted(cell.runs.items()):
            figures = Figures.of(run)
            rows.append(
                (
                    *head,
                    common.whole(block),
                    _exact(figures.wall_ns / MS, places=3),
                    common.whole(figures.output_tokens),
                    _exact(float(figures.throughput)),
                    _part(figures.batch_occupancy),
                    _part(figures.tokens_per_slot_second),
                    _exact(float(figures.system_occupancy)),
                    _exact(float(figures.tokens_per_request_second)),
                    _median_itl(run),
                    Text(text="outlier" if block in cell.outliers else "", tone="muted"),
                )
            )
    caption, shown = _first("Every measured trial", rows, MOST_TRIALS)
    return Table(
        caption=caption,
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots"),
            Column(label="block"),
            Column(label="wall", unit="ms"),
            Column(label="tokens"),
            Column(label="throughput", unit="tok/s"),
            Column(label="batch", unit="rows"),
            Column(label="per slot-second", unit="tok/s"),
            Column(label="system occupancy", unit="requests"),
            Column(label="per request-second", unit="tok/s"),
            Column(label="ITL", unit="ms, median of all gaps"),
            Column(label="flag", numeric=False),
        ),
        rows=tuple(shown),
    )


def _first(caption: str, rows: Sequence[Row], most: int) -> tuple[str, Sequence[Row]]:
    """The rows that a page has room for, and a caption that says where the others are."""
    if len(rows) <= most:
        return caption, rows
    return f"{caption}: {most} of {len(rows)}; the others are in the raw files below", rows[:most]


def _median_itl(run: SystemRun) -> Cell:
    """The median gap between successive tokens of a request, all requests' gaps pooled."""
    gaps: list[int] = []
    for record in run.records:
        if record.token_ns is None:
            return Hole(reason=common.NO_STAMPS)
        gaps += [later - one for one, later in itertools.pairwise(record.token_ns)]
    if not gaps:
        return Hole(reason="no request has a second token")
    return _exact(statistics.median(gaps) / MS, places=3)


def _exact(value: float, places: int = 4) -> Num:
    return Num(value=value, text=f"{value:,.{places}f}")


def _part(value: object) -> Cell:
    return Hole(reason=common.NO_HOLDS) if value is None else _exact(float(value))  # type: ignore[arg-type]


def rules(outcomes: tuple[RuleOutcome, ...], linker: Linker) -> Table:
    """The evidence of every rule: what it looked at, and what it found."""
    return Table(
        caption="What every rule examined, and what it found",
        columns=(
            Column(label="rule", numeric=False),
            Column(label="name", numeric=False),
            Column(label="examined", unit="items"),
            Column(label="result", numeric=False),
        ),
        rows=tuple(
            (
                Text(text=outcome.code, href=linker.to(common.rule_page(outcome.code))),
                Text(text=outcome.name),
                common.whole(outcome.examined),
                common.outcome(outcome),
            )
            for outcome in outcomes
        ),
    )


def facts(items: tuple[Fact, ...]) -> Table:
    """The machine and its environment, with units."""
    return Table(
        caption="The machine and its environment, as recorded",
        columns=text_columns("fact", "value", "unit"),
        rows=tuple((Text(text=item.name), *fact(item)) for item in items),
        sortable=False,
    )


def fact(item: Fact) -> tuple[Cell, Cell]:
    """Its value and its unit; large sizes in units that can be read."""
    value, unit = item.value, Text(text=item.unit)
    if value is None or value == "":
        return Hole(reason="not recorded"), unit
    if isinstance(value, bool):
        return Text(text="yes" if value else "no"), unit
    if item.unit == "bytes" and isinstance(value, int) and value >= 2**20:
        scale, name = (2**30, "GiB") if value >= 2**30 else (2**20, "MiB")
        return Text(text=f"{value / scale:,.2f}"), Text(text=name)
    return Text(text=f"{value:,}" if isinstance(value, int) else str(value)), unit


def ledger(folder: Folder) -> Table | None:
    """Every start of the plan: what keeps a sweep from being tried until it pleases."""
    if folder.results is None:
        return None
    starts = folder.results.manifest.ledger
    return Table(
        caption="Every start of this plan",
        columns=text_columns(
            "started", "revision", "uncommitted changes", "first block", "outcome", "command"
        ),
        rows=tuple(
            (
                Text(text=start.started_at),
                common.optional(start.revision and start.revision[:12]),
                common.optional(start.dirty),
                common.whole(start.first_block),
                Text(text=start.outcome),
                common.optional(start.command),
            )
            for start in starts
        ),
        sortable=False,
    )


def sides(folder: Folder) -> Table | None:
    """What each arm's workers reported and were told; where the sides differ is marked."""
    if folder.results is None:
        return None
    by_arm: dict[str, list[SystemRow]] = defaultdict(list)
    for row in folder.results.systems:
        by_arm[row.arm].append(row)
    arms = [arm.name for arm in folder.results.plan.arms if arm.name in by_arm]
    reported = [parse_libraries(row.libraries) for rows in by_arm.values() for row in rows]
    libraries = sorted({name for pairs in reported for name in pairs})
    lines = [(name, [_reported(by_arm[arm], name) for arm in arms]) for name in LAUNCH_FACTS]
    lines += [(name, [_library(by_arm[arm], name) for arm in arms]) for name in libraries]
    told = {a.name: {o.name: o.value for o in a.options} for a in folder.results.plan.arms}
    options = sorted({name for arm in arms for name in told[arm]})
    lines += [(f"told: {name}", [told[arm].get(name) for arm in arms]) for name in options]
    rows: list[tuple[Cell, ...]] = []
    for name, values in lines:
        rows.append(
            (
                Text(text=name),
                *(common.optional(value and _short(value)) for value in values),
                _difference(name, values),
            )
        )
    return Table(
        caption="What the workers of each arm reported and were told, and where they differ",
        columns=text_columns("fact", *arms, "sides"),
        rows=tuple(rows),
    )


def _difference(name: str, values: list[str | None]) -> Text:
    """Whether the sides agree on a fact; weights that one of them declares are not proven."""
    if name == "weights" and any((value or "").startswith("declared:") for value in values):
        return Text(text=common.DECLARED)
    differs = len(set(values)) > 1
    return Text(text="differs" if differs else "same", tone="" if differs else "muted")


def _reported(rows: list[SystemRow], name: str) -> str | None:
    values = sorted({_plain(getattr(row, name)) for row in rows})
    return " / ".join(values) or None


def _plain(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _short(value: str) -> str:
    """A digest shortened for the eye; the sides are compared in full."""
    return " / ".join(
        f"{part[: part.index(found.group()) + SHORT]}\N{HORIZONTAL ELLIPSIS}"
        if (found := _DIGEST.search(part))
        else part
        for part in value.split(" / ")
    )


def _library(rows: list[SystemRow], name: str) -> str | None:
    versions = {parse_libraries(row.libraries).get(name, "") for row in rows}
    return " / ".join(sorted(versions)) or None


def ceilings(folder: Folder) -> Table | None:
    """What the device could do at best, block by block."""
    if folder.results is None:
        return None
    return Table(
        caption="Ceilings, measured in every block",
        columns=(
            Column(label="block"),
            Column(label="device", numeric=False),
            Column(label="dtype", numeric=False),
            Column(label="read bandwidth", unit="GB/s"),
            Column(label="matrix rate", unit="GFLOP/s"),
        ),
        rows=tuple(
            (
                common.whole(row.block),
                Text(text=row.device),
                Text(text=row.dtype),
                _exact(row.read_bytes_per_s / 1e9, places=2),
                _exact(row.matmul_flop_per_s / 1e9, places=1),
            )
            for row in folder.results.ceilings
        ),
    )


def contention(folder: Folder) -> Table | None:
    """What went on beside each trial: load, switches, stolen and foreign CPU time, warm-ups too."""
    if folder.results is None:
        return None
    caption, rows = _first(
        "What went on beside each trial, as the parent saw it",
        folder.results.trials,
        MOST_CONTENTION,
    )
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (
            common.whole(row.block),
            common.whole(row.order),
            Text(text=row.cell),
            Text(text="warm-up" if row.warmup else "", tone="muted"),
            _ms(row.wall_ns),
            common.optional(row.load_before),
            common.optional(row.involuntary_switches),
            _ms(row.steal_ns),
            _ms(row.other_cpu_ns),
            _mib(row.peak_memory_bytes),
        )
        for row in rows
    )
    return Table(
        caption=caption,
        columns=(
            Column(label="block"),
            Column(label="order"),
            Column(label="cell", numeric=False),
            Column(label="kind", numeric=False),
            Column(label="wall", unit="ms"),
            Column(label="load before"),
            Column(label="involuntary switches"),
            Column(label="steal", unit="ms"),
            Column(label="other CPU time", unit="ms"),
            Column(label="peak memory", unit="MiB"),
        ),
        rows=cells,
    )


def _ms(value: int | None) -> Cell:
    return Hole(reason="not recorded") if value is None else _exact(value / MS, places=1)


def _mib(value: int | None) -> Cell:
    return Hole(reason="not recorded") if value is None else _exact(value / 2**20, places=0)


def files(folder: Folder, linker: Linker, names: tuple[str, ...]) -> Table:
    """The raw files, each with its digest, to download."""
    listed = {}
    if folder.results is not None:
        listed = {file.name: file for file in folder.results.manifest.files}
    page = common.run_page(folder.name).removesuffix(".md")
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        entry = listed.get(name)
        rows.append(
            (
                Text(text=name, href=linker.to(f"{page}/data/{name}")),
                Hole(reason="not listed") if entry is None else common.whole(entry.bytes),
                Hole(reason="not listed")
                if entry is None or entry.rows is None
                else common.whole(entry.rows),
                Hole(reason="the manifest digests the others")
                if entry is None
                else Text(text=entry.sha256, tone="code"),
            )
        )
    return Table(
        caption="The files as they were written",
        columns=(
            Column(label="file", numeric=False),
            Column(label="size", unit="bytes"),
            Column(label="rows"),
            Column(label="sha256", numeric=False),
        ),
        rows=tuple(rows),
    )
