"""What of a streamed response counts as a token, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nanoserve_bench.systems.completion import ResponseRefused, Stream


def choice(**members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **members}]}


def read(*events: Any, prompt: tuple[int, ...] = (5, 6), max_tokens: int = 3) -> Stream:
    stream = Stream(prompt=prompt, max_tokens=max_tokens)
    for number, event in enumerate(events):
        stream.take(event if isinstance(event, str) else json.dumps(event), 10 * (number + 1))
    stream.close()
    return stream


END = choice(text="", token_ids=[], finish_reason="length")
ONE = choice(text="a", token_ids=[7])


def test_tokens_are_ids_and_carry_the_stamp_of_their_event() -> None:
    stream = read(ONE, choice(text="bc", token_ids=[8, 9]), END, "[DONE]")
    assert stream.token_ids == [7, 8, 9]
    assert stream.token_ns == [10, 20, 20]
    assert stream.finish_reason == "length"


@pytest.mark.parametrize(
    "members",
    [
        {"token_ids": [7, 8]},
        {"logprobs": {"tokens": ["token_id:7", "token_id:8"]}},
        {"logprobs": {"content": [{"id": 7, "token": "a"}, {"id": 8, "token": "b"}]}},
    ],
)
def test_ids_come_in_the_forms_of_several_servers(members: dict[str, Any]) -> None:
    assert read(choice(text="ab", finish_reason="length", **members), "[DONE]").token_ids == [7, 8]


def test_chunks_and_text_are_no_tokens() -> None:
    """Empty chunks, text that was held back, and events without a choice add nothing."""
    stream = read({}, {"choices": []}, choice(text=""), ONE, choice(text="b", token_ids=[]), END,
                  "[DONE]")  # fmt: skip
    assert stream.token_ids == [7]


def test_what_the_usage_says_is_held_against_what_came() -> None:
    usage = {"completion_tokens": 1, "prompt_tokens": 2, "prompt_tokens_details": {}}
    assert read(ONE, END, {"choices": [], "usage": usage}, "[DONE]").cached_tokens is None
    details = {"cached_tokens": 1}
    told = read(ONE, END, {"usage": {**usage, "prompt_tokens_details": details}}, "[DONE]")
    assert told.cached_tokens == 1
    assert read(ONE, END, {"usage": None}, "[DONE]").token_ids == [7]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((ONE, "nonsense"), "not JSON: nonsense"),
        ((ONE, "[1"), "not JSON"),
        ((ONE, "[1]"), "not an object"),
        ((ONE, {"choices": {}}), "no list"),
        ((ONE, {"error": {"message": "out of memory"}}), "failed in mid-stream.*out of memory"),
        (({"choices": [{"index": 1, "text": "a"}]},), "not asked"),
        (({"choices": ["a"]},), "not asked"),
        ((ONE, END), "ended before it was done, after 1 tokens"),
        ((ONE, "[DONE]"), "ended before it was done"),
        ((), "ended before it was done, after 0 tokens"),
        ((choice(text="a"), END, "[DONE]"), "text without token ids.*cannot be verified"),
        ((choice(text="a", logprobs={"tokens": ["a"]}),), "text without token ids"),
        ((choice(text="a", logprobs=None, token_ids=None),), "text without token ids"),
        ((END, "[DONE]"), "gave no token ids"),
        ((ONE, END, ONE), "after the server had said that it was finished"),
        ((choice(token_ids=[1, 2, 3, 4]),), "4 tokens came, and 3 were asked for"),
        ((choice(token_ids=7),), "no list of whole numbers"),
        ((choice(token_ids=[True]),), "no list of whole numbers"),
        ((choice(token_ids=[-1]),), "no list of whole numbers"),
        ((choice(token_ids=["7"]),), "no list of whole numbers"),
        ((choice(logprobs={"tokens": ["token_id:x"]}),), "no list of whole numbers"),
        ((choice(token_ids=[7], prompt_token_ids=[1, 5, 6]),), "another prompt"),
        ((ONE, END, {"usage": {"completion_tokens": 3}}, "[DONE]"), "counts 3 completion .* of 1"),
        ((ONE, END, {"usage": {"prompt_tokens": 3}}, "[DONE]"), "counts 3 prompt .* sent 2"),
        ((ONE, ONE, END, {"usage": {"completion_tokens": 1}}, "[DONE]"), "counts 1 .* ids of 2"),
        ((ONE, choice(text="b"), END, "[DONE]"), "text without token ids"),
        ((ONE, {"usage": {"completion_tokens": -1}}), "completion_tokens -1"),
        ((ONE, {"usage": {"completion_tokens": "1"}}), "completion_tokens 1"),
    ],
)
def test_what_cannot_be_verified_is_refused(events: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(ResponseRefused, match=reason):
        read(*events)


def test_what_is_said_of_a_response_is_short() -> None:
    with pytest.raises(ResponseRefused) as error:
        read("x" * 10_000)
    assert len(str(error.value)) < 300
