"""One request, one trial: stamps in, occupancies out, nothing rounded.

Every figure of the site is derived from a few stamps: a request arrives, holds a slot during one
or more intervals, receives its first token, finishes. All stamps are integer nanoseconds of one
monotonic clock, and all derived rates are `fractions.Fraction`, so that the two identities below
are equalities and not approximations::

    T / W = (S / W) x (T / S)       throughput = batch occupancy  x tokens per slot-second
    T / W = (R / W) x (T / R)       throughput = system occupancy x tokens per request-second

with T output tokens, W the wall from first arrival to last finish, S the sum of the time the
requests *held a slot*, and R the sum of the time they were *in the system*. The two occupancies
look alike and are not: eight requests handed at once to a system with one slot read a system
occupancy well above 1, although one row at a time was all that ever ran.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from nanoserve_bench.errors import RunUnsound

NS_PER_S = 1_000_000_000
ROW = "row"
"""What a slot is unless a system says otherwise: one row of the running batch."""


DECLARED = "declared:"
"""How a value begins that a person declared of what cannot be asked."""


def undeclared(value: str) -> str:
    """A value without the mark that it was declared: it is compared like any other."""
    return value.removeprefix(DECLARED)


class Shape(StrEnum):
    """How a system works through a workload, which decides what its run must prove."""

    SERIAL = "serial"
    """One request at a time: the next arrives when the one before has finished."""
    CONCURRENT = "concurrent"
    """All requests are handed over and share the slots."""


class Hold(NamedTuple):
    """An interval in which a request owned a slot, `[acquired_ns, released_ns)`."""

    acquired_ns: int
    released_ns: int


class StepRecord(NamedTuple):
    """One row of an engine's step log; `holders` slots are held from `start_ns` to the next row.

    A row without prefill and decode rows is the time between two steps: the log is a step function
    of the holders and ends with a row that has none.
    """

    start_ns: int
    prefill_rows: int
    decode_rows: int
    holders: int
    waiting: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """What one request did in one trial. Stamps are ns; None means the system does not tell it.

    Attributes:
        request: Identifier, unique within the trial.
        prompt_ids: Token ids of the prompt.
        output_ids: Token ids that count as output, in order.
        max_tokens: Output tokens that were asked for.
        arrival_ns: When the request was due, or handed over.
        submitted_ns: When it was really submitted (an open-loop client can be late).
        holds: Slot intervals in order; None where the system tells no holds (an HTTP endpoint).
        first_token_ns: When the first token existed; None where it is not stamped.
        finished_ns: When the last token was returned; None for a request that never finished.
        token_ns: One stamp per output token; None where the system gives no token stamps.
        discarded_tokens: Generated beyond the request's length, and not output (static batches).
        cached_tokens: Prompt tokens served from a prefix cache; None is unknown.
        finish_reason: `length`, `stop`, `abort` or `error`.
        error: The request's error message; empty when it succeeded.
    """

    request: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    max_tokens: int
    arrival_ns: int
    submitted_ns: int
    holds: tuple[Hold, ...] | None
    first_token_ns: int | None
    finished_ns: int | None
    token_ns: tuple[int, ...] | None = None
    discarded_tokens: int = 0
    cached_tokens: int | None = None
    finish_reason: str = "length"
    error: str = ""

    @property
    def served_ns(self) -> int | None:
        """Time in a slot: the sum of the holds. Preempted time is not served time."""
        if self.holds is None:
            return None
        return sum(hold.released_ns - hold.acquired_ns for hold in self.holds)

    @property
    def resident_ns(self) -> int | None:
        """Time in the system (end-to-end latency): `finished - arrival`."""
        return None if self.finished_ns is None else self.finished_ns - self.arrival_ns

    @property
    def queued_ns(self) -> int | None:
        """Time in the system and in no slot: `finished - arrival - served`."""
        resident, served = self.resident_ns, self.served_ns
        return None if resident is None or served is None else resident - served

    @property
    def ttft_ns(self) -> int | None:
        """Time to first token, queue included: `first token - arrival`."""
        return None if self.first_token_ns is None else self.first_token_ns - self.arrival_ns

    @property
    def prefill_ns(self) -> int | None:
        """Held time until the first token, so a baseline without a queue has `prefill = TTFT`."""
        if self.holds is None or self.first_token_ns is None:
            return None
        first = self.first_token_ns
        return sum(
            min(hold.released_ns, first) - hold.acquired_ns
            for hold in self.holds
            if hold.acquired_ns < first
        )

    @property
    def tpot_s(self) -> Fraction | None:
        """Seconds per output token after the first: `(finished - first token) / (tokens - 1)`."""
        if self.finished_ns is None or self.first_token_ns is None or len(self.output_ids) < 2:
            return None
        return Fraction(
            self.finished_ns - self.first_token_ns, (len(self.output_ids) - 1) * NS_PER_S
        )

    @property
    def itl_ns(self) -> tuple[int, ...]:
        """Gaps between successive tokens; empty where there are no token stamps."""
        stamps = self.token_ns or ()
        return tuple(later - earlier for earlier, later in itertools.pairwise(stamps))


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What two sides must share for their speeds to be comparable; None is unknown.

    A text may be `declared:<value>`: said by whoever started the sweep, of a system that cannot be
    asked. It is shown so, and compared like any other.

    Attributes:
        machine: Fingerprint of the machine.
        device: Torch device name, such as `cpu` or `cuda:0`.
        dtype: Weights and activations, such as `float32`.
        matmul_precision: What a float32 product really computes in, such as `ieee` or `tf32`.
        threads: Compute threads; None on a device where they do not matter is still unknown.
        weights: Digest of the canonical tensors, or `declared:<what>` for a converted form.
        tokenizer: Digest of the tokenizer, or `none` where prompts are ids and nothing is decoded.
        decoding: Canonical decoding settings, such as `greedy;ignore_eos`.
        cache: Prefix cache state: `off` or `on`, or that as declared.
    """

    machine: str | None
    device: str | None
    dtype: str | None
    matmul_precision: str | None
    threads: int | None
    weights: str | None
    tokenizer: str | None
    decoding: str | None
    cache: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Everything that figures need of the records of a run, summed up exactly.

    Stamps in ns; a sum is None where a request does not tell its part of it.

    Attributes:
        requests: Number of records.
        unfinished: Records without a finish stamp.
        started_ns: First arrival; None without records.
        last_arrival_ns: Last arrival; None without records.
        finished_ns: Last finish; None where any record lacks one.
        output_tokens: T, the token ids that are present.
        longest_output: Most output tokens of one request.
        cached_tokens: Prompt tokens that are said to come from a cache.
        served_ns: S, the sum of the holds.
        resident_ns: R, the sum of the times in the system; 0 where any record lacks a finish.
        prefill_ns: Sum of the held times until the first token.
        ttft_ns: Sum of the times to the first token.
        decode_ns: Time from first token to finish, by the number of gaps between tokens in it;
            requests of one token are left out.
        decodes: Requests in `decode_ns`.
    """

    requests: int
    unfinished: int
    started_ns: int | None
    last_arrival_ns: int | None
    finished_ns: int | None
    output_tokens: int
    longest_output: int
    cached_tokens: int
    served_ns: int | None
    resident_ns: int
    prefill_ns: int | None
    ttft_ns: int | None
    decode_ns: Mapping[int, int] | None
    decodes: int

    @classmethod
    def of(cls, records: Sequence[RunRecord]) -> Totals:
        """Sum up records that are at hand."""
        arrivals = [record.arrival_ns for record in records]
        finishes = [record.finished_ns for record in records if record.finished_ns is not None]
        lengths = [len(record.output_ids) for record in records]
        whole = bool(records) and len(finishes) == len(records)
        timed = whole and all(record.first_token_ns is not None for record in records)
        decode_ns: dict[int, int] = defaultdict(int)
        for record in records:
            gaps = len(record.output_ids) - 1
            if gaps >= 1 and record.finished_ns is not None and record.first_token_ns is not None:
                decode_ns[gaps] += record.finished_ns - record.first_token_ns
        return cls(
            requests=len(records),
            unfinished=len(records) - len(finishes),
            started_ns=min(arrivals, default=None),
            last_arrival_ns=max(arrivals, default=None),
            finished_ns=max(finishes) if whole else None,
            output_tokens=sum(lengths),
            longest_output=max(lengths, default=0),
            cached_tokens=sum(record.cached_tokens or 0 for record in records),
            served_ns=_sum(record.served_ns for record in records),
            resident_ns=sum(finishes) - sum(arrivals) if whole else 0,
            prefill_ns=_sum(record.prefill_ns for record in records),
            ttft_ns=_sum(record.ttft_ns for record in records),
            decode_ns=dict(decode_ns) if timed else None,
            decodes=sum(1 for length in lengths if length >= 2),
        )


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum; None where a value is missing, or all are."""
    known = list(values)
    if not known or None in known:
        return None
    return sum(value for value in known if value is not None)


