"""GGUF: files written here from Hugging Face weights come back as those weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from nanoserve import SamplingParams
from nanoserve.errors import UnsupportedModel, WeightsMismatch
from nanoserve.models import gguf_checkpoint
from nanoserve.models.gguf_checkpoint import GgufCheckpoint
from nanoserve.models.rope import inverse_frequencies

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """What converters do to q and k: rotary halves side by side."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """What converters call a tensor of Hugging Face's."""
    stem, _, kind = name.rpartition(".")
    layer = ""
    if stem.startswith("model.layers."):
        _, _, index, stem = stem.split(".", 3)
        layer = f"blk.{index}."
    return f"{layer}{GGUF_NAMES[stem]}.{kind}"


def divisors(config: Any) -> np.ndarray:
    """The table of Llama 3's rope scaling, from transformers' own frequencies."""
    plain = LlamaRotaryEmbedding.compute_default_rope_parameters(config)[0]
    return (plain / LlamaRotaryEmbedding(config).inv_freq).numpy()


Change = Callable[[gguf.GGUFWriter], None]


def write_gguf(
    reference: Any,
    path: Path,
    *,
    architecture: str | None = None,
    quantised: gguf.GGMLQuantizationType | None = None,
    dtype: type[np.floating[Any]] = np.float32,
    skip: str | None = None,  # a key, or a tensor
    more: Change | None = None,
) -> Path:
    """Write a reference model as a converter would."""
    config = reference.model.config
    own = "llama" if config.model_type == "mistral" else config.model_type
    writer = gguf.GGUFWriter(path, architecture or own)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if skip != "feed_forward_length":
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if config.model_type != "qwen2":  # whose heads share the hidden size
        writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_eos_token_id(11)
    for name, tensor in reference.model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if name == skip:
            continue
        values = tensor.numpy().astype(dtype)
        if own == "llama" and name.endswith("q_proj.weight"):
            values = permute(values, config.num_attention_heads)
        if own == "llama" and name.endswith("k_proj.weight"):
            values = permute(values, config.num_key_value_heads)
        kind = quantised if values.ndim == 2 else None
        data = values if kind is None else gguf.quantize(values, kind)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", divisors(config))
    if more is not None:
        more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, tied": {"tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "sliding_window": None, "head_dim": 32},
    # Heads as wide as the hidden size has room for: GGUF does not say more of qwen2.
    "qwen2": {"model_type": "qwen2", "hidden_size": 96, "num_attention_heads": 6},
    "qwen2, tied": {"model_type": "qwen2", "hidden_size": 96, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_tensor_comes_back(architecture: str, make_reference: Any, tmp_path: Path):
    reference = make_reference(**ARCHITECTURES[architecture])
    checkpoint = GgufCheckpoint(write_gguf(reference, tmp_path / "model.gguf"))
    wanted = dict(reference.model.state_dict())
    if reference.model.config.tie_word_embeddings:
        del wanted["lm_head.weight"]
    assert checkpoint.names() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(checkpoint.tensor(name), tensor), name


def test_the_config_comes_back(make_reference: Any, tmp_path: Path):
    reference = make_reference(num_key_value_heads=1, head_dim=32, tie_word_embeddings=True)
    config = GgufCheckpoint(write_gguf(reference, tmp_path / "model.gguf")).config
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (3, 6, 1)
    assert (config.head_dim, config.hidden_size, config.intermediate_size) == (32, 48, 80)
    assert (config.vocab_size, config.max_position) == (97, 256)
    assert config.rms_norm_eps == pytest.approx(1e-5)
    assert config.tie_word_embeddings
    assert config.eos_token_ids == {11}


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "rope_freqs", "window"])
def test_logits_are_those_of_transformers(
    architecture: str, make_reference: Any, run_requests: Any, tmp_path: Path
):
    """With ``rope_freqs`` at positions far beyond the original context, where it matters."""
    others = {
        "rope_freqs": {"rope_parameters": LLAMA3},
        "window": {"model_type": "mistral", "sliding_window": 30},
    }
    reference = make_reference(**{**ARCHITECTURES, **others}[architecture])

    def window(writer: gguf.GGUFWriter) -> None:
        writer.add_sliding_window(getattr(reference.model.config, "sliding_window", None) or 0)

    path = write_gguf(reference, tmp_path / "model.gguf", more=window)
    prompts = [list(range(90)), [5] * 7, [(7 * i) % 97 for i in range(200)]]
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    run = run_requests(path, prompts, params, max_slots=3)
    assert run.worst_logit(reference) < 1e-4


