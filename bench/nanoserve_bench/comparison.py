"""One sound pair of runs, split into its factors without rounding.

A speedup is a product: of what the candidate keeps in its slots and of what one of its slots
yields, each over the baseline's. Everything here is a `Fraction`, so the factors multiply to the
speedup exactly. What may be compared at all is decided elsewhere (`soundness`); `compare` there is
the only way from two runs to a `Comparison` that has been judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from nanoserve_bench.figures import Figures
from nanoserve_bench.records import Shape, SystemRun

BURST = Fraction(1, 100)
"""Arrivals within this share of the wall count as handed over at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Candidate over baseline in one block; None is a hole.

    `speedup = batch_factor x slot_factor`, and `= system_factor x request_factor` where those
    exist: the ratios of system occupancy, tokens per request-second, TTFT and end-to-end latency
    compare offered loads, and are holes where the two sides' arrival patterns differ. What is made
    of held time is a hole where a slot is not the same thing on both sides.

    Attributes:
        baseline: The run below the line.
        candidate: The run above it.
        speedup: Ratio of the throughputs.
        batch_factor: Ratio of the batch occupancies.
        slot_factor: Ratio of the tokens per slot-second.
        system_factor: Ratio of the system occupancies.
        request_factor: Ratio of the tokens per request-second.
        prefill_ratio: The baseline's mean wait for a first token without a queue over the
            candidate's mean prefill: above 1 where the candidate is faster.
        ttft_ratio: Baseline's mean TTFT over the candidate's.
        tpot_ratio: Baseline's mean TPOT over the candidate's.
        e2el_ratio: Baseline's mean end-to-end latency over the candidate's.
    """

    baseline: SystemRun
    candidate: SystemRun
    speedup: Fraction
    batch_factor: Fraction | None
    slot_factor: Fraction | None
    system_factor: Fraction | None
    request_factor: Fraction | None
    prefill_ratio: Fraction | None
    ttft_ratio: Fraction | None
    tpot_ratio: Fraction | None
    e2el_ratio: Fraction | None

    @property
    def slots_alike(self) -> bool:
        """Whether a slot means the same on both sides."""
        return self.baseline.slot == self.candidate.slot

    @property
    def weights_proven(self) -> bool:
        """Whether both sides digested the tensors that they ran, so that equal means proven."""
        return all(
            (run.settings.weights or "").startswith("sha256:")
            for run in (self.baseline, self.candidate)
        )

    @classmethod
    def of(
        cls,
        baseline: SystemRun,
        candidate: SystemRun,
        *,
        figures: tuple[Figures, Figures] | None = None,
    ) -> Comparison:
        """The arithmetic alone: judged by nobody.

        Args:
            baseline: The run below the line.
            candidate: The run above it.
            figures: Of both, where they have been computed already.

        Raises:
            RunUnsound: A run cannot carry its figures.
        """
        below, above = figures or (Figures.of(baseline), Figures.of(candidate))
        alike = arrival_pattern(baseline) == arrival_pattern(candidate)
        slots = baseline.slot == candidate.slot
        return cls(
            baseline=baseline,
            candidate=candidate,
            speedup=above.throughput / below.throughput,
            batch_factor=_ratio(above.batch_occupancy, below.batch_occupancy) if slots else None,
            slot_factor=(
                _ratio(above.tokens_per_slot_second, below.tokens_per_slot_second)
                if slots
                else None
            ),
            system_factor=above.system_occupancy / below.system_occupancy if alike else None,
            request_factor=(
                above.tokens_per_request_second / below.tokens_per_request_second if alike else None
            ),
            prefill_ratio=_ratio(below.wait_s, above.prefill_s) if slots else None,
            ttft_ratio=_ratio(below.ttft_s, above.ttft_s) if alike else None,
            tpot_ratio=_ratio(below.tpot_s, above.tpot_s),
            e2el_ratio=_ratio(below.e2el_s, above.e2el_s) if alike else None,
        )


def first_divergence(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first position at which two token streams differ; None where they are equal.

    A stream that ends early diverges at the position that it lacks.
    """
    for position, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return position
    return None if len(one) == len(other) else min(len(one), len(other))


def arrival_pattern(run: SystemRun) -> str:
    """`serial`, `burst` (all handed over at once) or `spread` (over the run)."""
    if run.shape is Shape.SERIAL:
        return "serial"
    spread = (run.totals.last_arrival_ns or 0) - run.started_ns
    return "burst" if spread <= BURST * run.wall_ns else "spread"


def _ratio(above: Fraction | None, below: Fraction | None) -> Fraction | None:
    return above / below if above is not None and below else None
