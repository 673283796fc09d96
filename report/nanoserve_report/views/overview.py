"""Tables over the whole study: folders, findings, claims, the quoted table beside the measured."""

from __future__ import annotations

from nanoserve_bench.plan import Plan
from nanoserve_bench.soundness import Finding, SoundCell, SoundComparison, SoundMarginal
from nanoserve_bench.soundness.rule import Rule
from nanoserve_bench.statistics import Worth
from nanoserve_report import claims, judgements, numbers, source
from nanoserve_report.links import Linker
from nanoserve_report.setting import slug
from nanoserve_report.study import Study
from nanoserve_report.sweeps import Folder, Status, Sweep
from nanoserve_report.tables import Cell, Column, Hole, Num, Table, Text, text_columns
from nanoserve_report.views import common

NOT_MEASURED = Hole(reason="nothing sound was measured")
STATUS_TONES = {
    Status.SOUND: "good",
    Status.ACKNOWLEDGED: "",
    Status.RETRACTED: "bad",
    Status.REFUSED: "bad",
    Status.UNREADABLE: "bad",
}


def folders(study: Study, linker: Linker) -> Table:
    """Every results folder, sound or not, newest first."""
    return Table(
        caption="By the time of the plan, newest first",
        columns=(
            Column(label="run", numeric=False),
            Column(label="status", numeric=False),
            Column(label="planned", numeric=False),
            Column(label="blocks"),
            Column(label="cells", unit="sound of planned", numeric=False),
            Column(label="comparisons", unit="sound of planned", numeric=False),
            Column(label="findings", numeric=False),
        ),
        rows=tuple(_folder(folder, linker) for folder in reversed(study.folders)),
    )


def _folder(folder: Folder, linker: Linker) -> tuple[Cell, ...]:
    verdict, plan = folder.verdict, folder.plan
    name = Text(text=folder.name, href=linker.to(common.run_page(folder.name)))
    status = Text(text=folder.status.value, tone=STATUS_TONES[folder.status])
    href = linker.to(common.REFUSALS, slug(folder.name)) if verdict.findings else ""
    findings = Text(text=str(len(verdict.findings)), href=href)
    if plan is None or folder.results is None:
        hole = Hole(reason="the folder cannot be read")
        return (name, status, hole, hole, hole, hole, findings)
    if folder.retraction is not None:
        hole = Hole(reason=f"retracted by {folder.retraction.rule}", href=href)
        return (name, status, Text(text=planned(plan)), hole, hole, hole, findings)
    cells = sum(isinstance(cell, SoundCell) for cell in verdict.cells.values())
    pairs = sum(isinstance(pair, SoundComparison) for pair in verdict.comparisons)
    return (
        name,
        status,
        Text(text=planned(plan)),
        common.whole(folder.results.manifest.blocks_done),
        Text(text=f"{cells} of {len(plan.cells)}"),
        Text(text=f"{pairs} of {len(plan.comparisons)}"),
        findings,
    )


def planned(plan: Plan) -> str:
    """The day on which a plan was written."""
    return plan.created_at.partition("T")[0]


def findings(items: tuple[Finding, ...], linker: Linker) -> Table:
    """Findings with everything that is known of their place."""
    return Table(
        caption="Every finding, with its place",
        columns=text_columns(
            "rule", "cell or arm", "place", "what is wrong",
        ),
        rows=tuple(
            (
                Text(text=item.rule, href=linker.to(common.rule_page(item.rule))),
                Text(text=whose(item)),
                Text(text=place(item)),
                Text(text="; ".join(filter(None, (item.message, item.evidence)))),
            )
            for item in items
        ),
        prose=True,
    )  # fmt: skip


def whose(item: Finding) -> str:
    """The cell or arm that a finding is about, and the one it was set against."""
    words = item.cell or item.arm or "the study"
    return words if item.reference_cell is None else f"{words} against {item.reference_cell}"


def place(item: Finding) -> str:
    """`block 2, request 3, position 7; requests.csv, row 311`, as far as it is known."""
    named = (("block", item.block), ("request", item.request), ("position", item.position))
    words = ", ".join(f"{name} {value}" for name, value in named if value is not None)
    return "; ".join(filter(None, (words, place_in_file(item))))


def place_in_file(item: Finding) -> str:
    """`outputs.csv, row 3, column sha256`, without the folder's own path."""
    if item.file is None:
        return ""
    parts = [item.file.rpartition("/")[2]]
    parts += [] if item.row is None else [f"row {item.row}"]
    parts += [] if item.column is None else [f"column {item.column}"]
    return ", ".join(parts)


def claim_table(items: tuple[claims.Claim, ...], linker: Linker) -> Table:
    """The claims and how they came out, one line each, with the way to quote and rule."""
    return Table(
        caption="Claims of the source document",
        columns=text_columns("claim", "here", "what was found"),
        rows=tuple(
            (
                Text(text=item.name, href=linker.to(common.CLAIMS, slug(item.name))),
                common.verdict(item.word),
                Text(text=item.finding),
            )
            for item in items
        ),
        sortable=False,
        prose=True,
    )


def quoted_doublings(sweep: Sweep | None) -> Table:
    """The document's doublings beside the measured ones."""
    measured = {} if sweep is None else {
        item.lower.slots: item
        for item in sweep.sound_marginals
        if item.lower.arm == judgements.ENGINE
    }  # fmt: skip
    return Table(
        caption="Each doubling: quoted from the source document, and measured here",
        columns=(
            Column(label="slots", numeric=False),
            Column(label="per slot-second", unit="quoted"),
            Column(label="per slot-second", unit="here"),
            Column(label="throughput", unit="quoted"),
            Column(label="throughput", unit="here"),
            Column(label="verdict", unit="quoted", numeric=False),
            Column(label="verdict", unit="here", numeric=False),
            Column(label="claim", numeric=False),
        ),
        rows=tuple(_quoted_doubling(row, measured.get(row.slots)) for row in source.DOUBLINGS),
        sortable=False,
    )


