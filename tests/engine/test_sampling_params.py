"""Settings of a request: every fault is named, none is raised."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nanoserve import SamplingParams


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"temperature": 0},
        {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "seed": 2**64 - 1},
        {"top_p": 1, "ignore_eos": True, "stop_token_ids": (3, 4)},
        {"stop_token_ids": [3]},
        {"max_tokens": 1},
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
    ],
)
def test_a_bad_value_is_one_problem_that_names_key_and_value(key: str, value: object):
    (problem,) = SamplingParams(**{key: value}).problems()  # type: ignore[arg-type]
    assert key in problem
    assert repr(value) in problem


def test_all_problems_are_told_at_once():
    params = SamplingParams(max_tokens=0, temperature=-1, top_k=-1, top_p=0, seed=-1)
    assert len(params.problems()) == 5


def test_settings_are_frozen_and_unknown_ones_refused():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().max_tokens = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        SamplingParams(5)  # type: ignore[misc]
