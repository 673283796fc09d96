"""A request: what was asked, what it holds, what has come of it, and when.

The life of a request::

    add -> WAITING -> RUNNING -> FINISHED          (stop, length, error)
              |        |   ^
              |        v   |
              |     PREEMPTED                       lost its slot and blocks, keeps its tokens
              `--------+---------> FINISHED         (abort, from any state)

Time is written down where it happens, in integer nanoseconds of one monotonic clock, and never
added up: a *hold* is an interval in which the request owned a slot, preemption ends one and
readmission opens another. Sums are derived from the stamps by whoever reads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from nanoserve.block_allocator import BlockTable
from nanoserve.logit_adjustment import LogitAdjustment
from nanoserve.output_text import OutputText
from nanoserve.sampling_params import SamplingParams
from nanoserve.token_logprobs import TokenLogprobs


class RequestStatus(Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"  # an end-of-sequence token, a stop token, or a stop string
    LENGTH = "length"  # max_tokens reached, or the model's length limit
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTimings:
    """The stamps of one request, in nanoseconds of the engine's clock.

    Attributes:
        arrival_ns: When the request was due; the caller's value, or the time of submission.
        submitted_ns: When it was really handed to the engine.
        holds: Intervals (acquired, released) in which it owned a slot, in order.
        first_token_ns: When its first token existed on the host; None without a token.
        token_ns: When each of its tokens existed on the host.
        finished_ns: When it ended.
    """

    arrival_ns: int
    submitted_ns: int
    holds: tuple[tuple[int, int], ...]
    first_token_ns: int | None
    token_ns: tuple[int, ...]
    finished_ns: int

    @property
    def admitted_ns(self) -> int | None:
        """When it first got a slot; None if it never did."""
        return self.holds[0][0] if self.holds else None

    @property
    def served_ns(self) -> int:
        """Time it owned a slot: the sum of its holds."""
        return sum(released - acquired for acquired, released in self.holds)

    @property
    def queued_ns(self) -> int:
        """Time it was in the system and in no slot: finished - arrival - served."""
        return self.finished_ns - self.arrival_ns - self.served_ns

    @property
    def prefill_ns(self) -> int | None:
        """Held time until the first token; None without a token."""
        first = self.first_token_ns
        if first is None:
            return None
        return sum(min(end, first) - start for start, end in self.holds if start < first)


class Request:
    """One request inside the engine; owned and changed by the scheduler alone.

    Attributes:
        token_ids: Prompt and output so far, the sequence the model sees.
        num_computed: How many of them have their keys and values in the cache.
        prefill_end: How many there were when it got its slot: its prefill ends with them.
        cached_tokens: Tokens of the prompt that it found in the prefix cache when it first got a
            slot; None before that. A preemption does not change it: what is found or computed
            again afterwards is no part of the count.
        block_keys: What the prefix cache knows its first whole blocks by, as far as was asked.
        max_length: Length of ``token_ids`` at which the request ends, whatever it asked for.
        stop_ids: Token ids that end it: the model's EOS set (unless ignored) and its own.
        seed: What its draws start from.
        adjustment: What changes its logits; None if nothing does.
        text: Its output as text while it grows; None if nobody wants it before the end.
        logprobs: What the model thought at each token of the output, if that was asked for.
    """

    def __init__(
        self,
        *,
        request_id: str,
        prompt: list[int],
        params: SamplingParams,
        table: BlockTable,
        order: tuple[int, int],
        submitted_ns: int,
        max_length: int,
        stop_ids: frozenset[int],
        seed: int,
        text: OutputText | None = None,
    ) -> None:
        self.request_id = request_id
        self.params = params
        self.table = table
        self.order = order
        self.submitted_ns = submitted_ns
        self.max_length = max_length
        self.stop_ids = stop_ids
        self.seed = seed
        self.adjustment = LogitAdjustment(params, prompt) if params.adjusts else None
        self.text = text
        self.logprobs: list[TokenLogprobs] = []

        self.status = RequestStatus.WAITING
        self.num_prompt = len(prompt)
        self.token_ids = list(prompt)
        self.num_computed = 0
        self.prefill_end = 0
        self.cached_tokens: int | None = None
        self.block_keys: list[bytes] = []
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None

        self._acquired_ns: int | None = None
        self._holds: list[tuple[int, int]] = []
        self._token_ns: list[int] = []
        self._finished_ns: int | None = None

    @property
    def arrival_ns(self) -> int:
        """When the request was due. ``order`` is (arrival, sequence number): first come first."""
        return self.order[0]

    @property
    def ready_ns(self) -> int:
        """The earliest that it can own a slot: it is due, and it has been handed over."""
        return max(self.arrival_ns, self.submitted_ns)

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt."""
        return self.token_ids[: self.num_prompt]

    @property
    def output_token_ids(self) -> list[int]:
        """The tokens generated so far."""
        return self.token_ids[self.num_prompt :]

    @property
    def is_prefilling(self) -> bool:
        """Whether what it had when it got its slot is not yet computed."""
        return self.num_computed < self.prefill_end

    def acquire_slot(self, now_ns: int, cached: Sequence[int] = ()) -> None:
        """Open a hold.

        Args:
            now_ns: When.
            cached: Blocks that hold its first tokens already.
        """
        self.status = RequestStatus.RUNNING
        self._acquired_ns = now_ns
        self.prefill_end = len(self.token_ids)
        self.num_computed = self.table.adopt(cached)
        if self.cached_tokens is None:
            self.cached_tokens = self.num_computed

    def release_slot(self, now_ns: int) -> None:
        """Close the open hold, and give the blocks back; what they held must be computed anew."""
        if self._acquired_ns is not None:
            self._holds.append((self._acquired_ns, now_ns))
            self._acquired_ns = None
        self.table.release()
        self.num_computed = 0

    def append(self, token: int, now_ns: int, logprobs: TokenLogprobs | None = None) -> None:
        """Take the token that the model produced, and what the model thought there."""
        self.token_ids.append(token)
        self._token_ns.append(now_ns)
        if self.adjustment is not None:
            self.adjustment.count(token)
        if self.text is not None:
            self.text.push(token)
        if logprobs is not None:
            self.logprobs.append(logprobs)

    def reason_to_stop(self) -> FinishReason | None:
        """Why the token just appended is the last one, or None when it is not."""
        if self.token_ids[-1] in self.stop_ids or (self.text is not None and self.text.stopped):
            return FinishReason.STOP
        if len(self.token_ids) >= self.max_length:
            return FinishReason.LENGTH
        return None

    def finish(self, reason: FinishReason, now_ns: int, error: str | None = None) -> None:
        """End the request, from whatever state it is in."""
        self.release_slot(now_ns)
        if self.text is not None:
            self.text.flush()
        self.finish_reason = reason
        self.error = error
        self._finished_ns = now_ns
        self.status = RequestStatus.FINISHED

    def timings(self) -> RequestTimings:
        """The stamps of a finished request."""
        if self._finished_ns is None:
            raise ValueError(f"request {self.request_id!r} has not finished")
        return RequestTimings(
            arrival_ns=self.arrival_ns,
            submitted_ns=self.submitted_ns,
            holds=tuple(self._holds),
            first_token_ns=self._token_ns[0] if self._token_ns else None,
            token_ns=tuple(self._token_ns),
            finished_ns=self._finished_ns,
        )
