"""What one results folder says, judged: a sweep for each setting that it measured.

A *sweep* is one folder's view of one setting: device, dtype, model, workload, and what ran it
(machine, threads, versions, sources). What was refused is in it as a hole, never as a number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from nanoserve_bench.load import base_of
from nanoserve_bench.plan import Cell, Plan
from nanoserve_bench.records import Shape
from nanoserve_bench.results import ResultSet
from nanoserve_bench.schema import SystemRow
from nanoserve_bench.soundness import (
    Finding,
    RefusedCell,
    RefusedComparison,
    RefusedMarginal,
    SoundCell,
    SoundComparison,
    SoundMarginal,
    Verdict,
)
from nanoserve_report.retractions import Retraction
from nanoserve_report.setting import Setting, setting_of

AnyCell = SoundCell | RefusedCell
AnyComparison = SoundComparison | RefusedComparison
AnyMarginal = SoundMarginal | RefusedMarginal


class Status(StrEnum):
    """How a folder stands after judgement."""

    SOUND = "sound"
    ACKNOWLEDGED = "sound, with acknowledged refusals"
    RETRACTED = "retracted"
    REFUSED = "refused in part"
    UNREADABLE = "refused as a whole"


@dataclass(frozen=True, kw_only=True)
class Folder:
    """One results folder with its verdict; of one that was retracted, no number is left."""

    name: str
    verdict: Verdict
    retraction: Retraction | None = None

    @property
    def results(self) -> ResultSet | None:
        """Its rows, where it could be read."""
        return self.verdict.results

    @property
    def plan(self) -> Plan | None:
        """Its plan, where it could be read."""
        return None if self.results is None else self.results.plan

    @property
    def refusing(self) -> tuple[Finding, ...]:
        """The findings that no plan acknowledged, and that no retraction answers."""
        return () if self.retraction is not None else self.verdict.unacknowledged

    @property
    def status(self) -> Status:
        """How it stands."""
        if self.retraction is not None:
            return Status.RETRACTED
        if self.results is None:
            return Status.UNREADABLE
        if not self.verdict.ok:
            return Status.REFUSED
        return Status.ACKNOWLEDGED if self.verdict.acknowledged else Status.SOUND

    @property
    def created_at(self) -> str:
        """When its plan was written; empty where the plan cannot be read, which sorts first."""
        return "" if self.plan is None else self.plan.created_at

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """What may be shown of it: one sweep per setting; nothing where it was retracted."""
        return () if self.retraction is not None else self.measured

    @cached_property
    def measured(self) -> tuple[Sweep, ...]:
        """One sweep per setting, in the order of the plan's cells, shown or not."""
        plan, results = self.plan, self.results
        if plan is None or results is None:
            return ()
        grouped: dict[tuple[str, str, str, str], list[Cell]] = defaultdict(list)
        loads: dict[tuple[str, str, str, str], list[Cell]] = defaultdict(list)
        bases = _bases(plan)
        for cell in plan.cells:
            base = bases.get(cell.workload)
            into = grouped if base is None else loads
            into[cell.device, cell.dtype, cell.model, base or cell.workload].append(cell)
        return tuple(
            Sweep(
                folder=self,
                plan=plan,
                results=results,
                setting=setting_of(plan, results, cells),
                planned=tuple(cells),
                offered=tuple(loads[place]),
            )
            for place, cells in grouped.items()
        )


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What one folder says about one setting; holes are in it as refused cells and pairs."""

    folder: Folder
    plan: Plan
    results: ResultSet
    setting: Setting
    planned: tuple[Cell, ...]
    offered: tuple[Cell, ...] = ()
    """Cells of the open loops that offer this setting's workload."""

    @property
    def name(self) -> str:
        """The run id, which is the folder's name."""
        return self.folder.name

    @cached_property
    def _planned_ids(self) -> frozenset[str]:
        return frozenset(cell.id for cell in self.planned)

    @cached_property
    def cells(self) -> tuple[AnyCell, ...]:
        """The cells: the headline baseline first, then by arm as planned and by slots."""
        arms = {arm.name: index for index, arm in enumerate(self.plan.arms)}
        ordered = sorted(
            self.planned,
            key=lambda c: (c.arm != self.plan.headline_baseline, arms.get(c.arm, 0), c.slots),
        )
        judged = self.folder.verdict.cells
        return tuple(judged[cell.id] for cell in ordered if cell.id in judged)

    @property
    def loads(self) -> tuple[AnyCell, ...]:
        """The open loops of this setting, by arm as planned and by rate."""
        rates = {w.name: w.arrivals.rate_per_s for w in self.plan.workloads if w.arrivals}
        arms = {arm.name: index for index, arm in enumerate(self.plan.arms)}
        ordered = sorted(self.offered, key=lambda c: (arms.get(c.arm, 0), rates[c.workload]))
        judged = self.folder.verdict.cells
        return tuple(judged[cell.id] for cell in ordered if cell.id in judged)

    @cached_property
    def comparisons(self) -> tuple[AnyComparison, ...]:
        """The planned pairs of this setting, in the order of `cells`."""
        order = {cell.cell.id: index for index, cell in enumerate(self.cells)}
        pairs = [
            pair
            for pair in self.folder.verdict.comparisons
            if pair.planned.candidate in self._planned_ids
        ]
        return tuple(sorted(pairs, key=lambda pair: order.get(pair.planned.candidate, len(order))))

    @property
    def only_noise(self) -> bool:
        """Whether one thing meets nothing but itself here, at one number of slots."""
        arms = {cell.arm for cell in self.planned}
        ran = {
            (arm.system, arm.revision, frozenset(arm.options))
            for arm in self.plan.arms
            if arm.name in arms
        }
        return len(ran) == 1 and len({cell.slots for cell in self.planned}) == 1

    @property
    def rivals(self) -> tuple[AnyComparison, ...]:
        """The pairs that set one system against another (or a revision against one)."""
        return tuple(pair for pair in self.comparisons if pair.planned.kind != "self")

    @property
    def headline_rivals(self) -> tuple[AnyComparison, ...]:
        """Those of them against the headline baseline."""
        baseline = self.plan.headline_baseline
        return tuple(pair for pair in self.rivals if pair.baseline.arm == baseline)

    @property
    def selves(self) -> tuple[AnyComparison, ...]:
        """The A/A pairs: the same thing twice, whose true ratio is 1."""
        return tuple(pair for pair in self.comparisons if pair.planned.kind == "self")

    @cached_property
    def marginals(self) -> tuple[AnyMarginal, ...]:
        """The doublings of this setting; those of an A/A arm are another arm's once more."""
        again = {pair.candidate.arm for pair in self.selves}
        return tuple(
            marginal
            for marginal in self.folder.verdict.marginals
            if marginal.lower.id in self._planned_ids and marginal.lower.arm not in again
        )

    @property
    def sound_cells(self) -> tuple[SoundCell, ...]:
        """The cells that have figures."""
        return tuple(cell for cell in self.cells if isinstance(cell, SoundCell))

    @property
    def sound_rivals(self) -> tuple[SoundComparison, ...]:
        """The rival pairs that have a ratio."""
        return tuple(pair for pair in self.rivals if isinstance(pair, SoundComparison))

    @property
    def sound_selves(self) -> tuple[SoundComparison, ...]:
        """The A/A pairs that have a ratio."""
        return tuple(pair for pair in self.selves if isinstance(pair, SoundComparison))

    @property
    def sound_marginals(self) -> tuple[SoundMarginal, ...]:
        """The doublings that have a product."""
        return tuple(item for item in self.marginals if isinstance(item, SoundMarginal))

    def comparison_of(self, cell: Cell) -> AnyComparison | None:
        """The planned pair whose candidate is this cell, against the headline baseline first."""
        pairs = [pair for pair in self.comparisons if pair.planned.candidate == cell.id]
        pairs.sort(key=lambda pair: pair.baseline.arm != self.plan.headline_baseline)
        return pairs[0] if pairs else None

    @cached_property
    def launches(self) -> tuple[SystemRow, ...]:
        """What the workers of this device and dtype reported, one row per launch."""
        return tuple(
            row
            for row in self.results.systems
            if row.device == self.setting.device and row.dtype == self.setting.dtype
        )

    def launches_of(self, arm: str) -> tuple[SystemRow, ...]:
        """What the workers of one arm reported."""
        return tuple(row for row in self.launches if row.arm == arm)

    def first_token_wait(self, arm: str) -> str:
        """Which of an arm's figures is its wait for a first token without a queue.

        `TTFT` where it takes one request at a time, else `prefill`: a loaded TTFT is mostly queue.
        """
        shapes = {row.shape for row in self.launches_of(arm)}
        return "TTFT" if shapes == {Shape.SERIAL} else "prefill"

    @property
    def device_name(self) -> str:
        """What the workers call the device; its torch name where no worker ran on it."""
        names = sorted({row.device_name for row in self.launches})
        return names[0] if names else self.setting.device


def _bases(plan: Plan) -> dict[str, str]:
    """The open loops of a plan that offer another of its workloads, and which one each."""
    found = {}
    for workload in plan.workloads:
        base = base_of(workload, plan.workloads) if workload.arrivals is not None else None
        if base is not None and any(cell.workload == base.name for cell in plan.cells):
            found[workload.name] = base.name
    return found
