"""The packaged SmolLM2-135M: token for token what ``model.generate`` says, at every slot count."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GgufConfig

from nanoserve import LLM, Engine, SamplingParams
from nanoserve.model_runner import ModelRunner
from nanoserve.models.digest import weights_digest
from nanoserve.models.weights import packaged_gguf

pytestmark = [
    pytest.mark.weights,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

LENGTHS = (1, 6, 15, 16, 17, 33, 6, 40) * 4
# The first eight run at every slot count, the others beyond eight slots only.
NEW_TOKENS = (12,) * 8 + (5,) * 24


@pytest.fixture(scope="module", params=["auto", "torch"])
def llm(request: pytest.FixtureRequest) -> LLM:
    """On the kernels, where they run, and on torch."""
    return LLM("smollm2-135m", max_slots=32, max_model_len=256, kernel=request.param)


@pytest.fixture(scope="module")
def small_llm() -> LLM:
    """On torch, with so few slots that the weights are laid out for them."""
    return LLM("smollm2-135m", max_slots=2, max_model_len=256, kernel="torch")


@pytest.fixture(scope="module")
def hf() -> Any:
    path = packaged_gguf()
    return AutoModelForCausalLM.from_pretrained(
        str(path.parent),
        gguf_file=path.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    ).eval()


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    rng = random.Random(44)
    return [[rng.randrange(17, 49_152) for _ in range(length)] for length in LENGTHS]


@pytest.fixture(scope="module")
def generated(hf: Any, prompts: list[list[int]]) -> list[list[int]]:
    outputs = []
    for prompt, new_tokens in zip(prompts, NEW_TOKENS, strict=True):
        output = hf.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        outputs.append(output[0, len(prompt) :].tolist())
    return outputs


def check_greedy(
    llm: LLM, slots: int, prompts: list[list[int]], generated: list[list[int]]
) -> None:
    runner = llm.engine._runner
    engine = Engine(dataclasses.replace(llm.engine.config, max_slots=slots), runner=runner)
    count = max(8, slots)
    for index, prompt in enumerate(prompts[:count]):
        params = SamplingParams(max_tokens=NEW_TOKENS[index], ignore_eos=True)
        engine.add_request(str(index), prompt, params)
    outputs = {}
    most = 0
    while engine.has_unfinished():
        step = engine.step()
        most = max(most, step.holders)
        outputs |= {output.request_id: output.token_ids for output in step.outputs}
    assert most == slots
    assert [outputs[str(index)] for index in range(count)] == generated[:count]


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 8, 16, 32])
def test_greedy_tokens_are_those_of_generate(
    slots: int, llm: LLM, prompts: list[list[int]], generated: list[list[int]]
):
    check_greedy(llm, slots, prompts, generated)


@pytest.mark.parametrize("slots", [1, 2])
def test_greedy_tokens_of_an_engine_of_few_slots_are_those_of_generate(
    slots: int, small_llm: LLM, prompts: list[list[int]], generated: list[list[int]]
):
    check_greedy(small_llm, slots, prompts, generated)


@pytest.mark.parametrize("budget", [None, 6])
def test_prompts_in_pieces_and_kept_blocks_change_no_token(
    budget: int | None, llm: LLM, prompts: list[list[int]], generated: list[list[int]]
):
    """Every prompt twice: the second time its first blocks are there already."""
    config = dataclasses.replace(
        llm.engine.config, max_slots=4, max_batch_tokens=budget, prefix_cache=True
    )
    engine = Engine(config, runner=llm.engine._runner)
    for _ in range(2):
        for index, prompt in enumerate(prompts[:8]):
            params = SamplingParams(max_tokens=NEW_TOKENS[index], ignore_eos=True)
            engine.add_request(str(index), prompt, params)
        outputs, pieces = {}, 0
        while engine.has_unfinished():
            step = engine.step()
            pieces += step.prefill_rows
            outputs |= {output.request_id: output for output in step.outputs}
        assert [outputs[str(index)].token_ids for index in range(8)] == generated[:8]
        assert (pieces > 8) is (budget is not None)
    cached = [outputs[str(index)].cached_tokens for index in range(8)]
    assert cached == [(len(prompt) - 1) // 16 * 16 for prompt in prompts[:8]]


def test_the_weights_are_those_that_transformers_dequantises(llm: LLM, hf: Any):
    assert llm.engine.weights_digest == weights_digest(hf.state_dict().items())


def test_the_shape_is_that_of_transformers(llm: LLM, hf: Any):
    config = llm.engine._runner.model_config
    assert isinstance(llm.engine._runner, ModelRunner)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (30, 9, 3)
    assert config.tie_word_embeddings
    assert config.vocab_size == hf.config.vocab_size == 49_152
    assert config.rms_norm_eps == hf.config.rms_norm_eps
    assert config.rope.theta == hf.config.rope_parameters["rope_theta"]
    assert config.eos_token_ids == {hf.config.eos_token_id}


def test_text_goes_in_and_comes_out(llm: LLM):
    text, ids = llm.generate(
        ["The capital of France is", [504, 3575, 282, 4649, 314]], SamplingParams(max_tokens=4)
    )
    assert text.prompt_token_ids == ids.prompt_token_ids == [504, 3575, 282, 4649, 314]
    assert text.text == ids.text
    assert text.text is not None
    assert text.text.startswith(" Paris")


def test_an_empty_text_is_an_empty_prompt(llm: LLM):
    (output,) = llm.generate([""])
    assert output.error == "the prompt is empty: give at least one token"


def test_text_that_is_no_text_is_refused_alone(llm: LLM):
    bad, good = llm.generate(["\ud800", "two plus two"], SamplingParams(max_tokens=1))
    assert bad.error is not None
    assert "not valid Unicode" in bad.error
    assert len(good.token_ids) == 1


def test_the_models_own_eos_ends_an_answer_where_generate_ends_it(llm: LLM, hf: Any):
    chat = "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
    (output,) = llm.generate([chat], SamplingParams(max_tokens=60))
    prompt = output.prompt_token_ids
    generated = hf.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=60,
        do_sample=False,
        eos_token_id=hf.config.eos_token_id,
        pad_token_id=0,
    )
    assert output.token_ids == generated[0, len(prompt) :].tolist()
    assert output.token_ids[-1] == hf.config.eos_token_id
    assert output.finish_reason == "stop"
    assert len(output.token_ids) < 60
