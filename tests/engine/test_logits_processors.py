"""Every processor against transformers' own, on random logits, and beside any neighbours."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from transformers import generation

from nanoserve import SamplingParams
from nanoserve.logit_adjustment import LogitAdjustment
from nanoserve.logits_processors import adjust, warp

VOCAB = 500


def random_logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def adjusted(logits: torch.Tensor, prompt: list[int], output: list[int], **params: Any) -> Any:
    adjustment = LogitAdjustment(SamplingParams(**params), prompt)
    for token in output:
        adjustment.count(token)
    logits = logits.clone()
    adjust(logits, [adjustment])
    return logits


def warped(logits: torch.Tensor, **params: Any) -> torch.Tensor:
    wanted = SamplingParams(**{"temperature": 1.0, **params})
    return warp(logits, [wanted] * len(logits)).softmax(-1)


@pytest.mark.parametrize("penalty", [1.3, 0.7, 5.0])
def test_repetition_penalty_is_that_of_transformers_over_prompt_and_output(penalty: float):
    prompt, output = [3, 3, 9, 120], [7, 9, 7, 499]
    logits = random_logits(1)
    theirs = generation.RepetitionPenaltyLogitsProcessor(penalty=penalty)
    wanted = theirs(torch.tensor([prompt + output]), logits.clone())
    assert torch.equal(adjusted(logits, prompt, output, repetition_penalty=penalty), wanted)


@pytest.mark.parametrize(("presence", "frequency"), [(0.5, 0.0), (0.0, 0.25), (-1.5, 2.0)])
def test_presence_and_frequency_count_the_output_alone(presence: float, frequency: float):
    """OpenAI's formula: mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence."""
    logits = random_logits(1)
    wanted = logits.clone()
    for token, count in ((7, 2), (9, 1)):
        wanted[0, token] -= count * frequency + presence
    penalties = {"presence_penalty": presence, "frequency_penalty": frequency}
    got = adjusted(logits, [3, 3, 9], [7, 9, 7], **penalties)
    torch.testing.assert_close(got, wanted)
    untouched = torch.ones(VOCAB, dtype=torch.bool)
    untouched[[7, 9]] = False
    assert torch.equal(got[:, untouched], logits[:, untouched])


def test_a_bias_is_added_after_the_penalties():
    logits = random_logits(1)
    params = {"repetition_penalty": 2.0, "presence_penalty": 1.0}
    wanted = adjusted(logits, [5], [6, 6], **params)
    wanted[0, [5, 6, 8]] += torch.tensor([4.0, -100.0, 0.5])
    got = adjusted(logits, [5], [6, 6], **params, logit_bias={6: -100, 8: 0.5, 5: 4})
    assert torch.equal(got, wanted)


def test_settings_at_the_ends_of_the_floats_leave_numbers():
    for params in (
        {"repetition_penalty": 1e300, "logit_bias": {4: 1e300}},
        {"repetition_penalty": 5e-324, "logit_bias": {4: -1e300}},
    ):
        logits = random_logits(1)
        logits[0, 3] = 0.0
        got = adjusted(logits, [2, 3], [4], **params)
        assert got.isfinite().all()
        assert got[0, 3] == 0


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature_is_that_of_transformers(temperature: float):
    logits = random_logits(4)
    theirs = generation.TemperatureLogitsWarper(temperature)(None, logits).softmax(-1)
    torch.testing.assert_close(warped(logits, temperature=temperature), theirs)


WARPERS: dict[str, Any] = {
    "top_k": (generation.TopKLogitsWarper, (1, 2, 40, 500)),
    "top_p": (generation.TopPLogitsWarper, (0.1, 0.5, 0.9, 0.999)),
    "min_p": (generation.MinPLogitsWarper, (0.02, 0.1, 0.5, 1.0)),
}


@pytest.mark.parametrize("name", WARPERS)
def test_each_cut_keeps_what_transformers_keeps(name: str):
    warper, values = WARPERS[name]
    for value in values:
        logits = random_logits(40, seed=7)
        theirs = warper(value)(None, logits).softmax(-1)
        ours = warped(logits, **{name: value})
        assert torch.equal(ours > 0, theirs > 0), value
        torch.testing.assert_close(ours, theirs)


def test_all_cuts_together_act_in_the_order_of_transformers():
    cuts = itertools.product((0.6, 1.7), (0, 30), (1.0, 0.8), (0.0, 0.15))
    for temperature, top_k, top_p, min_p in cuts:
        logits = random_logits(20, seed=3)
        theirs = generation.TemperatureLogitsWarper(temperature)(None, logits)
        if top_k:
            theirs = generation.TopKLogitsWarper(top_k)(None, theirs)
        if top_p < 1:
            theirs = generation.TopPLogitsWarper(top_p)(None, theirs)
        if min_p:
            theirs = generation.MinPLogitsWarper(min_p)(None, theirs)
        ours = warped(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        torch.testing.assert_close(ours, theirs.softmax(-1))


def test_min_p_is_a_share_of_the_most_likely_one_at_the_temperature():
    logits = torch.tensor([[0.6, 0.3, 0.1]]).log()
    kept = [warped(logits, min_p=p)[0].count_nonzero().item() for p in (0.0, 0.16, 0.17, 0.6, 1.0)]
    assert kept == [3, 3, 2, 1, 1]
    assert warped(logits, min_p=0.45, temperature=1.0)[0].count_nonzero() == 2
    assert warped(logits, min_p=0.45, temperature=0.5)[0].count_nonzero() == 1
    assert warped(torch.zeros(1, 4), min_p=1.0)[0].count_nonzero() == 4, "all are the likeliest"


def random_params(rng: random.Random) -> dict[str, Any]:
    choices: dict[str, tuple[Any, ...]] = {
        "temperature": (0.5, 1.0, 2.0),
        "top_k": (0, 3, 50),
        "top_p": (1.0, 0.7),
        "min_p": (0.0, 0.05),
        "repetition_penalty": (1.0, 1.2),
        "presence_penalty": (0.0, 0.4),
        "frequency_penalty": (0.0, 0.3),
        "logit_bias": (None, {3: 1.5, 9: -100.0}),
    }
    return {name: rng.choice(values) for name, values in choices.items()}


def test_a_rows_distribution_is_the_same_to_the_bit_in_any_company():
    rng = random.Random(0)
    params = [SamplingParams(**random_params(rng)) for _ in range(24)]
    logits = random_logits(24, seed=1)
    adjustments: list[LogitAdjustment | None] = []
    for each in params:
        adjustment = LogitAdjustment(each, [1, 2, 3]) if each.adjusts else None
        for _ in range(rng.randrange(6)):
            if adjustment is not None:
                adjustment.count(rng.randrange(VOCAB))
        adjustments.append(adjustment)
    assert None in adjustments
    together = logits.clone()
    adjust(together, adjustments)
    together = warp(together, params)
    for row, (each, adjustment) in enumerate(zip(params, adjustments, strict=True)):
        alone = logits[row : row + 1].clone()
        adjust(alone, [adjustment])
        assert torch.equal(warp(alone, [each])[0], together[row])
