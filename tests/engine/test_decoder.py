"""The forward pass against transformers: every logit of every token, to 1e-4 in float32."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from nanoserve import SamplingParams

pytestmark = pytest.mark.usefixtures("every_path")

TOLERANCE = 1e-4

VARIANTS: dict[str, dict[str, Any]] = {
    "grouped queries": {},
    "one kv head": {"num_key_value_heads": 1},
    "as many kv heads as heads": {"num_key_value_heads": 6},
    "tied head": {"tie_word_embeddings": True},
    "heads wider than hidden": {"head_dim": 32},
    "odd sizes": {"vocab_size": 101, "intermediate_size": 77},
    "llama3 rope": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "other rope base and eps": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "rms_norm_eps": 1e-2,
    },
}


def prompts_of(lengths: list[int], vocab: int = 97, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(vocab) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_agree_with_transformers(variant: str, make_reference: Any, run_requests: Any):
    reference = make_reference(**VARIANTS[variant])
    run = run_requests(
        reference.folder, prompts_of([1, 7, 16, 33]), SamplingParams(max_tokens=9), max_slots=4
    )
    assert run.worst_logit(reference) < TOLERANCE


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 7])
def test_logits_agree_at_every_batch_size(slots: int, reference: Any, run_requests: Any):
    """Prompts join while others decode, at odd batch sizes, in blocks of an odd size."""
    run = run_requests(
        reference.folder,
        prompts_of([3, 17, 5, 5, 5, 40, 1, 2, 11]),
        [SamplingParams(max_tokens=3 + index) for index in range(9)],
        max_slots=slots,
        block_size=3,
    )
    assert max(step.holders for step in run.steps) == slots
    assert run.worst_logit(reference) < TOLERANCE


@pytest.mark.parametrize("variant", ["grouped queries", "llama3 rope"])
def test_logits_agree_at_far_positions(variant: str, make_reference: Any, run_requests: Any):
    reference = make_reference(**VARIANTS[variant])
    run = run_requests(
        reference.folder, prompts_of([240, 250]), SamplingParams(max_tokens=16), max_slots=2
    )
    longest = [len(o.prompt_token_ids) + len(o.token_ids) for o in run.outputs.values()]
    assert longest == [256, 256]
    assert run.worst_logit(reference) < TOLERANCE


def test_logits_agree_after_preemption(reference: Any, run_requests: Any):
    """A pool too small for all: whoever was preempted is computed anew, to the same logits."""
    run = run_requests(
        reference.folder,
        prompts_of([8, 9, 10, 7, 8]),
        SamplingParams(max_tokens=20),
        max_slots=5,
        block_size=4,
        kv_pool_tokens=48,
    )
    assert any(len(output.timings.holds) > 1 for output in run.outputs.values())
    assert all(len(output.token_ids) == 20 for output in run.outputs.values())
    assert run.worst_logit(reference) < TOLERANCE


def test_greedy_tokens_are_those_of_generate(reference: Any, run_requests: Any):
    prompts = prompts_of([5, 12, 3], seed=3)
    run = run_requests(reference.folder, prompts, SamplingParams(max_tokens=24), max_slots=3)
    for index, prompt in enumerate(prompts):
        assert run.outputs[str(index)].token_ids == reference.greedy(prompt, 24)


def test_a_request_does_not_see_its_neighbours(reference: Any, run_requests: Any):
    """The same prompt alone, and among others of other lengths, that come and go."""
    prompt = prompts_of([13], seed=1)[0]
    alone = run_requests(reference.folder, [prompt], SamplingParams(max_tokens=12))
    company = run_requests(
        reference.folder,
        [prompt, *prompts_of([70, 2, 31, 13, 13], seed=2)],
        [SamplingParams(max_tokens=n) for n in (12, 2, 30, 5, 1, 12)],
        max_slots=4,
    )
    assert company.outputs["0"].token_ids == alone.outputs["0"].token_ids
    for position in range(13, 25):
        difference = company.runner.seen["0", position] - alone.runner.seen["0", position]
        assert difference.abs().max() < 1e-5


def test_bfloat16_runs_close_to_float32(reference: Any, run_requests: Any):
    """bf16 rounds every product to 8 bits; what is asked here is that nothing is wrong."""
    prompts = prompts_of([9, 4])
    run = run_requests(
        reference.folder, prompts, SamplingParams(max_tokens=1), dtype="bfloat16", max_slots=2
    )
    for index, prompt in enumerate(prompts):
        logits = run.runner.seen[str(index), len(prompt)]
        assert logits.dtype == torch.bfloat16
        wanted = reference.logits(prompt)[-1]
        assert torch.nn.functional.cosine_similarity(logits.float(), wanted, dim=0) > 0.995
