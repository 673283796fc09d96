"""Checkpoints in GGUF, dequantised tensor by tensor.

Two things differ from Hugging Face's layout. Files of the architecture ``llama``, which Mistral's
are as well, store the rows of q and k so that the two halves of a rotary pair lie side by side;
they are put back. And Llama 3's rope scaling comes as a table, ``rope_freqs.weight``, which divides
the frequencies. The head is tied to the embedding when ``output.weight`` is absent.
"""

import math
import mmap
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor, dequantize

from nanoserve.errors import ModelNotFound, UnsupportedModel, WeightsMismatch
from nanoserve.models.architecture import Architecture
from nanoserve.models.architectures import ARCHITECTURES
from nanoserve.models.digest import EMBEDDING, HEAD
from nanoserve.models.hf_config import DEFAULT_ROPE_THETA
from nanoserve.models.model_config import ModelConfig, RopeConfig
from nanoserve.models.parameters import FINAL_NORM
from nanoserve.tokenizer import TokenizerSource

_WHOLE_MODEL = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": HEAD,
}
_PER_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_QKV_BIAS = {f"attn_{part}.bias": f"self_attn.{part}_proj.bias" for part in "qkv"}
_QK_NORM = {f"attn_{part}_norm.weight": f"self_attn.{part}_norm.weight" for part in "qk"}
_ROPE_FREQS = "rope_freqs.weight"
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+\.(?:weight|bias))")
_ELEMENTS_AT_ONCE = 2**20
# The end of a text, of a turn, and of a message to a tool: each ends an answer.
_EOS_KEYS = tuple(f"tokenizer.ggml.{kind}_token_id" for kind in ("eos", "eot", "eom"))


