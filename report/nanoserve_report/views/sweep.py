"""The tables of one sweep: throughput, factors, latencies, prefill, doublings."""

from __future__ import annotations

from nanoserve_bench.records import ROW
from nanoserve_bench.soundness import SoundCell, SoundComparison, SoundMarginal
from nanoserve_bench.statistics import Estimate
from nanoserve_report.links import Linker
from nanoserve_report.sweeps import AnyCell, AnyMarginal, Sweep
from nanoserve_report.tables import Cell, Column, Hole, Num, Table, Text
from nanoserve_report.views import common

SPLIT = ("held", "ramp", "starvation", "drain", "idle")
BASELINE = Hole(reason="this is the baseline")
UNPLANNED = Hole(reason="no comparison was planned")


def _head(cell: AnyCell) -> tuple[Cell, Cell]:
    return Text(text=cell.cell.arm), common.whole(cell.cell.slots)


def _baseline_rows(sweep: Sweep) -> frozenset[int]:
    return frozenset(
        index
        for index, cell in enumerate(sweep.cells)
        if cell.cell.arm == sweep.plan.headline_baseline
    )


def throughput(sweep: Sweep, linker: Linker) -> Table:
    """The sweep table: what the box did, and what that is against the named baseline."""
    baseline = sweep.plan.headline_baseline
    rows: list[tuple[Cell, ...]] = []
    for cell in sweep.cells:
        if not isinstance(cell, SoundCell):
            hole = common.refused(cell.findings, sweep.name, linker)
            rows.append((*_head(cell), *(hole,) * 8))
            continue
        rows.append(
            (
                *_head(cell),
                common.quantity(cell.throughput, ""),
                _speedup(sweep, cell, linker),
                *_rows_held(cell),
                common.share(cell.queue_share, common.NO_HOLDS),
                common.share(cell.read_share, common.NO_CEILING),
                common.share(cell.matrix_share, common.NO_CEILING),
                _verdict(sweep, cell, linker),
            )
        )
    return Table(
        caption=f"Throughput and its factors; speedup against {baseline}",
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots"),
            Column(label="throughput", unit="tok/s"),
            Column(label="speedup", unit=f"vs {baseline}"),
            Column(label="batch", unit="rows held"),
            Column(label="per slot-second", unit="tok/s"),
            Column(label="queue share", unit="of time in system"),
            Column(label="read", unit="share of bandwidth"),
            Column(label="multiplied", unit="share of matrix rate"),
            Column(label="verdict", unit="on the speedup", numeric=False),
        ),
        rows=tuple(rows),
        strong=_baseline_rows(sweep),
    )


def _rows_held(cell: SoundCell) -> tuple[Cell, Cell]:
    """The batch and what a row of it yielded; holes where a slot is no row of a batch."""
    (slot,) = {run.slot for run in cell.runs.values()}
    if slot != ROW:
        hole = Hole(reason=f"its slot is a {slot}, and no row of the batch")
        return hole, hole
    return (
        common.quantity(cell.batch_occupancy, common.NO_HOLDS),
        common.quantity(cell.tokens_per_slot_second, common.NO_HOLDS),
    )


def _speedup(sweep: Sweep, cell: SoundCell, linker: Linker) -> Cell:
    if cell.cell.arm == sweep.plan.headline_baseline:
        return BASELINE
    pair = sweep.comparison_of(cell.cell)
    if pair is None:
        return UNPLANNED
    if isinstance(pair, SoundComparison):
        return common.ratio(pair.speedup, "")
    return common.refused(pair.findings, sweep.name, linker)


def _verdict(sweep: Sweep, cell: SoundCell, linker: Linker) -> Cell:
    if cell.cell.arm == sweep.plan.headline_baseline:
        return Text(text="baseline", tone="muted")
    pair = sweep.comparison_of(cell.cell)
    if pair is None:
        return UNPLANNED
    if isinstance(pair, SoundComparison):
        return common.verdict(pair.verdict)
    return common.refused(pair.findings, sweep.name, linker)


