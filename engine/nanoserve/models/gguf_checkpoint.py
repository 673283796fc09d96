"""Llama checkpoints in GGUF, dequantised tensor by tensor.

Two things differ from Hugging Face's layout. GGUF stores the rows of q and k so that the two
halves of a rotary pair lie side by side; they are put back. And Llama 3's rope scaling comes as
a table, ``rope_freqs.weight``, which divides the frequencies. The head is tied to the embedding
when ``output.weight`` is absent.
"""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor, dequantize

from nanoserve.errors import ModelNotFound, UnsupportedModel, WeightsMismatch
from nanoserve.models.digest import EMBEDDING, HEAD
from nanoserve.models.model_config import ModelConfig, RopeConfig
from nanoserve.tokenizer import TokenizerSource

_WHOLE_MODEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FREQS = "rope_freqs.weight"
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
# The end of a text, of a turn, and of a message to a tool: each ends an answer.
_EOS_KEYS = tuple(f"tokenizer.ggml.{kind}_token_id" for kind in ("eos", "eot", "eom"))


class GgufCheckpoint:
    """A Llama model in one GGUF file.

    Raises:
        ModelNotFound: When there is no such file.
        UnsupportedModel: When the architecture is another, a tensor has no place in it, or the
            file is one of several.
        WeightsMismatch: When the file is no GGUF, or lacks a key or the embedding.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ModelNotFound(f"{path} does not exist")
        try:
            self._reader = GGUFReader(path)
        except (ValueError, IndexError) as error:
            raise WeightsMismatch(f"{path} is not a readable GGUF file: {error}") from error
        self._path = path
        parts = self._field("split.count")
        if parts is not None and parts > 1:
            raise UnsupportedModel(
                f"{path} is one of {parts} files (split.count), which are not read together: merge "
                "them with llama-gguf-split --merge"
            )
        tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        divisors = tensors.pop(_ROPE_FREQS, None)
        self._tensors = {self._hf_name(name): tensor for name, tensor in tensors.items()}
        self.config = self._read_config(divisors)
        self.tokenizer_source = self._find_tokenizer()

    def names(self) -> frozenset[str]:
        """Names of the tensors, as Hugging Face spells them."""
        return frozenset(self._tensors)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, dequantised to float32 on the CPU, rows in Hugging Face's order."""
        weight = _to_torch(self._tensors[name])
        if name.endswith("q_proj.weight"):
            return _unpermute(weight, self.config.num_heads)
        if name.endswith("k_proj.weight"):
            return _unpermute(weight, self.config.num_kv_heads)
        return weight

    def _hf_name(self, name: str) -> str:
        if name in _WHOLE_MODEL:
            return _WHOLE_MODEL[name]
        match = _LAYER_TENSOR.fullmatch(name)
        if match is None or match[2] not in _PER_LAYER:
            raise UnsupportedModel(f"{self._path}: tensor {name!r} has no place in a Llama model")
        return f"model.layers.{match[1]}.{_PER_LAYER[match[2]]}.weight"

    def _field(self, key: str) -> Any:
        """A metadata value, or None where the file has none."""
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def _llama(self, key: str) -> Any:
        value = self._field(f"llama.{key}")
        if value is None:
            raise WeightsMismatch(f"{self._path}: metadata key 'llama.{key}' is missing")
        return value

    def _read_config(self, divisors: ReaderTensor | None) -> ModelConfig:
        architecture = self._field("general.architecture")
        if architecture != "llama":
            raise UnsupportedModel(
                f"{self._path}: architecture {architecture!r} is not implemented; 'llama' is"
            )
        if EMBEDDING not in self._tensors:
            raise WeightsMismatch(f"{self._path}: tensor 'token_embd.weight' is missing")
        hidden, heads = self._llama("embedding_length"), self._llama("attention.head_count")
        head_dim = self._field("llama.attention.key_length") or hidden // heads
        return ModelConfig(
            vocab_size=int(self._tensors[EMBEDDING].shape[1]),
            hidden_size=hidden,
            intermediate_size=self._llama("feed_forward_length"),
            num_layers=self._llama("block_count"),
            num_heads=heads,
            num_kv_heads=self._field("llama.attention.head_count_kv") or heads,
            head_dim=head_dim,
            rms_norm_eps=self._llama("attention.layer_norm_rms_epsilon"),
            rope=self._read_rope(head_dim, divisors),
            max_position=self._llama("context_length"),
            tie_word_embeddings=HEAD not in self._tensors,
            eos_token_ids=frozenset(
                eos for key in _EOS_KEYS if (eos := self._field(key)) is not None
            ),
        )

    def _read_rope(self, head_dim: int, divisors: ReaderTensor | None) -> RopeConfig:
        scaling = self._field("llama.rope.scaling.type")
        if scaling not in (None, "none"):
            raise UnsupportedModel(f"{self._path}: rope scaling {scaling!r} is not implemented")
        # Without a type, a factor means linear scaling; the older key never had a type.
        for key in ("llama.rope.scaling.factor", "llama.rope.scale_linear"):
            factor = self._field(key)
            if factor is not None and not math.isclose(factor, 1.0):
                raise UnsupportedModel(
                    f"{self._path}: linear rope scaling ({key}={factor}) is not implemented"
                )
        rotated = self._field("llama.rope.dimension_count")
        if rotated not in (None, head_dim):
            raise UnsupportedModel(
                f"{self._path}: a partial rotary embedding (llama.rope.dimension_count={rotated} "
                f"of {head_dim} features) is not implemented"
            )
        return RopeConfig(
            theta=self._field("llama.rope.freq_base") or 10_000.0,
            frequency_divisors=None if divisors is None else tuple(_to_torch(divisors).tolist()),
        )

    def _find_tokenizer(self) -> TokenizerSource | None:
        if self._field("tokenizer.ggml.model") is None:
            return None
        return TokenizerSource(folder=self._path.parent, gguf_file=self._path.name)


def _to_torch(tensor: ReaderTensor) -> torch.Tensor:
    """Dequantise to float32; a copy, so that the file is not kept mapped."""
    try:
        values = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise UnsupportedModel(f"GGUF tensor {tensor.name!r}: {error}") from error
    return torch.from_numpy(np.array(values, dtype=np.float32))


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows (head, pair, half) -> (head, half, pair): rotary halves apart, as Hugging Face has."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
