"""Synthetic models: the same tensors in any order, and weights that do not degenerate."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from nanoserve import LLM, SamplingParams
from nanoserve.models.hf_config import as_hf_config
from nanoserve.models.parameters import parameter_shapes
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS, SyntheticCheckpoint


def test_a_tensor_is_the_same_whenever_and_wherever_it_is_asked_for():
    first, second = SyntheticCheckpoint("tiny-llama"), SyntheticCheckpoint("tiny-llama")
    names = sorted(first.names())
    backwards = {name: second.tensor(name) for name in reversed(names)}
    torch.manual_seed(99)
    assert all(torch.equal(first.tensor(name), backwards[name]) for name in names)


def test_no_two_tensors_are_alike():
    checkpoint = SyntheticCheckpoint("tiny-llama")
    firsts = {checkpoint.tensor(name).flatten()[0].item() for name in checkpoint.names()}
    assert len(firsts) == len(checkpoint.names())


@pytest.mark.parametrize("name", [name for name in SYNTHETIC_CONFIGS if name.startswith("tiny")])
def test_transformers_computes_the_same_from_the_same_tensors(name: str):
    checkpoint = SyntheticCheckpoint(name)
    config = AutoConfig.for_model(**as_hf_config(checkpoint.config))
    model = AutoModelForCausalLM.from_config(config).eval()
    tensors = {name: checkpoint.tensor(name) for name in checkpoint.names()}
    left_out, unknown = model.load_state_dict(tensors, strict=False)
    assert (left_out, unknown) == (["lm_head.weight"] * config.tie_word_embeddings, [])
    model.tie_weights()
    prompt = [5, 99, 17, 200]
    wanted = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, 4, dtype=torch.long),
        max_new_tokens=40,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    llm = LLM(f"synthetic:{name}")
    (output,) = llm.generate([prompt], SamplingParams(max_tokens=40, ignore_eos=True))
    assert output.token_ids == wanted[0, 4:].tolist()
    assert len(set(output.token_ids)) > 5, "the model does not just repeat one token"


def test_llama_3_2_1b_has_its_size():
    shapes = parameter_shapes(SYNTHETIC_CONFIGS["llama-3.2-1b"])
    total = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert total == 1_235_814_400
    assert "lm_head.weight" not in shapes


def test_a_synthetic_model_has_no_text():
    llm = LLM("synthetic:tiny-llama")
    numbers, text = llm.generate([[5, 6], "some text"], SamplingParams(max_tokens=2))
    assert (len(numbers.token_ids), numbers.text) == (2, None)
    assert text.error == "the prompt is text, and this model has no tokenizer: give ids"