def factors(sweep: Sweep, linker: Linker) -> Table:
    """Every planned pair and its factors, self comparisons included."""
    rows: list[tuple[Cell, ...]] = []
    for pair in sweep.comparisons:
        names = (
            Text(text=common.name_of(pair.candidate)),
            Text(text=common.name_of(pair.baseline)),
        )
        if not isinstance(pair, SoundComparison):
            hole = common.refused(pair.findings, sweep.name, linker)
            rows.append((*names, *(hole,) * 7))
            continue
        rows.append(
            (
                *names,
                common.ratio(pair.speedup, ""),
                common.slot_ratio(pair, pair.batch_factor),
                common.slot_ratio(pair, pair.slot_factor),
                common.ratio(pair.system_factor, common.OTHER_ARRIVALS),
                common.ratio(pair.request_factor, common.OTHER_ARRIVALS),
                common.verdict(pair.verdict),
                common.weights(pair),
            )
        )
    return Table(
        caption="Candidate over baseline, factor by factor",
        columns=(
            Column(label="candidate", numeric=False),
            Column(label="baseline", numeric=False),
            Column(label="speedup"),
            Column(label="batch factor"),
            Column(label="per-slot-second factor"),
            Column(label="system factor"),
            Column(label="per-request factor"),
            Column(label="verdict", numeric=False),
            Column(label="same weights", numeric=False),
        ),
        rows=tuple(rows),
        wrapped=True,
    )


def doublings(sweep: Sweep, linker: Linker) -> Table:
    """What each doubling of the slots is worth."""
    return Table(
        caption="Each doubling of the slots, in its two factors",
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots", numeric=False),
            Column(label="batch", unit="times"),
            Column(label="per slot-second", unit="times"),
            Column(label="throughput", unit="times"),
            Column(label="verdict", numeric=False),
        ),
        rows=tuple(_doubling(sweep, item, linker) for item in sweep.marginals),
    )


def _doubling(sweep: Sweep, item: AnyMarginal, linker: Linker) -> tuple[Cell, ...]:
    names = (
        Text(text=item.lower.arm),
        Text(text=f"{item.lower.slots} \N{RIGHTWARDS ARROW} {item.upper.slots}"),
    )
    if not isinstance(item, SoundMarginal):
        return (*names, *(common.refused(item.findings, sweep.name, linker),) * 4)
    return (
        *names,
        common.ratio(item.batch_ratio, common.NO_HOLDS),
        common.ratio(item.slot_ratio, common.NO_HOLDS),
        common.ratio(item.product, ""),
        common.verdict(item.verdict),
    )


def prefill(sweep: Sweep, linker: Linker) -> Table:
    """The engine's prefill beside the baseline's wait for a first token without a queue.

    That wait is the whole TTFT of a baseline that takes one request at a time, and the prefill of
    one that has a queue: a loaded TTFT stands against nothing here.
    """
    cells = {cell.cell.id: cell for cell in sweep.cells}
    rows: list[tuple[Cell, ...]] = []
    for pair in sweep.rivals:
        alone = pair.candidate.slots == 1
        wait = sweep.first_token_wait(pair.baseline.arm)
        mine, theirs = cells.get(pair.candidate.id), cells.get(pair.baseline.id)
        rows.append(
            (
                Text(text=common.name_of(pair.candidate)),
                Text(text="alone" if alone else "in company"),
                _ms(mine, "prefill"),
                Text(text=f"{common.name_of(pair.baseline)}: its {wait}"),
                _ms(theirs, wait),
                common.ratio(
                    pair.prefill_ratio,
                    common.NO_STAMPS if pair.slots_alike else common.OTHER_SLOTS,
                )
                if isinstance(pair, SoundComparison)
                else common.refused(pair.findings, sweep.name, linker),
            )
        )
    return Table(
        caption="Prefill against the baseline's wait for a first token",
        columns=(
            Column(label="system", numeric=False),
            Column(label="prefills run", numeric=False),
            Column(label="its prefill", unit="ms"),
            Column(label="set against", numeric=False),
            Column(label="baseline's wait", unit="ms, no queue in it"),
            Column(label="ratio", unit="above 1: faster than it"),
        ),
        rows=tuple(rows),
        named=(0, 3),
    )


