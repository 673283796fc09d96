"""Open loops as the report sees them: a cell, its figures, and its share of the capacity."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from nanoserve_bench.latency import LoadFigures
from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.soundness import SoundCell
from nanoserve_report import numbers
from nanoserve_report.sweeps import AnyCell, Sweep


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """One open loop of a sweep.

    Attributes:
        cell: As judged.
        workload: Of the plan.
        figures: None where the cell is refused.
        capacity_per_s: Requests per second of the same arm in the same slots with all requests at
            once, in this study; None where that cell is refused or was not planned.
    """

    cell: AnyCell
    workload: WorkloadPlan
    figures: LoadFigures | None
    capacity_per_s: Fraction | None

    @property
    def rate_per_s(self) -> float:
        """Requests per second that were offered."""
        arrivals = self.workload.arrivals
        if arrivals is None:
            raise ValueError(f"{self.workload.name} is no open loop")
        return arrivals.rate_per_s

    @property
    def share(self) -> float | None:
        """What was offered over the capacity."""
        return None if self.capacity_per_s is None else self.rate_per_s / float(self.capacity_per_s)

    @property
    def state(self) -> str:
        """`saturated`, with the blocks that say so, or `steady`; empty where it is refused."""
        figures = self.figures
        if figures is None:
            return ""
        blocks = numbers.count(figures.blocks, "block")
        if figures.saturated:
            return f"saturated: the queue still grew at the end of {figures.growing} of {blocks}"
        return f"steady: the queue still grew at the end of {figures.growing} of {blocks}"


def loads(sweep: Sweep) -> tuple[Load, ...]:
    """The open loops of a sweep, by arm and by rate."""
    workloads = {workload.name: workload for workload in sweep.plan.workloads}
    found = []
    for cell in sweep.loads:
        workload = workloads[cell.cell.workload]
        found.append(
            Load(
                cell=cell,
                workload=workload,
                figures=LoadFigures.of(cell.runs, workload)
                if isinstance(cell, SoundCell)
                else None,
                capacity_per_s=_capacity(sweep, cell),
            )
        )
    return tuple(found)


def _capacity(sweep: Sweep, cell: AnyCell) -> Fraction | None:
    place = (cell.cell.arm, cell.cell.slots)
    for other in sweep.sound_cells:
        if (other.cell.arm, other.cell.slots) == place:
            runs = other.runs.values()
            requests = sum(len(run.records) for run in runs)
            return Fraction(requests * 10**9, sum(run.wall_ns for run in runs))
    return None


def words(load: Load) -> str:
    """`4.3 requests/s, 50 % of the capacity`."""
    share = "" if load.share is None else f", {load.share:.0%} of the capacity"
    return f"{numbers.significant(load.rate_per_s)} requests/s{share}"
