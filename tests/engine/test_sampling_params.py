"""Settings of a request: every fault is named, none is raised."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nanoserve import SamplingParams
from nanoserve._checks import shown
from nanoserve.errors import ConfigError


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"temperature": 0},
        {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "seed": 2**64 - 1},
        {"top_p": 1, "ignore_eos": True, "stop_token_ids": (3, 4)},
        {"stop_token_ids": [3]},
        {"max_tokens": 1},
        {"min_p": 0, "repetition_penalty": 1.1, "presence_penalty": -2, "frequency_penalty": 2},
        {"min_p": 1.0, "logit_bias": {0: -100, 5: 2.5}, "logprobs": 0},
        {"logit_bias": {}, "logprobs": 20},
        {"stop": "\n", "include_stop_str_in_output": True, "detokenize": True},
        {"stop": ["END", "\n\n"]},
        {"stop": ("x" * 1000,) * 64},
    ],
)
def test_good_settings_have_no_problems(good: dict[str, Any]):
    assert SamplingParams(**good).problems() == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.0),
        ("max_tokens", True),
        ("max_tokens", None),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_p", float("nan")),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.0),
        ("ignore_eos", 1),
        ("stop_token_ids", 5),
        ("stop_token_ids", ("5",)),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", float("nan")),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", float("inf")),
        ("presence_penalty", 2.1),
        ("presence_penalty", "much"),
        ("frequency_penalty", -3),
        ("frequency_penalty", None),
        ("logit_bias", [5]),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logprobs", True),
        ("stop", 5),
        ("stop", ""),
        ("stop", None),
        ("stop", ["a", ""]),
        ("stop", [b"a"]),
        ("stop", {"a"}),
        ("stop", ["a"] * 65),
        ("include_stop_str_in_output", "no"),
        ("detokenize", 1),
    ],
)
def test_a_bad_value_is_one_problem_that_names_key_and_value(key: str, value: object):
    (problem,) = SamplingParams(**{key: value}).problems()  # type: ignore[arg-type]
    assert key in problem
    assert shown(value) in problem


@pytest.mark.parametrize("bias", [{"5": 1.0}, {5: "1"}, {5: float("-inf")}, {True: 1.0}])
def test_a_bad_bias_is_one_problem_that_shows_it(bias: dict[Any, Any]):
    (problem,) = SamplingParams(logit_bias=bias).problems()
    wanted = f"logit_bias must map token ids, as integers, to finite numbers, not {bias!r}"
    assert problem == wanted


def test_a_stop_string_beyond_all_bounds_is_a_short_problem():
    (problem,) = SamplingParams(stop=["x" * 10**6]).problems()
    assert "stop must be at most 64 strings of at most 1000 characters each" in problem
    assert len(problem) < 300


def test_all_problems_are_told_at_once():
    params = SamplingParams(
        max_tokens=0,
        temperature=-1,
        top_k=-1,
        top_p=0,
        seed=-1,
        min_p=2,
        repetition_penalty=0,
        presence_penalty=9,
        frequency_penalty=9,
        logit_bias={"a": 1},  # type: ignore[dict-item]
        logprobs=-1,
        stop="",
    )
    assert len(params.problems()) == 12


def test_settings_are_frozen_and_unknown_ones_refused():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().max_tokens = 3  # type: ignore[misc]
    with pytest.raises(
        ConfigError,
        match=r"'temprature'; did you mean 'temperature'.*'top_q'; did you mean 'top_p'",
    ):
        SamplingParams(temprature=1.0, top_q=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        SamplingParams(5)  # type: ignore[misc]


def test_settings_without_a_bias_can_be_keys_and_copied():
    params = SamplingParams(top_k=5, stop=("a",))
    assert hash(params) == hash(SamplingParams(top_k=5, stop=("a",)))
    assert dataclasses.replace(params, top_k=6).stop_strings == ("a",)


@pytest.mark.parametrize(
    ("params", "adjusts"),
    [
        ({}, False),
        ({"temperature": 1.0, "top_k": 3, "min_p": 0.2, "logprobs": 3, "logit_bias": {}}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": 0.1}, True),
        ({"frequency_penalty": -0.1}, True),
        ({"logit_bias": {3: 0.0}}, True),
    ],
)
def test_only_penalties_and_bias_take_a_row_off_the_fast_path(
    params: dict[str, Any], adjusts: bool
):
    assert SamplingParams(**params).adjusts is adjusts
