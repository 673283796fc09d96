"""The tensors of a checkpoint: their names, as Hugging Face spells them, and their shapes."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import torch

from nanoserve.models.digest import EMBEDDING, HEAD
from nanoserve.models.model_config import ModelConfig

FINAL_NORM = "model.norm.weight"
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
QUERY_NORM, KEY_NORM = "self_attn.q_norm.weight", "self_attn.k_norm.weight"

Shape = tuple[int, ...]


def layer_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor of a layer, by its name inside the layer."""
    hidden, wide = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (wide, hidden),
        "mlp.up_proj.weight": (wide, hidden),
        "mlp.down_proj.weight": (hidden, wide),
    }
    for name, width in zip(QKV, (queries, keys, keys), strict=True):
        shapes[f"{name}.weight"] = (width, hidden)
        if config.qkv_bias:
            shapes[f"{name}.bias"] = (width,)
    if config.qk_norm:
        shapes |= {QUERY_NORM: (config.head_dim,), KEY_NORM: (config.head_dim,)}
    return shapes


def parameter_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor of a checkpoint, by its name; a tied head is not one of them."""
    shapes: dict[str, Shape] = {
        EMBEDDING: (config.vocab_size, config.hidden_size),
        FINAL_NORM: (config.hidden_size,),
    }
    layer = layer_shapes(config)
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, config.hidden_size)
    return shapes


def by_layer(
    tensors: Iterable[tuple[str, torch.Tensor]],
) -> Iterator[tuple[int | None, dict[str, torch.Tensor]]]:
    """Group a stream of tensors, in ascending order of names, by layer.

    Yields:
        A layer's index and its tensors, keyed by their names inside it; or None and one tensor
        that belongs to no layer, under its full name. The dictionary is the caller's: what it
        takes out is gone when it has been packed, and not only when the next group has come.
    """
    for key, group in groupby(tensors, key=lambda pair: _layer_index(pair[0])):
        if isinstance(key, str):
            yield from ((None, {name: tensor}) for name, tensor in group)
            continue
        prefix = f"model.layers.{key}."
        yield key, {name.removeprefix(prefix): tensor for name, tensor in group}


def _layer_index(name: str) -> int | str:
    """The layer, or a name that belongs to none."""
    return int(name.split(".", 3)[2]) if name.startswith("model.layers.") else name
