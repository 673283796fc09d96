"""What comes out of the engine: one record per finished request, one per step.

Exactness law. A step takes one stamp when its tokens exist on the host. That stamp is the time of
all its tokens, the release of every slot that ends in it, and the end of the step. While slots
are held, the next step starts at that very stamp, so that the steps tile the time and

    sum over steps of holders * (end_ns - start_ns)  ==  sum over requests of served_ns

holds in integers, not approximately.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from nanoserve.request import FinishReason, RequestTimings
from nanoserve.token_logprobs import TokenLogprobs


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestOutput:
    """The end of one request.

    Attributes:
        request_id: The caller's name for it.
        prompt_token_ids: The prompt as the model saw it; empty if it was refused unread.
        token_ids: What was generated; a stop token is the last of it, and so is the token in which
            a stop string ended.
        finish_reason: ``stop``, ``length``, ``abort`` or ``error``.
        error: What was wrong, and what to do; None unless the reason is ``error``.
        timings: Its stamps.
        cached_tokens: Tokens of the prompt that it found in the prefix cache when it first got a
            slot, a multiple of ``block_size``; 0 where the cache is off, None if it never got one.
        logprobs: What the model thought at each of the tokens; empty unless that was asked for.
    """

    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    finish_reason: FinishReason
    error: str | None
    timings: RequestTimings
    cached_tokens: int | None
    logprobs: tuple[TokenLogprobs, ...]
    decode: Callable[[], str] | None = field(repr=False, compare=False)

    @property
    def text(self) -> str | None:
        """The output as text, decoded when it is read; None if the model has no tokenizer.

        It ends before its stop string, or with it, as was asked for; ``token_ids`` stay whole.
        """
        return None if self.decode is None else self.decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenOutput:
    """One token of one request, produced in this step.

    Attributes:
        request_id: Whose.
        token_id: The token.
        text: What the output's text has grown by; nothing while it ends inside a character, or with
            what may be the beginning of a stop string. None unless ``SamplingParams`` asks for
            text. All of a request's, joined, are its output's text, unless it was aborted or
            failed with text held back.
        logprobs: What the model thought; None unless that was asked for.
    """

    request_id: str
    token_id: int
    text: str | None
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOutput:
    """A piece of one output that is read while it grows.

    Attributes:
        text: What the text has grown by, in whole characters; None if the model has no tokenizer.
        token_ids: The token that it comes from; none if the request ended without one.
        logprobs: What the model thought; None unless that was asked for.
        output: All of it, on the last piece; None before.
    """

    text: str | None
    token_ids: tuple[int, ...]
    logprobs: TokenLogprobs | None
    output: RequestOutput | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutput:
    """One step of the engine: a row of the step log, and what came of it.

    A step without rows moves a boundary: it closes the time up to now while slots are held, so
    that a request which arrived since the last step can be admitted by the next one; or it only
    delivers the outputs of refused and aborted requests.

    Attributes:
        start_ns: When it began; the end of the step before while slots are held.
        end_ns: When its tokens existed on the host.
        prefill_rows: Sequences whose prompt it computed, or a piece of it; those that it did not
            come to the end of have no token yet.
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
