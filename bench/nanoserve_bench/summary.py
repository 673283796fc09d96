"""The summary of a study (`sweep.csv`), from its rows alone.

The sweep writes what this computes, and the gate refuses a folder whose summary differs from what
this computes from its other files. A cell whose runs cannot carry a figure has a hole there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from nanoserve_bench.errors import RunUnsound
from nanoserve_bench.figures import Figures
from nanoserve_bench.plan import Cell
from nanoserve_bench.results import ResultSet
from nanoserve_bench.runs import assemble, measured_blocks
from nanoserve_bench.schema import SweepRow
from nanoserve_bench.statistics import geometric_mean


def summarise(results: ResultSet) -> tuple[SweepRow, ...]:
    """One row per cell of the plan, in its order."""
    measured = set(measured_blocks(results))
    figures: dict[str, list[Figures | None]] = {cell.id: [] for cell in results.plan.cells}
    for key, run in assemble(results).items():
        if not key.warmup and key.block in measured:
            try:
                figures[key.cell].append(Figures.of(run))
            except RunUnsound:
                figures[key.cell].append(None)
    return summarise_figures(results.plan.cells, figures)


def summarise_figures(
    cells: Iterable[Cell], figures: Mapping[str, Sequence[Figures | None]]
) -> tuple[SweepRow, ...]:
    """The same from figures that are at hand; None is a run that carries none."""
    return tuple(_row(cell, figures.get(cell.id, ())) for cell in cells)


def _row(cell: Cell, blocks: Sequence[Figures | None]) -> SweepRow:
    runs = [run for run in blocks if run is not None]
    whole = len(runs) == len(blocks)  # a figure that leaves a block out would flatter

    def mean(values: Iterable[Fraction | None]) -> float | None:
        known = [value for value in values if value is not None and value > 0]
        return geometric_mean(known) if whole and known and len(known) == len(runs) else None

    shares = [run.queue_share for run in runs if run.queue_share is not None]
    return SweepRow(
        cell=cell.id,
        arm=cell.arm,
        system=cell.system,
        device=cell.device,
        dtype=cell.dtype,
        slots=cell.slots,
        workload=cell.workload,
        model=cell.model,
        blocks=len(blocks),
        requests=sum(run.requests for run in runs),
        output_tokens=sum(run.output_tokens for run in runs),
        throughput_tok_per_s=mean(run.throughput for run in runs),
        batch_occupancy_rows=mean(run.batch_occupancy for run in runs),
        tokens_per_slot_second=mean(run.tokens_per_slot_second for run in runs),
        system_occupancy_requests=mean(run.system_occupancy for run in runs),
        tokens_per_request_second=mean(run.tokens_per_request_second for run in runs),
        # A share may be zero, which has no logarithm: its mean is arithmetic.
        queue_share=(
            float(sum(shares, Fraction(0)) / len(shares))
            if whole and shares and len(shares) == len(runs)
            else None
        ),
        prefill_s=mean(run.prefill_s for run in runs),
        ttft_s=mean(run.ttft_s for run in runs),
        tpot_s=mean(run.tpot_s for run in runs),
        e2el_s=mean(run.e2el_s for run in runs),
    )
