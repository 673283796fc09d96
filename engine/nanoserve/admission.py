"""What a request must be to be let in.

A bad request is refused with a sentence that says what is wrong and what to do, and the others
never notice. Whatever passes here can be served to its end: its ids are in the vocabulary, and it
fits into the model's length and, alone, into the KV pool.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from nanoserve._checks import is_integer, is_sequence, shown
from nanoserve.errors import RequestRefused
from nanoserve.output_text import OutputText
from nanoserve.sampling_params import SamplingParams
from nanoserve.stop_strings import StopStrings
from nanoserve.tokenizer import Tokenizer

Prompt = str | Sequence[int]

_CHARACTERS = 8  # of a text for each token allowed, before its beginning is read by itself


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the engine can serve; lengths in tokens."""

    vocab_size: int
    max_model_len: int
    pool_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """A request that can be served.

    Attributes:
        prompt: Its token ids.
        max_length: Tokens, prompt and output together, at which it ends.
        text: What turns its output into text as it grows; None if that is not asked for.
    """

    prompt: list[int]
    max_length: int
    text: OutputText | None


def admit(
    prompt: Prompt, params: SamplingParams, *, limits: Limits, tokenizer: Tokenizer | None
) -> Admitted:
    """Check a request.

    Raises:
        RequestRefused: Saying what is wrong with it.
    """
    if not isinstance(params, SamplingParams):
        raise RequestRefused(f"params must be SamplingParams, not {type(params).__name__}")
    if problems := params.problems():
        raise RequestRefused("; ".join(problems))
    tokens = _read(prompt, limits, tokenizer)
    _check_ids(tokens, limits.vocab_size)
    _check_bias(params, limits.vocab_size)
    max_length = min(len(tokens) + params.max_tokens, limits.max_model_len)
    stored = max_length - 1  # the last token is never looked back at
    if stored > limits.pool_tokens:
        raise RequestRefused(
            f"the request can never fit: {len(tokens)} prompt tokens and up to "
            f"{max_length - len(tokens)} new ones need {stored} tokens of the KV pool, which holds "
            f"{limits.pool_tokens}: shorten it or raise kv_pool_tokens"
        )
    text = _output_text(params, tokenizer) if params.needs_text else None
    return Admitted(prompt=tokens, max_length=max_length, text=text)


def _read(prompt: Prompt, limits: Limits, tokenizer: Tokenizer | None) -> list[int]:
    if isinstance(prompt, str):
        if tokenizer is None:
            raise RequestRefused("the prompt is text, and this model has no tokenizer: give ids")
        _check_text(prompt)
        _check_beginning(prompt, limits, tokenizer)
        tokens = _encode(prompt, tokenizer)
        _check_length(len(tokens), limits)
        return tokens
    if not is_sequence(prompt):
        raise RequestRefused(
            f"a prompt is a string or a list of token ids, not {type(prompt).__name__}"
        )
    # Before it is copied: a range costs nothing, and its list may be larger than the memory.
    _check_length(_length(prompt), limits)
    return list(prompt)


def _check_beginning(text: str, limits: Limits, tokenizer: Tokenizer) -> None:
    """Refuse a text that is far too long without reading all of it.

    Its beginnings are read, each twice as long as the one before, until one alone has twice the
    tokens that are allowed. A cut changes the tokens next to it and nothing before, so what
    follows cannot bring the number down again.
    """
    length = _CHARACTERS * limits.max_model_len
    while length < len(text):
        tokens = len(_encode(text[:length], tokenizer))
        if tokens >= 2 * limits.max_model_len:
            raise RequestRefused(
                f"the prompt is a text of {len(text)} characters, of which the first {length} are "
                f"{tokens} tokens already: prompt and output together are limited to "
                f"max_model_len={limits.max_model_len}"
            )
        length *= 2


def _output_text(params: SamplingParams, tokenizer: Tokenizer | None) -> OutputText:
    if tokenizer is None:
        asked = "stop strings are" if params.stop_strings else "detokenize is"
        raise RequestRefused(
            f"{asked} about text, and this model has no tokenizer: use stop_token_ids and token ids"
        )
    try:
        detokenizer = tokenizer.detokenizer()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise RequestRefused(f"the tokenizer cannot spell the output: {reason}") from error
    stops = StopStrings(params.stop_strings, include=params.include_stop_str_in_output)
    return OutputText(detokenizer, stops)


def _check_bias(params: SamplingParams, vocab_size: int) -> None:
    for token in params.logit_bias or ():
        if not 0 <= token < vocab_size:
            raise RequestRefused(
                f"logit_bias names token {shown(token)}, outside the vocabulary of {vocab_size} ids"
            )


def _encode(text: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a text; whatever the model's own tokenizer raises is a fault of this request."""
    try:
        return tokenizer.encode(text)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise RequestRefused(f"the tokenizer cannot read the prompt: {reason}") from error


def _length(prompt: Sequence[int]) -> int:
    try:
        return len(prompt)
    except OverflowError:  # a range may be longer than a length can say
        return sys.maxsize


def _check_length(tokens: int, limits: Limits) -> None:
    if tokens >= limits.max_model_len:
        raise RequestRefused(
            f"the prompt has {tokens} tokens and leaves no room for an output: prompt and output "
            f"together are limited to max_model_len={limits.max_model_len}"
        )


def _check_text(text: str) -> None:
    """Half a character (a lone surrogate) is a str in Python, and text nowhere else."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestRefused(f"the prompt is not valid Unicode: {error}") from None


def _check_ids(tokens: list[int], vocab_size: int) -> None:
    if not tokens:
        raise RequestRefused("the prompt is empty: give at least one token")
    for position, token in enumerate(tokens):
        if not is_integer(token):
            kind = type(token).__name__
            raise RequestRefused(
                f"prompt token {position} is {shown(token)}, a {kind}, not an integer"
            )
        if not 0 <= token < vocab_size:
            raise RequestRefused(
                f"prompt token {position} is {shown(token)}, outside the vocabulary of "
                f"{vocab_size} ids"
            )
