"""A float32 GGUF from canonical tensors, and the canonical tensors of one.

llama.cpp rotates neighbouring pairs where Hugging Face rotates halves, so the rows of the query and
key projections stand in another order in a GGUF.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter, LlamaFileType

from nanoserve_bench.systems.canonical import HEAD, TABLE, Tensor, heads_of

_TOP = {
    TABLE: "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    HEAD: "output.weight",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class NoGgufError(ValueError):
    """A model that this writer does not know how to put into a GGUF."""


def _names(layers: int) -> dict[str, str]:
    """Canonical names to those of a GGUF."""
    return _TOP | {
        f"model.layers.{layer}.{here}.weight": f"blk.{layer}.{there}.weight"
        for layer in range(layers)
        for here, there in _LAYER.items()
    }


def _rotated(name: str, config: Mapping[str, Any]) -> int | None:
    """Heads of a projection whose rows stand in another order; None for all other tensors."""
    heads, kv_heads, _ = heads_of(config)
    if name.endswith("q_proj.weight"):
        return heads
    return kv_heads if name.endswith("k_proj.weight") else None


def _swap(tensor: Tensor, heads: int, first: int) -> Tensor:
    """Exchange the two ways to number the rows of a head: `first` is 2 there, half a head back."""
    rows, columns = tensor.shape
    return (
        tensor.reshape(heads, first, rows // heads // first, columns)
        .swapaxes(1, 2)
        .reshape(rows, columns)
    )


def write_gguf(file: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a Llama model without a vocabulary: prompts are token ids.

    Raises:
        NoGgufError: It is no plain Llama model.
    """
    architecture = (config.get("architectures") or ["unknown"])[0]
    rope = config.get("rope_parameters") or {}
    kind = rope.get("rope_type", "default")
    if architecture != "LlamaForCausalLM" or kind != "default":
        raise NoGgufError(f"{architecture} with rope type {kind} is not written as GGUF")
    layers = config["num_hidden_layers"]
    heads, kv_heads, width = heads_of(config)
    writer = GGUFWriter(file, "llama")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_block_count(layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10000.0))))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    names = _names(layers)
    unknown = sorted(tensors.keys() - names.keys())
    if unknown:
        raise NoGgufError(f"{architecture} with a tensor {unknown[0]} is not written as GGUF")
    for name, tensor in tensors.items():
        rotated = _rotated(name, config)
        data = tensor if rotated is None else _swap(tensor, rotated, 2)
        writer.add_tensor(names[name], np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_gguf(file: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The canonical tensors of a GGUF that `write_gguf` wrote."""
    names = {there: here for here, there in _names(config["num_hidden_layers"]).items()}
    width = heads_of(config)[2]
    found: dict[str, Tensor] = {}
    for entry in GGUFReader(file).tensors:
        name, data = names[entry.name], np.asarray(entry.data)
        if data.dtype != np.float32:
            raise NoGgufError(f"tensor {entry.name} is {data.dtype}, not float32")
        rotated = _rotated(name, config)
        found[name] = data if rotated is None else _swap(data, rotated, width // 2)
    return found
