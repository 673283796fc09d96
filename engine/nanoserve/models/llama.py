"""The Llama architecture (Llama 2 and 3, SmolLM2): one flat batch of tokens in, logits out.

All tokens of a step, whatever sequence they belong to, go through the layers as one matrix
``[tokens, hidden]``; only attention knows who belongs together. Products that share their input
are one product: q, k and v, and gate and up. The head, a quarter of the weights of a small model,
is applied to those tokens only whose successor is wanted.

Rounding happens where transformers rounds, so that greedy tokens agree: norms in float32, cast,
then times the weight; rotary tables in the model's dtype; the head in the model's dtype.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from torch.nn.functional import silu

from nanoserve.attention import Attend
from nanoserve.linear import Linear, LinearKernel
from nanoserve.models.digest import EMBEDDING, HEAD
from nanoserve.models.model_config import ModelConfig
from nanoserve.models.rope import rope_table, rotate

FINAL_NORM = "model.norm.weight"


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint, by Hugging Face's name; a tied head is not one of them."""
    hidden, wide = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (wide, hidden),
        "mlp.up_proj.weight": (wide, hidden),
        "mlp.down_proj.weight": (hidden, wide),
    }
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (config.vocab_size, hidden),
        FINAL_NORM: (hidden,),
    }
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, hidden)
    return shapes


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaLayer:
    """One layer, its products fused and packed."""

    input_norm: torch.Tensor
    qkv: Linear
    output: Linear
    post_attention_norm: torch.Tensor
    gate_up: Linear
    down: Linear

    @classmethod
    def build(cls, weights: dict[str, torch.Tensor], kernel: LinearKernel) -> "LlamaLayer":
        """Fuse and pack the tensors of one layer, keyed by their names inside it."""

        def fused(*names: str) -> Linear:
            return kernel.pack(torch.cat([weights[f"{name}.weight"] for name in names]))

        return cls(
            input_norm=weights["input_layernorm.weight"],
            qkv=fused("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            output=kernel.pack(weights["self_attn.o_proj.weight"]),
            post_attention_norm=weights["post_attention_layernorm.weight"],
            gate_up=fused("mlp.gate_proj", "mlp.up_proj"),
            down=kernel.pack(weights["mlp.down_proj.weight"]),
        )


class LlamaModel:
    """Weights and the forward pass.

    Args:
        config: The shape.
        tensors: Every tensor of ``parameter_shapes(config)``, on the device and in the dtype it
            is to run in, in ascending order of names. A layer is packed, and its own tensors
            dropped, before the next is asked for.
        kernel: How to multiply.
        max_positions: Positions the rotary table is made for.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Iterable[tuple[str, torch.Tensor]],
        *,
        kernel: LinearKernel,
        max_positions: int,
    ) -> None:
        self.config = config
        layers: dict[int, LlamaLayer] = {}
        rest: dict[str, torch.Tensor] = {}
        for index, weights in by_layer(tensors):
            if index is None:
                rest |= weights
            else:
                layers[index] = LlamaLayer.build(weights, kernel)
        self.layers = [layers[index] for index in range(config.num_layers)]
        self.embedding = rest[EMBEDDING]
        self.norm = rest[FINAL_NORM]
        self.head = kernel.pack(rest.get(HEAD, self.embedding))
        self.cosines, self.sines = rope_table(
            config.rope,
            config.head_dim,
            positions=max_positions,
            device=self.embedding.device,
            dtype=self.embedding.dtype,
        )

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        wanted: torch.Tensor,
        *,
        attend: Attend,
    ) -> torch.Tensor:
        """Logits of the successors of some tokens.

        Args:
            token_ids: The step's tokens, ``[tokens]``.
            positions: Their places in their own sequences, ``[tokens]``.
            wanted: Which of the tokens to take through the head, ``[rows]``.
            attend: Attention over the cache, which gets the tokens' keys and values first.

        Returns:
            Logits, ``[rows, vocab_size]``, in the model's dtype.
        """
        eps = self.config.rms_norm_eps
        cosines, sines = self.cosines[positions], self.sines[positions]
        hidden = self.embedding[token_ids]
        for index, layer in enumerate(self.layers):
            normed = _rms_norm(hidden, layer.input_norm, eps)
            queries, keys, values = self._heads(layer.qkv(normed), cosines, sines)
            seen = attend(queries, keys, values, layer=index)
            hidden = hidden + layer.output(seen)
            normed = _rms_norm(hidden, layer.post_attention_norm, eps)
            gate, up = layer.gate_up(normed).chunk(2, dim=-1)
            hidden = hidden + layer.down(silu(gate) * up)
        return self.head(_rms_norm(hidden[wanted], self.norm, eps))

    def _heads(
        self, qkv: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cut the fused product into heads and rotate queries and keys, which lie side by side."""
        num_heads, num_kv_heads = self.config.num_heads, self.config.num_kv_heads
        heads = qkv.view(len(qkv), num_heads + 2 * num_kv_heads, self.config.head_dim)
        rotated = rotate(heads[:, : num_heads + num_kv_heads], cosines, sines)
        values = heads[:, num_heads + num_kv_heads :]
        return rotated[:, :num_heads], rotated[:, num_heads:], values


def by_layer(
    tensors: Iterable[tuple[str, torch.Tensor]],
) -> Iterator[tuple[int | None, dict[str, torch.Tensor]]]:
    """Group a stream of tensors, in ascending order of names, by layer.

    Yields:
        A layer's index and its tensors, keyed by their names inside it; or None and tensors that
        belong to no layer, under their full names.
    """
    for index, group in groupby(tensors, key=lambda pair: _layer_index(pair[0])):
        prefix = "" if index is None else f"model.layers.{index}."
        yield index, {name.removeprefix(prefix): tensor for name, tensor in group}


def _layer_index(name: str) -> int | None:
    if not name.startswith("model.layers."):
        return None
    return int(name.split(".", 3)[2])


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """``x / rms(x) * weight``, over the last dimension."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(x.dtype)