def _quoted_doubling(row: source.QuotedDoubling, item: SoundMarginal | None) -> tuple[Cell, ...]:
    names = Text(text=f"{row.slots} \N{RIGHTWARDS ARROW} {2 * row.slots}")
    quoted = (_quoted(row.slot_ratio, numbers.TIMES), _quoted(row.product, numbers.TIMES))
    said = common.verdict(row.verdict)
    if item is None:
        return (names, quoted[0], NOT_MEASURED, quoted[1], NOT_MEASURED, said, NOT_MEASURED,
                common.verdict(judgements.NOT_TRIED))  # fmt: skip
    pair = (Worth(row.verdict), item.verdict)
    word = judgements.REPRODUCED if pair[0] is pair[1] else judgements.UNDECIDED
    return (
        names,
        quoted[0],
        common.ratio(item.slot_ratio, common.NO_HOLDS),
        quoted[1],
        common.ratio(item.product, ""),
        said,
        common.verdict(item.verdict),
        common.verdict(judgements.REFUTED if pair in judgements.OPPOSITES else word),
    )


def quoted_sweep(sweep: Sweep | None) -> Table:
    """The document's sweep table beside the measured one."""
    cells = {} if sweep is None else {
        (cell.cell.system, cell.cell.slots): cell
        for cell in reversed(sweep.sound_cells)
    }  # fmt: skip
    pairs = {} if sweep is None else {
        (pair.candidate.system, pair.candidate.slots): pair
        for pair in sweep.headline_rivals
        if isinstance(pair, SoundComparison)
    }  # fmt: skip
    rows = []
    for row in source.SWEEP:
        cell, pair = cells.get((row.system, row.slots)), pairs.get((row.system, row.slots))
        rows.append(
            (
                Text(text=row.system),
                common.whole(row.slots),
                _quoted(row.tok_per_s),
                NOT_MEASURED if cell is None else common.quantity(cell.throughput, ""),
                _quoted(row.speedup, numbers.TIMES),
                _speedup(row, pair),
                _quoted(row.batch),
                NOT_MEASURED
                if cell is None
                else common.quantity(cell.batch_occupancy, common.NO_HOLDS),
                _quoted(row.queue_share_percent, numbers.PERCENT, places=0),
                NOT_MEASURED if cell is None else common.share(cell.queue_share, common.NO_HOLDS),
            )
        )
    return Table(
        caption="The sweep: quoted from the source document, and measured here",
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots"),
            Column(label="tok/s", unit="quoted"),
            Column(label="tok/s", unit="here"),
            Column(label="speedup", unit="quoted"),
            Column(label="speedup", unit="here"),
            Column(label="batch", unit="quoted"),
            Column(label="batch", unit="here"),
            Column(label="queue share", unit="quoted"),
            Column(label="queue share", unit="here"),
        ),
        rows=tuple(rows),
        sortable=False,
    )


def _speedup(row: source.QuotedCell, pair: SoundComparison | None) -> Cell:
    if pair is not None:
        return common.ratio(pair.speedup, "")
    baseline = row.system == source.SWEEP[0].system
    return Hole(reason="this is the baseline") if baseline else NOT_MEASURED


def _quoted(value: float, unit: str = "", *, places: int = 2) -> Num:
    return Num(value=value, text=f"{value:.{places}f}{unit}", quoted=True)


def rule_table(rules: tuple[Rule, ...], linker: Linker) -> Table:
    """The catalogue."""
    return Table(
        caption="The catalogue of rules",
        columns=text_columns("rule", "name", "kind", "what a sound study satisfies"),
        rows=tuple(
            (
                Text(text=rule.code, href=linker.to(common.rule_page(rule.code))),
                Text(text=rule.name),
                Text(text=rule.family),
                Text(text=rule.sentence),
            )
            for rule in rules
        ),
        prose=True,
    )


def self_table(study: Study, linker: Linker) -> Table:
    """Every A/A pair: the same system twice (with and without timing is not the same)."""
    rows: list[tuple[Cell, ...]] = []
    for folder in study.folders:
        for sweep in folder.sweeps:
            for pair in sweep.selves:
                if pair.baseline.system != pair.candidate.system:
                    continue
                names: tuple[Cell, ...] = (
                    Text(text=folder.name, href=linker.to(common.run_page(folder.name))),
                    Text(text=sweep.setting.device),
                    Text(text=sweep.setting.workload),
                    Text(text=common.name_of(pair.candidate)),
                    Text(text=common.name_of(pair.baseline)),
                )
                if not isinstance(pair, SoundComparison):
                    hole = common.refused(pair.findings, folder.name, linker)
                    rows.append((*names, hole, hole, hole))
                    continue
                low, high = pair.envelope
                rows.append(
                    (
                        *names,
                        common.ratio(pair.speedup, ""),
                        Text(text=f"{low:.3f}{numbers.EN}{high:.3f}"),
                        common.verdict(pair.verdict),
                    )
                )
    return Table(
        caption="The ratio of a thing to itself, whose truth is 1",
        columns=(
            Column(label="run", numeric=False),
            Column(label="device", numeric=False),
            Column(label="workload", numeric=False),
            Column(label="candidate", numeric=False),
            Column(label="baseline", numeric=False),
            Column(label="ratio"),
            Column(label="A/A envelope", numeric=False),
            Column(label="verdict", numeric=False),
        ),
        rows=tuple(rows),
        wrapped=True,
    )
