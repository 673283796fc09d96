"""What callers waited for under load: percentiles, goodput, and whether the queue still grew.

Everything is exact and comes from stamps: percentiles are values that were measured (the nearest
rank, never interpolated), and a percentile that the requests are too few for does not exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from nanoserve_bench.plan import Arrivals, WorkloadPlan
from nanoserve_bench.records import NS_PER_S, RunRecord, SystemRun

GROWTH = Fraction(1, 2)
"""Requests by which a queue must be longer in the last quarter of the arrivals to count as growing:
half of one, which is what a single late request makes of a quarter."""
MS_PER_S = 1000

Seconds = Fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class Percentiles:
    """Of `n` values, in seconds; None where `n` is too small to have one.

    The percentile p is the smallest value that is at least as large as p % of them. It takes
    100 / (100 - p) values, or it is the largest whatever p is.
    """

    n: int
    p50: Seconds | None
    p90: Seconds | None
    p99: Seconds | None

    @classmethod
    def of(cls, values: Iterable[Seconds]) -> Percentiles | None:
        """The percentiles of some values; None where there are none."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(
            n=len(ordered),
            p50=percentile(ordered, 50),
            p90=percentile(ordered, 90),
            p99=percentile(ordered, 99),
        )


def percentile(ordered: Sequence[Seconds], share: int) -> Seconds | None:
    """The nearest-rank percentile of values in ascending order; None where they are too few."""
    if len(ordered) * (100 - share) < 100:
        return None
    return ordered[-(-len(ordered) * share // 100) - 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Goodput:
    """Requests that met the objective: `good` of `requests`, and so many of them per second."""

    good: int
    requests: int
    per_s: Fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadFigures:
    """One cell of an open loop, over all its blocks.

    Attributes:
        offered_per_s: Requests per second that the plan offers.
        completed_per_s: Requests over the wall from first arrival to last finish, all blocks
            together.
        ttft: Time to first token, by request; None where the system stamps none.
        tpot: Time per output token after the first, of requests that have a second; likewise.
        itl: Gaps between successive tokens, pooled; likewise.
        e2el: Time in the system, by request.
        goodput: Under the plan's objective; None where it states none, or its stamps are missing.
        growing: Blocks at whose end the queue was still growing.
        blocks: All of them.
    """

    offered_per_s: float
    completed_per_s: Fraction
    ttft: Percentiles | None
    tpot: Percentiles | None
    itl: Percentiles | None
    e2el: Percentiles | None
    goodput: Goodput | None
    growing: int
    blocks: int

    @property
    def saturated(self) -> bool:
        """Whether the queue still grew at the end of at least half of the blocks.

        Its latencies then say how long the run was, and not what a caller waits for.
        """
        return 2 * self.growing >= self.blocks

    @classmethod
    def of(cls, runs: Mapping[int, SystemRun], workload: WorkloadPlan) -> LoadFigures:
        """The figures of sound runs of an open-loop workload, by block.

        Raises:
            ValueError: The workload is no open loop, or there is no run.
        """
        arrivals = workload.arrivals
        if arrivals is None or not runs:
            raise ValueError(f"{workload.name} is no open loop that was run")
        records = [record for run in runs.values() for record in run.records]
        wall_ns = sum(run.wall_ns for run in runs.values())
        stamped = all(record.first_token_ns is not None for record in records)
        return cls(
            offered_per_s=arrivals.rate_per_s,
            completed_per_s=Fraction(len(records) * NS_PER_S, wall_ns),
            ttft=Percentiles.of(_seconds(r.ttft_ns for r in records)) if stamped else None,
            tpot=Percentiles.of(r.tpot_s for r in records if r.tpot_s is not None),
            itl=Percentiles.of(_seconds(gap for r in records for gap in r.itl_ns)),
            e2el=Percentiles.of(_seconds(r.resident_ns for r in records)),
            goodput=_goodput(records, arrivals, wall_ns),
            growing=sum(still_growing(run) for run in runs.values()),
            blocks=len(runs),
        )


def _seconds(values_ns: Iterable[int | None]) -> Iterable[Seconds]:
    return (Fraction(value, NS_PER_S) for value in values_ns if value is not None)


def _goodput(records: Sequence[RunRecord], arrivals: Arrivals, wall_ns: int) -> Goodput | None:
    ttft_ms, tpot_ms = arrivals.objective_ttft_ms, arrivals.objective_tpot_ms
    if (ttft_ms, tpot_ms) == (None, None):
        return None
    if any(record.first_token_ns is None for record in records):
        return None
    good = sum(
        (ttft_ms is None or (r.ttft_ns or 0) <= ttft_ms * NS_PER_S / MS_PER_S)
        and (tpot_ms is None or r.tpot_s is None or r.tpot_s * MS_PER_S <= tpot_ms)
        for r in records
    )
    return Goodput(good=good, requests=len(records), per_s=Fraction(good * NS_PER_S, wall_ns))


def still_growing(run: SystemRun) -> bool:
    """Whether the queue of a run was still growing when its last request arrived.

    The time from the first to the last arrival is cut into quarters. The queue grows where its mean
    over the last one is at least one request, and longer by `GROWTH` than over the one before.
    """
    first = run.started_ns
    span = max(record.arrival_ns for record in run.records) - first
    if span <= 0:
        return False
    edges = [first + Fraction(span * part, 4) for part in (2, 3, 4)]
    earlier, last = (mean_queue(run, *pair) for pair in itertools.pairwise(edges))
    return last >= 1 and last >= earlier + GROWTH


def mean_queue(run: SystemRun, start: Fraction, end: Fraction) -> Fraction:
    """Mean number of requests in the system and in no slot between two instants, ns.

    Where a system tells no holds, what is in the system beyond its slots is its queue.
    """
    if run.served_ns is not None:
        waited = sum(
            _overlap(record.arrival_ns, record.finished_ns, start, end)
            - sum(_overlap(*hold, start, end) for hold in record.holds or ())
            for record in run.records
        )
        return Fraction(waited) / (end - start)
    events = sorted(
        event
        for record in run.records
        if record.finished_ns is not None
        for event in ((record.arrival_ns, 1), (record.finished_ns, -1))
    )
    waited, there, since = Fraction(0), 0, start
    for instant, change in events:
        now = min(max(Fraction(instant), start), end)
        waited += max(0, there - run.slots) * (now - since)
        there, since = there + change, now
    return waited / (end - start)


def _overlap(begin: int, finish: int | None, start: Fraction, end: Fraction) -> Fraction:
    stop = end if finish is None else min(Fraction(finish), end)
    return max(Fraction(0), stop - max(Fraction(begin), start))