@dataclass(frozen=True, kw_only=True)
class SystemRun:
    """One system's run of one workload (a trial): its records and the exact figures they give.

    The figures raise `RunUnsound` where the records cannot carry them (no record, a request that
    never finished, a wall of zero), and are None (a hole) where the system does not tell its holds.
    `records` and `steps` of a run that was read from a folder are made each time they are looked
    at (`runs.py`), and its totals are known without them. `slot` is what one of its slots is: a row
    of the running batch, or the system's own word for something else.
    """

    system: str
    shape: Shape
    slots: int
    records: Sequence[RunRecord]
    settings: Settings
    steps: Sequence[StepRecord] | None = None
    slot: str = ROW

    @cached_property
    def totals(self) -> Totals:
        """The records summed up, once."""
        known = getattr(self.records, "totals", None)
        return known if isinstance(known, Totals) else Totals.of(self.records)

    @property
    def started_ns(self) -> int:
        """First arrival."""
        if self.totals.started_ns is None:
            raise RunUnsound(f"{self.system}: the run has no requests, so it measured nothing")
        return self.totals.started_ns

    @property
    def finished_ns(self) -> int:
        """Last finish."""
        if self.totals.finished_ns is None:
            missing = [r.request for r in self.records if r.finished_ns is None]
            raise RunUnsound(
                f"{self.system}: no finish stamp on request(s) {', '.join(missing) or '(none ran)'}"
            )
        return self.totals.finished_ns

    @property
    def wall_ns(self) -> int:
        """W: first arrival to last finish."""
        wall = self.finished_ns - self.started_ns
        if wall <= 0:
            raise RunUnsound(f"{self.system}: the run's wall time is {wall} ns")
        return wall

    @property
    def output_tokens(self) -> int:
        """T: the token ids that are present, never what was asked for."""
        return self.totals.output_tokens

    @property
    def served_ns(self) -> int | None:
        """S: the sum of the time requests held a slot; None where holds are not told."""
        return self.totals.served_ns

    @property
    def resident_ns(self) -> int:
        """R: the sum of the time requests were in the system."""
        _ = self.wall_ns  # raises where a finish is missing
        return self.totals.resident_ns

    @property
    def throughput(self) -> Fraction:
        """T / W in tokens per second."""
        return Fraction(self.output_tokens * NS_PER_S, self.wall_ns)

    @property
    def batch_occupancy(self) -> Fraction | None:
        """S / W in rows: the mean number of slots held. This is the batching factor."""
        return None if self.served_ns is None else Fraction(self.served_ns, self.wall_ns)

    @property
    def tokens_per_slot_second(self) -> Fraction | None:
        """T / S in tokens per second of held slot: what one row produced."""
        return Fraction(self.output_tokens * NS_PER_S, self.served_ns) if self.served_ns else None

    @property
    def system_occupancy(self) -> Fraction:
        """R / W in requests: the mean number in the system, queue included. Not the batch."""
        return Fraction(self.resident_ns, self.wall_ns)

    @property
    def tokens_per_request_second(self) -> Fraction:
        """T / R in tokens per second of request in the system: what the caller got."""
        if self.resident_ns <= 0:
            raise RunUnsound(f"{self.system}: the requests' time in the system is zero")
        return Fraction(self.output_tokens * NS_PER_S, self.resident_ns)

    @property
    def queue_share(self) -> Fraction | None:
        """(R - S) / R: the share of the requests' time spent in the system and in no slot."""
        if self.served_ns is None or self.resident_ns <= 0:
            return None
        return Fraction(self.resident_ns - self.served_ns, self.resident_ns)

    def identity_gaps(self) -> tuple[Fraction | None, Fraction]:
        """What is left of each factorisation: exactly (0, 0), or the arithmetic is broken."""
        batch, per_slot = self.batch_occupancy, self.tokens_per_slot_second
        slot_gap = None if batch is None or per_slot is None else self.throughput - batch * per_slot
        return slot_gap, self.throughput - self.system_occupancy * self.tokens_per_request_second
