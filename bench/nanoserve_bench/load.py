"""The open loops that were asked for, as workloads of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Arrivals, WorkloadPlan

RATE_DIGITS = 4
"""Digits of a rate in a plan: what a capacity is known to, and what a name can hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadChoice:
    """What an open loop was asked to be.

    Attributes:
        rates_per_s: Requests per second, each a workload of its own.
        process: `poisson` or `constant`.
        objective_ttft_ms: Time to first token that counts as good; None asks for nothing.
        objective_tpot_ms: Likewise the time per output token.
    """

    rates_per_s: tuple[float, ...]
    process: str = "poisson"
    objective_ttft_ms: float | None = None
    objective_tpot_ms: float | None = None

    def workloads(self, base: WorkloadPlan) -> tuple[WorkloadPlan, ...]:
        """The base's requests at each rate, in as many slots as it has at most."""
        return tuple(
            dataclasses.replace(
                base,
                name=f"{base.name}-{self.process}-{rate:.{RATE_DIGITS}g}rps",
                slots=(max(base.slots),),
                arrivals=Arrivals(
                    process=self.process,
                    rate_per_s=rate,
                    objective_ttft_ms=self.objective_ttft_ms,
                    objective_tpot_ms=self.objective_tpot_ms,
                ),
            )
            for rate in map(rounded, self.rates_per_s)
        )


def base_of(workload: WorkloadPlan, workloads: Iterable[WorkloadPlan]) -> WorkloadPlan | None:
    """The workload that an open loop offers, handed over at once; None where there is none.

    The study's capacity is measured there, in as many slots.
    """
    for other in workloads:
        if other.arrivals is None and workload == dataclasses.replace(
            other, name=workload.name, slots=workload.slots, arrivals=workload.arrivals
        ):
            return other
    return None


def rounded(rate: float) -> float:
    """A rate as it stands in a plan.

    Raises:
        PlanError: It is none.
    """
    if not 0 < rate < float("inf"):
        raise PlanError(f"a rate is a number of requests per second above 0, not {rate}")
    return float(f"{rate:.{RATE_DIGITS}g}")