def _ms(cell: AnyCell | None, figure: str) -> Cell:
    if not isinstance(cell, SoundCell):
        return Hole(reason="the cell is refused")
    estimate: Estimate | None = cell.prefill if figure == "prefill" else cell.ttft
    return common.quantity(estimate, common.NO_STAMPS, scale=1000)


def latency_ratios(sweep: Sweep, linker: Linker) -> Table:
    """What the caller waited for, the baseline's over the candidate's, pair by pair."""
    rows: list[tuple[Cell, ...]] = []
    for pair in sweep.comparisons:
        names = (
            Text(text=common.name_of(pair.candidate)),
            Text(text=common.name_of(pair.baseline)),
        )
        if not isinstance(pair, SoundComparison):
            rows.append((*names, *(common.refused(pair.findings, sweep.name, linker),) * 3))
            continue
        rows.append(
            (
                *names,
                common.ratio(
                    pair.ttft_ratio,
                    common.OTHER_ARRIVALS if pair.e2el_ratio is None else common.NO_STAMPS,
                ),
                common.ratio(pair.tpot_ratio, common.NO_STAMPS),
                common.ratio(pair.e2el_ratio, common.OTHER_ARRIVALS),
            )
        )
    return Table(
        caption="Latencies: the baseline's over the candidate's (above 1: shorter than it)",
        columns=(
            Column(label="candidate", numeric=False),
            Column(label="baseline", numeric=False),
            Column(label="TTFT"),
            Column(label="TPOT"),
            Column(label="E2EL"),
        ),
        rows=tuple(rows),
    )


def latencies(sweep: Sweep, linker: Linker) -> Table:
    """What a request waited for, loaded as it was."""
    rows: list[tuple[Cell, ...]] = []
    for cell in sweep.cells:
        if not isinstance(cell, SoundCell):
            hole = common.refused(cell.findings, sweep.name, linker)
            rows.append((*_head(cell), *(hole,) * 6))
            continue
        rows.append(
            (
                *_head(cell),
                common.quantity(cell.system_occupancy, ""),
                common.quantity(cell.tokens_per_request_second, ""),
                common.quantity(cell.ttft, common.NO_STAMPS, scale=1000),
                common.quantity(cell.prefill, common.NO_STAMPS, scale=1000),
                common.quantity(cell.tpot, common.NO_STAMPS, scale=1000),
                common.quantity(cell.e2el, "", scale=1000),
            )
        )
    return Table(
        caption="Requests in the system, and what one of them waited for",
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots"),
            Column(label="system occupancy", unit="requests"),
            Column(label="per request-second", unit="tok/s"),
            Column(label="TTFT", unit="ms"),
            Column(label="prefill", unit="ms"),
            Column(label="TPOT", unit="ms"),
            Column(label="E2EL", unit="ms"),
        ),
        rows=tuple(rows),
        strong=_baseline_rows(sweep),
    )


def splits(sweep: Sweep, linker: Linker) -> Table:
    """Where the slots' time went; in every block the five parts add up to the slots, exactly."""
    rows: list[tuple[Cell, ...]] = []
    for cell in sweep.cells:
        if not isinstance(cell, SoundCell):
            rows.append((*_head(cell), *(common.refused(cell.findings, sweep.name, linker),) * 5))
        elif cell.splits is None:
            rows.append((*_head(cell), *(Hole(reason=common.NO_HOLDS),) * 5))
        else:
            blocks = list(cell.splits.values())
            means = [float(sum(b.rows(part) for b in blocks) / len(blocks)) for part in SPLIT]
            rows.append((*_head(cell), *(Num(value=v, text=f"{v:.3f}") for v in means)))
    return Table(
        caption="Where the slots' time went, as a mean number of slots over the blocks",
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots"),
            *(Column(label=part, unit="slots") for part in SPLIT),
        ),
        rows=tuple(rows),
        strong=_baseline_rows(sweep),
    )