class GgufCheckpoint:
    """A model in one GGUF file.

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
        self._architecture = self._find_architecture()
        tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        divisors = tensors.pop(_ROPE_FREQS, None)
        self._tensors = {self._hf_name(name): tensor for name, tensor in tensors.items()}
        self.config = self._read_config(divisors)
        self.tokenizer_source = self._find_tokenizer()
        # Everything has been read but the tensors, and the reader keeps a vocabulary of 50,000
        # tokens as Python objects of 100 MB.
        self._reader.fields.clear()

    def names(self) -> frozenset[str]:
        """Names of the tensors, as Hugging Face spells them."""
        return frozenset(self._tensors)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, dequantised to float32 on the CPU, rows in Hugging Face's order."""
        weight = _to_torch(self._tensors[name])
        self._let_pages_go()
        if self._architecture.gguf_interleaves:
            if name.endswith("q_proj.weight"):
                return _unpermute(weight, self.config.num_heads)
            if name.endswith("k_proj.weight"):
                return _unpermute(weight, self.config.num_kv_heads)
        return weight

    def _let_pages_go(self) -> None:
        """The file is mapped as long as it is read; what has been read need not stay in memory."""
        mapped: Any = self._reader.data.base
        if hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)

    def _find_architecture(self) -> Architecture:
        name = self._field("general.architecture")
        known = {each.name: each for each in ARCHITECTURES.values() if each.in_gguf}
        if name not in known:
            raise UnsupportedModel(
                f"{self._path}: architecture {name!r} is not implemented; {', '.join(known)} are"
            )
        return known[name]

    def _hf_name(self, name: str) -> str:
        if name in _WHOLE_MODEL:
            return _WHOLE_MODEL[name]
        places = dict(_PER_LAYER)
        if self._architecture.qkv_bias:
            places |= _QKV_BIAS
        if self._architecture.qk_norm:
            places |= _QK_NORM
        match = _LAYER_TENSOR.fullmatch(name)
        if match is None or match[2] not in places:
            raise UnsupportedModel(
                f"{self._path}: tensor {name!r} has no place in a {self._architecture.name} model"
            )
        return f"model.layers.{match[1]}.{places[match[2]]}"

    def _field(self, key: str) -> Any:
        """A metadata value, or None where the file has none."""
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def _maybe(self, key: str) -> Any:
        """A value of the architecture's own, or None where the file has none."""
        return self._field(f"{self._architecture.name}.{key}")

    def _own(self, key: str) -> Any:
        value = self._maybe(key)
        if value is None:
            raise WeightsMismatch(
                f"{self._path}: metadata key '{self._architecture.name}.{key}' is missing"
            )
        return value

    def _read_config(self, divisors: ReaderTensor | None) -> ModelConfig:
        if EMBEDDING not in self._tensors:
            raise WeightsMismatch(f"{self._path}: tensor 'token_embd.weight' is missing")
        hidden, heads = self._own("embedding_length"), self._own("attention.head_count")
        head_dim = self._maybe("attention.key_length") or hidden // heads
        num_layers = self._own("block_count")
        return ModelConfig(
            architecture=self._architecture.name,
            vocab_size=int(self._tensors[EMBEDDING].shape[1]),
            hidden_size=hidden,
            intermediate_size=self._own("feed_forward_length"),
            num_layers=num_layers,
            num_heads=heads,
            num_kv_heads=self._maybe("attention.head_count_kv") or heads,
            head_dim=head_dim,
            rms_norm_eps=self._own("attention.layer_norm_rms_epsilon"),
            rope=self._read_rope(head_dim, divisors),
            max_position=self._own("context_length"),
            tie_word_embeddings=HEAD not in self._tensors,
            qkv_bias=self._architecture.qkv_bias,
            qk_norm=self._architecture.qk_norm,
            windows=self._read_windows(num_layers),
            eos_token_ids=frozenset(
                eos for key in _EOS_KEYS if (eos := self._field(key)) is not None
            ),
        )

    def _read_windows(self, num_layers: int) -> tuple[int | None, ...]:
        window = self._maybe("attention.sliding_window") or None
        pattern = self._maybe("attention.sliding_window_pattern")
        if window is None:
            return ()
        if not self._architecture.gguf_windows or pattern is not None:
            raise UnsupportedModel(
                f"{self._path}: a sliding window ({window} tokens) on some of the layers is not "
                "implemented for GGUF; use the model's safetensors"
            )
        return (window,) * num_layers

    def _read_rope(self, head_dim: int, divisors: ReaderTensor | None) -> RopeConfig:
        scaling = self._maybe("rope.scaling.type")
        if scaling not in (None, "none"):
            raise UnsupportedModel(f"{self._path}: rope scaling {scaling!r} is not implemented")
        # Without a type, a factor means linear scaling; the older key never had a type.
        name = self._architecture.name
        for key in ("rope.scaling.factor", "rope.scale_linear"):
            factor = self._maybe(key)
            if factor is not None and not math.isclose(factor, 1.0):
                raise UnsupportedModel(
                    f"{self._path}: linear rope scaling ({name}.{key}={factor}) is not implemented"
                )
        rotated = self._maybe("rope.dimension_count")
        if rotated not in (None, head_dim):
            raise UnsupportedModel(
                f"{self._path}: a partial rotary embedding ({name}.rope.dimension_count={rotated} "
                f"of {head_dim} features) is not implemented"
            )
        return RopeConfig(
            theta=self._maybe("rope.freq_base") or DEFAULT_ROPE_THETA,
            frequency_divisors=None if divisors is None else tuple(_to_torch(divisors).tolist()),
        )

    def _find_tokenizer(self) -> TokenizerSource | None:
        if self._field("tokenizer.ggml.model") is None:
            return None
        return TokenizerSource(folder=self._path.parent, gguf_file=self._path.name)


def _to_torch(tensor: ReaderTensor) -> torch.Tensor:
    """Dequantise to float32, a few rows at a time, into memory of its own."""
    shape = tuple(reversed(tensor.shape.tolist()))
    values = np.empty(shape, dtype=np.float32)
    rows = max(1, _ELEMENTS_AT_ONCE * len(values) // values.size) if values.size else 1
    try:
        for begin in range(0, len(values), rows):
            some = slice(begin, begin + rows)
            values[some] = dequantize(tensor.data[some], tensor.tensor_type)
    except NotImplementedError as error:
        raise UnsupportedModel(f"GGUF tensor {tensor.name!r}: {error}") from error
    return torch.from_numpy(values)


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows (head, pair, half) -> (head, half, pair): rotary halves apart, as Hugging Face has."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
