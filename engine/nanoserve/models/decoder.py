"""The decoder that all architectures share: one flat batch of tokens in, logits out.

All tokens of a step, whatever sequence they belong to, go through the layers as one matrix
``[tokens, hidden]``; only attention knows who belongs together. Products that share their input
are one product: q, k and v, and gate and up. The head, a quarter of the weights of a small model,
is applied to those tokens only whose successor is wanted.

Rounding happens where transformers rounds, so that greedy tokens agree: norms in float32, cast,
then times the weight; rotary tables in the model's dtype; the head in the model's dtype.

The residual stream and the heads of q and k are changed in place: at a few rows an operation costs
its call, and a good part of that is making room for its result.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from nanoserve.attention import Attend
from nanoserve.linear import Linear, LinearKernel
from nanoserve.models.digest import EMBEDDING, HEAD
from nanoserve.models.model_config import ModelConfig
from nanoserve.models.parameters import FINAL_NORM, KEY_NORM, QKV, QUERY_NORM, by_layer
from nanoserve.models.rope import rope_table, signed
from nanoserve.pointwise import Pointwise


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderLayer:
    """One layer, its products fused and packed.

    Attributes:
        head_norm: Norm weights of each head of q and k, ``[heads + kv_heads, head_dim]``; None
            where they are not normed.
    """

    input_norm: torch.Tensor
    qkv: Linear
    head_norm: torch.Tensor | None
    output: Linear
    post_attention_norm: torch.Tensor
    gate_up: Linear
    down: Linear

    @classmethod
    def build(
        cls, config: ModelConfig, weights: dict[str, torch.Tensor], kernel: LinearKernel
    ) -> "DecoderLayer":
        """Fuse and pack the tensors of one layer, keyed by their names inside it."""

        def fused(*names: str) -> torch.Tensor:
            return torch.cat([weights.pop(name) for name in names])

        qkv_bias = fused(*(f"{name}.bias" for name in QKV)) if config.qkv_bias else None
        head_norm = None
        if config.qk_norm:
            head_norm = torch.cat(
                (
                    weights[QUERY_NORM].expand(config.num_heads, -1),
                    weights[KEY_NORM].expand(config.num_kv_heads, -1),
                )
            )
        return cls(
            input_norm=weights["input_layernorm.weight"],
            qkv=kernel.pack(fused(*(f"{name}.weight" for name in QKV)), qkv_bias),
            head_norm=head_norm,
            output=kernel.pack(weights.pop("self_attn.o_proj.weight")),
            post_attention_norm=weights["post_attention_layernorm.weight"],
            gate_up=kernel.pack(fused("mlp.gate_proj.weight", "mlp.up_proj.weight")),
            down=kernel.pack(weights.pop("mlp.down_proj.weight")),
        )


class Decoder:
    """Weights and the forward pass.

    Args:
        config: The shape.
        tensors: Every tensor of ``parameter_shapes(config)``, on the device and in the dtype it
            is to run in, in ascending order of names. A layer is packed, and its own tensors
            dropped, before the next is asked for.
        kernel: How to multiply.
        pointwise: How to do what comes between the products.
        max_positions: Positions the rotary table is made for.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Iterable[tuple[str, torch.Tensor]],
        *,
        kernel: LinearKernel,
        pointwise: Pointwise,
        max_positions: int,
    ) -> None:
        self.config = config
        self.pointwise = pointwise
        layers: dict[int, DecoderLayer] = {}
        rest: dict[str, torch.Tensor] = {}
        for index, weights in by_layer(tensors):
            if index is not None:
                layers[index] = DecoderLayer.build(config, weights, kernel)
            elif HEAD in weights:
                self.head = kernel.pack(weights.pop(HEAD))
            else:
                rest |= weights
        self.layers = [layers[index] for index in range(config.num_layers)]
        self.embedding = rest[EMBEDDING]
        self.norm = rest[FINAL_NORM]
        if config.tie_word_embeddings:
            # A kernel with a layout of its own makes a second copy here: single rows cannot be
            # read out of it, and without it the head would be the slowest product of a step.
            self.head = kernel.pack(self.embedding)
        self.cosines, sines = rope_table(
            config.rope,
            config.head_dim,
            positions=max_positions,
            device=self.embedding.device,
            dtype=self.embedding.dtype,
        )
        self.signed_sines = signed(sines)
        self.eps = torch.tensor(config.rms_norm_eps, device=sines.device, dtype=torch.float32)

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
        norm, eps = self.pointwise.norm, self.eps
        cosines, sines = self.cosines[positions], self.signed_sines[positions]
        hidden = self.embedding[token_ids]
        for index, layer in enumerate(self.layers):
            qkv = layer.qkv(norm(hidden, layer.input_norm, eps))
            seen = attend(*self._heads(qkv, layer.head_norm, cosines, sines), layer=index)
            hidden += layer.output(seen)
            normed = norm(hidden, layer.post_attention_norm, eps)
            hidden += layer.down(self.pointwise.gate(layer.gate_up(normed)))
        return self.head(norm(hidden[wanted], self.norm, eps))

    def _heads(
        self,
        qkv: torch.Tensor,
        head_norm: torch.Tensor | None,
        cosines: torch.Tensor,
        sines: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cut the fused product into heads; norm and rotate queries and keys, side by side."""
        queries, keys = self.config.num_heads, self.config.num_kv_heads
        heads = qkv.view(len(qkv), queries + 2 * keys, self.config.head_dim)
        turning = heads[:, : queries + keys]
        if head_norm is not None:
            turning = self.pointwise.norm(turning, head_norm, self.eps)
        self.pointwise.rotate_(turning, cosines, sines)
        return turning[:, :queries], turning[:, queries:], heads[:, queries + keys :]
