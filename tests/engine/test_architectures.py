"""Every architecture on every path against transformers, as Llama is in `test_decoder`."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nanoserve import LLM, SamplingParams
from nanoserve.errors import WeightsMismatch
from nanoserve.models.digest import weights_digest
from nanoserve.models.hf_config import read_model_config

TOLERANCE = 1e-4
QWEN_WINDOWS = {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "mistral": {"model_type": "mistral", "sliding_window": None, "head_dim": 32},
    "mistral with a window": {"model_type": "mistral", "sliding_window": 20},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2 with windows on its upper layers": {"model_type": "qwen2", **QWEN_WINDOWS},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
    "qwen3 with windows, tied": {
        "model_type": "qwen3",
        "tie_word_embeddings": True,
        "num_key_value_heads": 1,
        **QWEN_WINDOWS,
    },
}
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest, make_reference: Any) -> Any:
    return make_reference(**VARIANTS[request.param])


def prompts_of(lengths: list[int], seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(97) for _ in range(length)] for length in lengths]


@pytest.mark.usefixtures("every_path")
def test_logits_agree_while_prompts_join_in_pieces(variant: Any, run_requests: Any):
    """At odd batch sizes, in blocks of an odd size, with a budget that no long prompt fits."""
    run = run_requests(
        variant.folder,
        prompts_of([3, 37, 5, 5, 60, 1, 2, 11]),
        [SamplingParams(max_tokens=3 + index) for index in range(8)],
        max_slots=5,
        block_size=3,
        max_batch_tokens=23,
    )
    assert run.worst_logit(variant) < TOLERANCE


@pytest.mark.usefixtures("every_path")
def test_logits_agree_at_far_positions_and_after_preemption(variant: Any, run_requests: Any):
    """A pool too small for both: the younger one is computed again, prompt and answer."""
    run = run_requests(
        variant.folder,
        prompts_of([244, 236]),
        SamplingParams(max_tokens=16),
        max_slots=2,
        kv_pool_tokens=496,
    )
    assert [len(output.timings.holds) for output in run.outputs.values()] == [1, 2]
    assert run.worst_logit(variant) < TOLERANCE


@pytest.mark.parametrize("window", [1, 5, 255, 256, 300])
@pytest.mark.usefixtures("every_path")
def test_windows_of_any_width_in_a_context_of_several_chunks(
    window: int, make_reference: Any, run_requests: Any
):
    """The kernels take a context in chunks of 256 tokens, and begin with the window's first."""
    reference = make_reference(
        model_type="mistral",
        sliding_window=window,
        max_position_embeddings=1024,
        num_hidden_layers=2,
    )
    run = run_requests(
        reference.folder,
        prompts_of([700, 258, 4]),
        SamplingParams(max_tokens=6),
        max_slots=3,
        block_size=5,
        max_batch_tokens=400,
    )
    assert run.worst_logit(reference) < TOLERANCE


@pytest.mark.usefixtures("on_kernels")
def test_a_request_has_the_same_bits_alone_and_in_company(variant: Any, run_requests: Any):
    prompt = prompts_of([47], seed=1)[0]
    alone = run_requests(variant.folder, [prompt], SamplingParams(max_tokens=12))
    company = run_requests(
        variant.folder,
        [prompt, *prompts_of([70, 2, 31, 47], seed=2)],
        [SamplingParams(max_tokens=n) for n in (12, 2, 20, 5, 9)],
        max_slots=4,
        max_batch_tokens=29,
    )
    for position in range(47, 59):
        assert torch.equal(company.runner.seen["0", position], alone.runner.seen["0", position])


@pytest.mark.usefixtures("on_kernels")
def test_a_window_shows_the_same_bits_wherever_a_long_prompt_is_cut(
    make_reference: Any, run_requests: Any
):
    """A tile of tokens begins with the chunk that its first token sees, and its last may not."""
    reference = make_reference(
        model_type="mistral", sliding_window=250, max_position_embeddings=1024, num_hidden_layers=2
    )
    prompts = [prompts_of([length])[0] for length in (505, 506, 507, 509, 511, 513, 530)]
    params = SamplingParams(max_tokens=3)
    whole = run_requests(reference.folder, prompts, params, max_batch_tokens=5000)
    cut = run_requests(reference.folder, prompts, params, max_batch_tokens=67, max_slots=3)
    assert whole.runner.seen.keys() == cut.runner.seen.keys()
    assert all(torch.equal(cut.runner.seen[key], got) for key, got in whole.runner.seen.items())


def test_shards_are_one_model(variant: Any, tmp_path: Path):
    variant.model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    llm = LLM(str(tmp_path))
    assert llm.engine.weights_digest == weights_digest(variant.model.state_dict().items())
    (output,) = llm.generate([[5, 6, 7]], SamplingParams(max_tokens=30, ignore_eos=True))
    assert output.token_ids == variant.greedy([5, 6, 7], 30)


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("qwen2", "model.layers.1.self_attn.v_proj.bias"),
        ("qwen3", "model.layers.2.self_attn.k_norm.weight"),
    ],
)
def test_biases_and_norms_of_heads_are_weights_like_others(
    model_type: str, name: str, make_reference: Any, tmp_path: Path
):
    reference = make_reference(model_type=model_type)
    reference.model.config.save_pretrained(tmp_path)
    tensors = load_file(reference.folder / "model.safetensors")
    changed = tensors | {name: tensors[name].clone()}
    changed[name][0] += 1e-6
    save_file(changed, tmp_path / "model.safetensors")
    digest = LLM(str(reference.folder)).engine.weights_digest
    assert LLM(str(tmp_path)).engine.weights_digest == weights_digest(changed.items()) != digest
    del changed[name]
    save_file(changed, tmp_path / "model.safetensors")
    with pytest.raises(WeightsMismatch, match=rf"lacks 1 tensors \({name}\)"):
        LLM(str(tmp_path))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["llama", *VARIANTS])
def test_halved_dtypes_round_where_transformers_rounds(
    name: str, dtype: str, make_reference: Any, run_requests: Any
):
    """As near to float32 as transformers is in the same dtype, and not much further from that.

    Sums are taken in another order and rounded to 8 or 11 bits, so that more cannot be asked: two
    roundings that know nothing of each other would be 1.4 times as far apart.
    """
    reference = make_reference(**VARIANTS.get(name, {}))
    halved = copy.deepcopy(reference.model).to(HALVES[dtype])
    run = run_requests(
        reference.folder,
        prompts_of([9, 33]),
        SamplingParams(max_tokens=16, ignore_eos=True),
        dtype=dtype,
        max_slots=2,
        max_batch_tokens=20,
    )
    for output in run.outputs.values():
        sequence = output.prompt_token_ids + output.token_ids
        positions = range(len(output.prompt_token_ids), len(sequence))
        got = torch.stack([run.runner.seen[output.request_id, p] for p in positions])
        assert got.dtype == HALVES[dtype]
        before = [position - 1 for position in positions]
        exact = reference.logits(sequence)[before]
        with torch.inference_mode():
            wanted = halved(torch.tensor([sequence])).logits[0, before].float()
        noise = (wanted - exact).square().mean().sqrt()
        assert (got.float() - exact).square().mean().sqrt() < 1.3 * noise
        assert (got.float() - wanted).square().mean().sqrt() < 1.3 * noise
        assert noise < 0.05 * exact.std()


def test_a_window_is_read_from_the_saved_config(make_reference: Any):
    """transformers writes the types of the layers, and not only from where on they have it."""
    reference = make_reference(**VARIANTS["qwen2 with windows on its upper layers"])
    assert read_model_config(reference.folder).windows == (None, 20, 20)
