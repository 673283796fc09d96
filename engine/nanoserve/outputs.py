"""What comes out of the engine: one record per finished request, one per step.

Exactness law. A step takes one stamp when its tokens exist on the host. That stamp is the time of
all its tokens, the release of every slot that ends in it, and the end of the step. While slots
are held, the next step starts at that very stamp, so that the steps tile the time and

    sum over steps of holders * (end_ns - start_ns)  ==  sum over requests of served_ns

holds in integers, not approximately.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nanoserve.request import FinishReason, RequestTimings


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestOutput:
    """The end of one request.

    Attributes:
        request_id: The caller's name for it.
        prompt_token_ids: The prompt as the model saw it; empty if it was refused unread.
        token_ids: What was generated; a stop token is the last of it.
        finish_reason: ``stop``, ``length``, ``abort`` or ``error``.
        error: What was wrong, and what to do; None unless the reason is ``error``.
        timings: Its stamps.
    """

    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    finish_reason: FinishReason
    error: str | None
    timings: RequestTimings
    decode: Callable[[Sequence[int]], str] | None = field(repr=False, compare=False)

    @property
    def text(self) -> str | None:
        """The output as text, decoded when it is read; None if the model has no tokenizer."""
        return None if self.decode is None else self.decode(self.token_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenOutput:
    """One token of one request, produced in this step."""

    request_id: str
    token_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutput:
    """One step of the engine: a row of the step log, and what came of it.

    A step without rows moves a boundary: it closes the time up to now while slots are held, so
    that a request which arrived since the last step can be admitted by the next one; or it only
    delivers the outputs of refused and aborted requests.

    Attributes:
        start_ns: When it began; the end of the step before while slots are held.
        end_ns: When its tokens existed on the host.
        prefill_rows: Sequences whose prompt it computed.
        decode_rows: Sequences it advanced by one token.
        holders: Requests that owned a slot from its start to its end.
        waiting: Requests that waited, after its admissions.
        tokens: The tokens of this step.
        outputs: The requests that ended since the step before.
    """

    start_ns: int
    end_ns: int
    prefill_rows: int
    decode_rows: int
    holders: int
    waiting: int
    tokens: tuple[TokenOutput, ...]
    outputs: tuple[RequestOutput, ...]
