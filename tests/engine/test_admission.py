"""The door of the engine: whatever comes, it is let in, or refused with a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nanoserve import SamplingParams
from nanoserve.admission import Limits, admit
from nanoserve.errors import RequestRefused

LIMITS = Limits(vocab_size=256, max_model_len=64, pool_tokens=64)
HUGE = 10**5000  # an integer that has no repr


class Tokenizer:
    """Reads a text as its bytes, and cannot read some."""

    def encode(self, text: str) -> list[int]:
        if "?" in text:
            raise KeyError("?")
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token_ids).decode()


def refusal(prompt: Any, params: SamplingParams, tokenizer: Any = None) -> str:
    with pytest.raises(RequestRefused) as caught:
        admit(prompt, params, limits=LIMITS, tokenizer=tokenizer)
    return str(caught.value)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (range(10**13), "the prompt has 10000000000000 tokens and leaves no room for an output"),
        (range(10**20), "tokens and leaves no room for an output"),
        ([HUGE], "prompt token 0 is <int without a repr>, outside the vocabulary of 256 ids"),
        ([5, [HUGE]], "prompt token 1 is <list without a repr>, a list, not an integer"),
        ([5, "9" * 10**6], "prompt token 1 is '" + "9" * 99 + "..." + "9" * 19 + "', a str"),
    ],
    ids=["beyond the memory", "beyond a length", "a huge id", "a list of one", "a long text"],
)
def test_a_prompt_beyond_all_bounds_is_refused_in_a_sentence(prompt: Any, words: str):
    error = refusal(prompt, SamplingParams())
    assert words in error
    assert len(error) < 300


def test_settings_beyond_all_bounds_are_refused_in_a_sentence():
    params = SamplingParams(
        max_tokens=-HUGE,
        temperature=HUGE,
        top_k=-HUGE,
        top_p=HUGE,
        seed=HUGE,
        ignore_eos=HUGE,  # type: ignore[arg-type]
        stop_token_ids=("x", HUGE),  # type: ignore[arg-type]
    )
    faults = refusal([5], params).split("; ")
    assert [fault.split()[0] for fault in faults] == [
        *("max_tokens", "temperature", "top_k", "top_p", "seed", "ignore_eos", "stop_token_ids")
    ]
    assert all(fault.endswith(" without a repr>") for fault in faults)


def test_more_than_there_is_may_be_asked_for():
    params = SamplingParams(max_tokens=HUGE, top_k=HUGE, stop_token_ids=(HUGE,))
    assert admit(range(60), params, limits=LIMITS, tokenizer=None).max_length == 64


def test_a_text_is_read_by_the_tokenizer_and_then_bound_like_ids():
    admitted = admit("abc", SamplingParams(max_tokens=2), limits=LIMITS, tokenizer=Tokenizer())
    assert (admitted.prompt, admitted.max_length) == ([97, 98, 99], 5)
    assert "64 tokens and leaves no room" in refusal("a" * 64, SamplingParams(), Tokenizer())


class Reader(Tokenizer):
    """Reads a text as its bytes, or as pairs of them, and remembers how long each text was."""

    def __init__(self, characters: int):
        self.characters = characters
        self.lengths: list[int] = []

    def encode(self, text: str) -> list[int]:
        self.lengths.append(len(text))
        return [0] * -(-len(text) // self.characters)


@pytest.mark.parametrize(("characters", "most"), [(1, 512), (8, 1024), (100, 2**14)])
def test_an_absurdly_long_text_is_refused_without_reading_all_of_it(characters: int, most: int):
    reader = Reader(characters)
    error = refusal("a" * 10**7, SamplingParams(), reader)
    assert max(reader.lengths) <= most
    assert "the prompt is a text of 10000000 characters, of which the first " in error
    assert "limited to max_model_len=64" in error
    assert len(error) < 200


def test_a_long_text_of_few_tokens_is_read_to_its_end():
    """63 tokens of a hundred characters each: whitespace, or a rule of dashes."""
    reader = Reader(100)
    admitted = admit("-" * 6300, SamplingParams(), limits=LIMITS, tokenizer=reader)  # type: ignore[arg-type]
    assert len(admitted.prompt) == 63
    assert "has 64 tokens and leaves no room" in refusal("-" * 6301, SamplingParams(), reader)


def test_what_the_tokenizer_raises_is_the_fault_of_its_request():
    error = refusal("what?", SamplingParams(), Tokenizer())
    assert error == "the tokenizer cannot read the prompt: KeyError: '?'"
