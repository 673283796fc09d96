"""The exact figures of one run, each computed once.

`SystemRun` derives every figure from its records when asked; a study asks for each of them many
times, in every comparison that a run takes part in. Means over requests are arithmetic; what a
request does not tell makes the run's mean a hole.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from nanoserve_bench.errors import RunUnsound
from nanoserve_bench.records import NS_PER_S, Shape, SystemRun, Totals


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What DESIGN calls T, W, S, R and everything that follows from them; None is a hole.

    Rates are per second, times in seconds. `tpot_s` averages the requests that have a second
    token. `wait_s` is a system's unloaded wait for a first token: TTFT where it has no queue
    (serial), prefill where it has one.
    """

    shape: Shape
    slots: int
    requests: int
    output_tokens: int
    wall_ns: int
    served_ns: int | None
    resident_ns: int
    throughput: Fraction
    batch_occupancy: Fraction | None
    tokens_per_slot_second: Fraction | None
    system_occupancy: Fraction
    tokens_per_request_second: Fraction
    queue_share: Fraction | None
    prefill_s: Fraction | None
    ttft_s: Fraction | None
    tpot_s: Fraction | None
    e2el_s: Fraction

    @property
    def wait_s(self) -> Fraction | None:
        """What stands against another engine's prefill: never a loaded TTFT."""
        return self.ttft_s if self.shape is Shape.SERIAL else self.prefill_s

    @classmethod
    def of(cls, run: SystemRun) -> Figures:
        """Compute them, and assert both factorisations.

        Raises:
            RunUnsound: The records cannot carry the figures, or a factorisation does not close.
        """
        tokens, wall, served, resident = (
            run.output_tokens, run.wall_ns, run.served_ns, run.resident_ns,
        )  # fmt: skip
        if tokens <= 0 or resident <= 0 or (served is not None and served <= 0):
            raise RunUnsound(
                f"{run.system}: {tokens} tokens in {resident} ns of requests and {served} ns of "
                "slots carry no rate"
            )
        totals = run.totals
        count = totals.requests
        figures = cls(
            shape=run.shape,
            slots=run.slots,
            requests=count,
            output_tokens=tokens,
            wall_ns=wall,
            served_ns=served,
            resident_ns=resident,
            throughput=Fraction(tokens * NS_PER_S, wall),
            batch_occupancy=None if served is None else Fraction(served, wall),
            tokens_per_slot_second=None if served is None else Fraction(tokens * NS_PER_S, served),
            system_occupancy=Fraction(resident, wall),
            tokens_per_request_second=Fraction(tokens * NS_PER_S, resident),
            queue_share=None if served is None else Fraction(resident - served, resident),
            prefill_s=_mean_s(totals.prefill_ns, count),
            ttft_s=_mean_s(totals.ttft_ns, count),
            tpot_s=_tpot_s(totals),
            e2el_s=Fraction(resident, count * NS_PER_S),
        )
        batch, per_slot = figures.batch_occupancy, figures.tokens_per_slot_second
        if batch is not None and per_slot is not None and batch * per_slot != figures.throughput:
            raise RunUnsound(f"{run.system}: batch occupancy x per slot-second is not throughput")
        if figures.system_occupancy * figures.tokens_per_request_second != figures.throughput:
            raise RunUnsound(f"{run.system}: system occupancy x per request is not throughput")
        return figures


def _mean_s(total_ns: int | None, count: int) -> Fraction | None:
    return None if total_ns is None else Fraction(total_ns, count * NS_PER_S)


def _tpot_s(totals: Totals) -> Fraction | None:
    if totals.decode_ns is None or not totals.decodes:
        return None
    spans = totals.decode_ns.items()
    total = sum((Fraction(span, gaps) for gaps, span in spans), Fraction(0))
    return total / (totals.decodes * NS_PER_S)
