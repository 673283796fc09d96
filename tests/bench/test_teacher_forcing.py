"""Divergence triage, with a model whose logits are known and with a real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanoserve_bench.models import ModelFolder
from nanoserve_bench.protocol import Divergence
from nanoserve_bench.systems.hf_model import hf_generate_one, load_model
from nanoserve_bench.systems.teacher_forcing import BUG, NEAR_TIE, triage

VOCABULARY = 10


class Counting:
    """Expects each token to be followed by the next number; 0 and 5 tie behind a 4.

    In a padded batch its logits move by `noise`, as rounding would move them.
    """

    device = "cpu"

    def __init__(self, *, tie: float = 0.0, noise: float = 1e-4) -> None:
        self.tie = tie
        self.noise = noise

    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> Any:
        logits = torch.nn.functional.one_hot((input_ids + 1) % VOCABULARY, VOCABULARY) * 8.0
        logits[..., 0] = torch.where(input_ids == 4, 8.0 - self.tie, logits[..., 0])
        if attention_mask is not None:
            assert attention_mask.shape == input_ids.shape
            assert (attention_mask == 0).any()
            assert position_ids is not None
            logits = logits + self.noise
        return SimpleNamespace(logits=logits)


def diverged(output: tuple[int, ...], reference: tuple[int, ...]) -> Divergence:
    return Divergence(prompt_ids=(1, 2), output_ids=output, reference_ids=reference)


def test_a_tie_within_the_noise_is_a_near_tie() -> None:
    found = triage(Counting(tie=1e-4), diverged((3, 4, 0, 1), (3, 4, 5, 6)))
    assert (found.position, found.kind) == (2, NEAR_TIE)
    assert found.reference_logit == pytest.approx(8.0)
    assert found.logit == pytest.approx(8.0 - 1e-4, abs=1e-6)
    assert found.top2_margin == pytest.approx(1e-4, abs=1e-6)
    assert found.noise_floor == pytest.approx(1e-4, abs=1e-6)
    assert found.later_agreement == 1.0


def test_each_side_may_have_moved_by_the_noise_and_no_further() -> None:
    outputs = diverged((3, 4, 0, 1), (3, 4, 5, 6))
    assert triage(Counting(tie=1.9e-4), outputs).kind == NEAR_TIE
    assert triage(Counting(tie=2.1e-4), outputs).kind == BUG


def test_another_token_altogether_is_a_bug() -> None:
    found = triage(Counting(), diverged((3, 4, 7, 8), (3, 4, 5, 6)))
    assert (found.position, found.kind, found.logit) == (2, BUG, 0.0)
    assert found.later_agreement == 1.0


def test_an_early_tie_does_not_hide_a_late_bug() -> None:
    found = triage(Counting(), diverged((3, 4, 0, 1, 9, 0), (3, 4, 5, 6, 7, 8)))
    assert (found.position, found.kind) == (2, BUG)
    assert found.later_agreement == pytest.approx(2 / 3)


def test_an_output_that_ends_early_is_a_bug_without_a_token() -> None:
    found = triage(Counting(), diverged((3, 4), (3, 4, 5)))
    assert (found.position, found.kind) == (2, BUG)
    assert (found.logit, found.later_agreement) == (None, None)
    assert found.reference_logit == pytest.approx(8.0)


def test_an_output_that_goes_on_is_a_bug_without_a_reference() -> None:
    found = triage(Counting(), diverged((3, 4, 5), (3, 4)))
    assert (found.position, found.kind, found.reference_logit) == (2, BUG, None)


def test_a_divergence_at_the_last_position_has_nothing_later() -> None:
    found = triage(Counting(), diverged((3, 4, 0), (3, 4, 5)))
    assert (found.kind, found.later_agreement) == (NEAR_TIE, None)


def test_texts_come_from_the_tokenizer() -> None:
    tokenizer = SimpleNamespace(decode=lambda ids: f"<{ids[0]}>")
    found = triage(Counting(), diverged((3, 4, 0), (3, 4, 5)), tokenizer)
    assert (found.text, found.reference_text) == ("<0>", "<5>")


def test_outputs_that_agree_are_no_divergence() -> None:
    with pytest.raises(ValueError, match="do not differ"):
        triage(Counting(), diverged((3, 4), (3, 4)))


def test_a_real_model_has_a_noise_floor_far_below_its_margins(tiny: ModelFolder) -> None:
    torch.set_num_threads(1)
    model = load_model(str(tiny.path), device="cpu", dtype="float32")
    prompt = (5, 6, 7)
    reference = hf_generate_one(model)(prompt, 6).token_ids
    wrong = (reference[2] + 1) % 256
    output = (
        *reference[:2],
        wrong,
        *hf_generate_one(model)((*prompt, *reference[:2], wrong), 3).token_ids,
    )
    found = triage(model, Divergence(prompt_ids=prompt, output_ids=output, reference_ids=reference))
    assert found.position == 2
    assert found.kind == BUG
    assert found.later_agreement == 1.0
    assert found.noise_floor is not None
    assert found.top2_margin is not None
    assert 0 <= found.noise_floor < 1e-4 < found.top2_margin