def test_the_table_of_rope_frequencies_is_honoured(make_reference: Any, tmp_path: Path):
    reference = make_reference(rope_parameters=LLAMA3)
    rope = GgufCheckpoint(write_gguf(reference, tmp_path / "model.gguf")).config.rope
    wanted = reference.model.model.rotary_emb.inv_freq
    torch.testing.assert_close(inverse_frequencies(rope, 16), wanted, rtol=1e-6, atol=0)
    assert rope.scaling is None


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16])
def test_quantised_tensors_are_dequantised(
    kind: gguf.GGMLQuantizationType, make_reference: Any, tmp_path: Path
):
    reference = make_reference(hidden_size=64, intermediate_size=96, num_attention_heads=4)
    checkpoint = GgufCheckpoint(write_gguf(reference, tmp_path / "model.gguf", quantised=kind))
    for name, tensor in reference.model.state_dict().items():
        got = checkpoint.tensor(name)
        assert got.dtype == torch.float32
        assert (got - tensor).abs().max() < 0.01


def test_a_type_that_cannot_be_dequantised_is_named(reference: Any, tmp_path: Path):
    checkpoint = GgufCheckpoint(write_gguf(reference, tmp_path / "m.gguf", dtype=np.float64))
    with pytest.raises(UnsupportedModel, match=r"'output_norm\.weight': Dequantization for F64"):
        checkpoint.tensor("model.norm.weight")


@pytest.mark.parametrize("architecture", ["gemma3", "mistral"])
def test_another_architecture_is_refused(architecture: str, reference: Any, tmp_path: Path):
    """Mistral's files call themselves llama."""
    path = write_gguf(reference, tmp_path / "model.gguf", architecture=architecture)
    message = f"architecture '{architecture}' is not implemented; llama, qwen2, qwen3 are"
    with pytest.raises(UnsupportedModel, match=message):
        GgufCheckpoint(path)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "blk.0.attn_q.bias"),
        ({}, "blk.0.attn_k_norm.weight"),
        (ARCHITECTURES["qwen2"], "blk.0.attn_output.bias"),
        (ARCHITECTURES["qwen3"], "blk.0.attn_v.bias"),
        ({}, "blk.0.ffn_gate_inp.weight"),
        ({}, "output.bias"),
    ],
)
def test_a_tensor_without_a_place_is_refused(
    changes: dict[str, Any], name: str, make_reference: Any, tmp_path: Path
):
    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor(name, np.ones(96, dtype=np.float32))

    path = write_gguf(make_reference(**changes), tmp_path / "model.gguf", more=add)
    with pytest.raises(UnsupportedModel, match=rf"'{re.escape(name)}' has no place in a"):
        GgufCheckpoint(path)


@pytest.mark.parametrize(
    ("changes", "pattern"), [(ARCHITECTURES["qwen2"], None), ({}, 2)], ids=["qwen2", "a pattern"]
)
def test_windows_of_some_layers_are_refused(
    changes: dict[str, Any], pattern: int | None, make_reference: Any, tmp_path: Path
):
    def window(writer: gguf.GGUFWriter) -> None:
        writer.add_sliding_window(30)
        if pattern is not None:
            writer.add_sliding_window_pattern(pattern)

    path = write_gguf(make_reference(**changes), tmp_path / "model.gguf", more=window)
    with pytest.raises(UnsupportedModel, match=r"a sliding window \(30 tokens\) on some of the"):
        GgufCheckpoint(path)


