"""What the gate says of a results folder.

Numbers can only be reached through what is sound: `RefusedCell`, `RefusedComparison` and
`RefusedMarginal` have no numeric attribute at all, so a page that reaches for one fails to build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nanoserve_bench.comparison import Comparison
from nanoserve_bench.occupancy import OccupancySplit
from nanoserve_bench.plan import AcknowledgedRefusal, Cell, PlannedComparison
from nanoserve_bench.records import SystemRun
from nanoserve_bench.results import ResultSet
from nanoserve_bench.soundness.findings import Finding
from nanoserve_bench.statistics import Estimate, Outcome, Worth


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOutcome:
    """What one rule did.

    Attributes:
        code: Of the rule.
        name: Of the rule.
        examined: Items looked at.
        not_applicable: Why the rule has nothing to look at in this study; None where it has.
        findings: What it refused.
    """

    code: str
    name: str
    examined: int
    not_applicable: str | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SoundCell:
    """A cell whose figures may be printed. Estimates over measured blocks; None is a hole.

    Units: tokens per second, rows, tokens per second of slot, requests, tokens per second of
    request, shares of 1, seconds. `read_share` is the read rate that the run must have had over
    the highest read bandwidth measured on the device, `matrix_share` the rate at which it must
    have multiplied over the highest matrix rate: the least that the tokens can have cost. `splits`
    says where slot time went, block by block. `outliers` are blocks whose throughput strays from
    the others: flagged, and part of every figure all the same.
    """

    cell: Cell
    runs: Mapping[int, SystemRun]
    throughput: Estimate
    batch_occupancy: Estimate | None
    tokens_per_slot_second: Estimate | None
    system_occupancy: Estimate
    tokens_per_request_second: Estimate
    queue_share: Estimate | None
    prefill: Estimate | None
    ttft: Estimate | None
    tpot: Estimate | None
    e2el: Estimate
    read_share: Estimate | None
    matrix_share: Estimate | None
    splits: Mapping[int, OccupancySplit] | None
    outliers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedCell:
    """A cell of which nothing may be printed but why."""

    cell: Cell
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SoundComparison:
    """A planned comparison whose ratio may be printed, and what it may be called.

    `envelope` is how far the A/A pairs of the same device, dtype and workload stray from 1.
    """

    planned: PlannedComparison
    baseline: Cell
    candidate: Cell
    pairs: Mapping[int, Comparison]
    speedup: Estimate
    batch_factor: Estimate | None
    slot_factor: Estimate | None
    system_factor: Estimate | None
    request_factor: Estimate | None
    prefill_ratio: Estimate | None
    ttft_ratio: Estimate | None
    tpot_ratio: Estimate | None
    e2el_ratio: Estimate | None
    envelope: tuple[float, float]
    verdict: Outcome

    @property
    def slots_alike(self) -> bool:
        """Whether a slot means the same on both sides; the slot factors are holes where not."""
        return all(comparison.slots_alike for comparison in self.pairs.values())

    @property
    def weights_proven(self) -> bool:
        """Whether equal weights are proven by digests, and not only declared."""
        return all(comparison.weights_proven for comparison in self.pairs.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedComparison:
    """A planned comparison of which nothing may be printed but why."""

    planned: PlannedComparison
    baseline: Cell
    candidate: Cell
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SoundMarginal:
    """What doubling an arm's slots from `slots` to twice as many is worth.

    `product = batch_ratio x slot_ratio`, the ratio of the throughputs; the two ratios are holes
    where the arm does not tell its holds.
    """

    arm: str
    device: str
    dtype: str
    workload: str
    slots: int
    lower: Cell
    upper: Cell
    pairs: Mapping[int, Comparison]
    batch_ratio: Estimate | None
    slot_ratio: Estimate | None
    product: Estimate
    verdict: Worth


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedMarginal:
    """A doubling of which nothing may be printed but why."""

    lower: Cell
    upper: Cell
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Acknowledged:
    """A refusal that the plan expected, with the findings that it covers: a hole, not a number."""

    refusal: AcknowledgedRefusal
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Everything the gate has to say of one folder.

    `findings` holds all of them, in the order of the rules. `results` is None where the folder
    could not be read; there is then no cell and no comparison, and never a number.
    """

    path: Path
    run_id: str | None
    results: ResultSet | None
    findings: tuple[Finding, ...]
    outcomes: tuple[RuleOutcome, ...]
    cells: Mapping[str, SoundCell | RefusedCell]
    comparisons: tuple[SoundComparison | RefusedComparison, ...]
    marginals: tuple[SoundMarginal | RefusedMarginal, ...]
    acknowledged: tuple[Acknowledged, ...]

    @property
    def unacknowledged(self) -> tuple[Finding, ...]:
        """The findings that turn the light red."""
        expected = {id(finding) for entry in self.acknowledged for finding in entry.findings}
        return tuple(finding for finding in self.findings if id(finding) not in expected)

    @property
    def ok(self) -> bool:
        """Whether nothing was refused but what the plan acknowledged beforehand."""
        return not self.unacknowledged
