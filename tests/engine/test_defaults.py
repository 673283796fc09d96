"""torch's default dtype and device are the caller's, and change nothing inside the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from nanoserve import LLM, SamplingParams
from nanoserve.linear import choose_kernel
from nanoserve.models.model_config import RopeConfig
from nanoserve.models.rope import inverse_frequencies


@contextmanager
def other_defaults() -> Iterator[None]:
    """Half the bytes of a float32 for every float, and no memory at all for any tensor."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def outputs() -> list[list[int]]:
    drawn = SamplingParams(
        max_tokens=20,
        temperature=1.1,
        top_k=90,
        top_p=0.93,
        min_p=0.01,
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        logit_bias={7: 0.5},
        logprobs=2,
        seed=3,
        ignore_eos=True,
    )
    greedy = SamplingParams(max_tokens=20, ignore_eos=True)
    llm = LLM("synthetic:tiny-llama", max_model_len=64, max_slots=3)
    prompts = [[5, 6, 7], [9] * 30, [200, 17], [44] * 11]
    return [o.token_ids for o in llm.generate(prompts, [greedy, drawn, drawn, greedy])]


@pytest.mark.usefixtures("every_path")
def test_tokens_are_the_same_under_any_defaults():
    wanted = outputs()
    with other_defaults():
        assert outputs() == wanted


def test_the_weights_are_the_same_under_any_defaults():
    wanted = LLM("synthetic:tiny-llama").engine.weights_digest
    with other_defaults():
        assert LLM("synthetic:tiny-llama").engine.weights_digest == wanted


@pytest.mark.parametrize("divisors", [None, (1.0, 1.1, 3.3, 8.0)])
def test_rotary_frequencies_are_the_same_under_any_defaults(divisors: tuple[float, ...] | None):
    rope = RopeConfig(theta=5e5, frequency_divisors=divisors)
    wanted = inverse_frequencies(rope, 8)
    with other_defaults():
        got = inverse_frequencies(rope, 8)
    assert (got.device, got.dtype) == (torch.device("cpu"), torch.float32)
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("slots", [1, 8])
def test_the_kernel_is_the_same_under_any_defaults(slots: int):
    wanted = choose_kernel(torch.device("cpu"), torch.float32, max_slots=slots).path
    with other_defaults():
        assert choose_kernel(torch.device("cpu"), torch.float32, max_slots=slots).path == wanted