def test_a_tensor_of_many_rows_is_dequantised_in_parts(
    make_reference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reference = make_reference(hidden_size=64, intermediate_size=96, num_attention_heads=4)
    kind = gguf.GGMLQuantizationType.Q8_0
    checkpoint = GgufCheckpoint(write_gguf(reference, tmp_path / "model.gguf", quantised=kind))
    names = sorted(checkpoint.names())
    whole = [checkpoint.tensor(name) for name in names]
    monkeypatch.setattr(gguf_checkpoint, "_ELEMENTS_AT_ONCE", 150)
    for name, wanted in zip(names, whole, strict=True):
        assert torch.equal(checkpoint.tensor(name), wanted)


def test_another_rope_scaling_is_refused(reference: Any, tmp_path: Path):
    def yarn(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)

    path = write_gguf(reference, tmp_path / "model.gguf", more=yarn)
    with pytest.raises(UnsupportedModel, match="rope scaling 'yarn'"):
        GgufCheckpoint(path)


@pytest.mark.parametrize("key", ["llama.rope.scale_linear", "llama.rope.scaling.factor"])
def test_linear_rope_scaling_without_a_type_is_refused(key: str, reference: Any, tmp_path: Path):
    scaled = write_gguf(
        reference, tmp_path / "scaled.gguf", more=lambda writer: writer.add_float32(key, 4.0)
    )
    with pytest.raises(UnsupportedModel, match=rf"linear rope scaling \({key}=4\.0\) is not"):
        GgufCheckpoint(scaled)
    plain = write_gguf(
        reference, tmp_path / "plain.gguf", more=lambda writer: writer.add_float32(key, 1.0)
    )
    assert GgufCheckpoint(plain).config.head_dim == 16


def test_a_partial_rotary_embedding_is_refused(reference: Any, tmp_path: Path):
    def rotated(features: int) -> GgufCheckpoint:
        return GgufCheckpoint(
            write_gguf(
                reference,
                tmp_path / f"{features}.gguf",
                more=lambda writer: writer.add_rope_dimension_count(features),
            )
        )

    assert rotated(16).config.head_dim == 16
    with pytest.raises(UnsupportedModel, match=r"\(llama\.rope\.dimension_count=8 of 16 features"):
        rotated(8)


def test_one_of_several_files_is_refused(reference: Any, tmp_path: Path):
    path = write_gguf(
        reference,
        tmp_path / "model.gguf",
        skip="model.embed_tokens.weight",
        more=lambda writer: writer.add_uint16("split.count", 3),
    )
    with pytest.raises(UnsupportedModel, match=r"is one of 3 files \(split\.count\)"):
        GgufCheckpoint(path)


def test_a_missing_embedding_is_named(reference: Any, tmp_path: Path):
    path = write_gguf(reference, tmp_path / "model.gguf", skip="model.embed_tokens.weight")
    with pytest.raises(WeightsMismatch, match=r"tensor 'token_embd\.weight' is missing"):
        GgufCheckpoint(path)


def test_the_end_of_a_turn_or_message_ends_an_answer_as_well(reference: Any, tmp_path: Path):
    def ends(writer: gguf.GGUFWriter) -> None:
        writer.add_eot_token_id(12)
        writer.add_eom_token_id(13)

    config = GgufCheckpoint(write_gguf(reference, tmp_path / "model.gguf", more=ends)).config
    assert config.eos_token_ids == {11, 12, 13}


def test_a_missing_key_is_named(reference: Any, tmp_path: Path):
    path = write_gguf(reference, tmp_path / "model.gguf", skip="feed_forward_length")
    with pytest.raises(WeightsMismatch, match=r"'llama\.feed_forward_length' is missing"):
        GgufCheckpoint(path)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all, but some text" * 9])
def test_a_file_that_is_no_gguf_is_named(content: bytes, tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(WeightsMismatch, match=r"model\.gguf is not a readable GGUF file"):
        GgufCheckpoint(path)
