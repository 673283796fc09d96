"""The shape of a model, read from Hugging Face's ``config.json``.

Only what changes the arithmetic is kept, and everything that would change it in a way we do not
implement is refused by name, so that a model never runs nearly right.

Configs come in two generations: transformers 5 writes ``rope_parameters``, earlier ones a
top-level ``rope_theta`` and ``rope_scaling``. Both are read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoserve._checks import are_integers, is_flag, is_integer, is_number, shown
from nanoserve.errors import ModelNotFound, UnsupportedModel, WeightsMismatch

DEFAULT_ROPE_THETA = 10_000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Llama3RopeScaling:
    """Llama 3.1's stretch of the low rotary frequencies.

    Attributes:
        factor: By how much long wavelengths are stretched.
        low_freq_factor: Wavelengths above ``original_max_position / low_freq_factor`` are
            stretched fully.
        high_freq_factor: Wavelengths below ``original_max_position / high_freq_factor`` are left
            alone; those between are blended.
        original_max_position: Context length before the stretch.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeConfig:
    """Rotary position embedding.

    Attributes:
        theta: Base of the wavelengths.
        scaling: Llama 3's stretch, as a formula.
        frequency_divisors: The same as a table, ``head_dim / 2`` divisors of the frequencies, as
            GGUF files carry it in ``rope_freqs.weight``; not together with ``scaling``.
    """

    theta: float
    scaling: Llama3RopeScaling | None = None
    frequency_divisors: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The shape of a Llama model; lengths in tokens, sizes in elements."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_position: int
    tie_word_embeddings: bool
    eos_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Refuse shapes that cannot be.

        Raises:
            UnsupportedModel: When query heads do not share KV heads evenly.
        """
        if self.num_heads % self.num_kv_heads:
            raise UnsupportedModel(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads evenly"
            )

    def as_hf_config(self) -> dict[str, Any]:
        """The same shape as Hugging Face's ``config.json`` spells it.

        Raises:
            UnsupportedModel: When the rotary frequencies are a table, which it cannot spell.
        """
        if self.rope.frequency_divisors is not None:
            raise UnsupportedModel("config.json cannot spell a table of rotary frequencies")
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": self.rope.theta}
        if (scaling := self.rope.scaling) is not None:
            rope |= {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_max_position,
            }
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": rope,
            "max_position_embeddings": self.max_position,
            "tie_word_embeddings": self.tie_word_embeddings,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": None,
            "eos_token_id": sorted(self.eos_token_ids) or None,
        }


def read_model_config(folder: Path) -> ModelConfig:
    """Read ``config.json`` and, where there is one, ``generation_config.json``.

    Args:
        folder: A checkpoint folder. The EOS set of the generation config wins, as in ``generate``.

    Raises:
        ModelNotFound: When there is no ``config.json``.
        UnsupportedModel: When the model needs something that is not implemented.
        WeightsMismatch: When a file is not the JSON object it should be, lacks a key, or has a
            value of another kind.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelNotFound(f"{folder} has no config.json: not a Hugging Face checkpoint folder")
    raw = _read_object(path)
    generation = folder / "generation_config.json"
    asked = _read_object(generation) if generation.is_file() else {}
    if asked.get("eos_token_id") is not None:
        return _parse(raw, _read_ids(asked, generation), path)
    return _parse(raw, _read_ids(raw, path), path)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise WeightsMismatch(f"{path} is not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise WeightsMismatch(f"{path} holds a {type(raw).__name__}, not an object")
    return raw


def _read_ids(raw: Mapping[str, Any], path: Path) -> frozenset[int]:
    value = raw.get("eos_token_id")
    if value is None:
        return frozenset()
    ids = value if isinstance(value, list) else [value]
    if not are_integers(ids):
        raise _of_another_kind(path, "eos_token_id", "an integer or a list of them", value)
    return frozenset(ids)


def _parse(raw: Mapping[str, Any], eos: frozenset[int], path: Path) -> ModelConfig:
    if raw.get("model_type") != "llama":
        raise UnsupportedModel(
            f"{path}: model_type {raw.get('model_type')!r} is not implemented; 'llama' is"
        )
    for key, wanted in {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}.items():
        if raw.get(key, wanted) != wanted:
            raise UnsupportedModel(f"{path}: {key}={raw[key]!r} is not implemented; {wanted!r} is")
    tied = raw.get("tie_word_embeddings", False)
    if not is_flag(tied):
        raise _of_another_kind(path, "tie_word_embeddings", "true or false", tied)
    num_heads = _integer(raw, "num_attention_heads", path)
    hidden_size = _integer(raw, "hidden_size", path)
    return ModelConfig(
        vocab_size=_integer(raw, "vocab_size", path),
        hidden_size=hidden_size,
        intermediate_size=_integer(raw, "intermediate_size", path),
        num_layers=_integer(raw, "num_hidden_layers", path),
        num_heads=num_heads,
        num_kv_heads=_integer(raw, "num_key_value_heads", path, otherwise=num_heads),
        head_dim=_integer(raw, "head_dim", path, otherwise=hidden_size // num_heads),
        rms_norm_eps=_number(raw, "rms_norm_eps", path),
        rope=_parse_rope(raw, path),
        max_position=_integer(raw, "max_position_embeddings", path),
        tie_word_embeddings=tied,
        eos_token_ids=eos,
    )


def _parse_rope(raw: Mapping[str, Any], path: Path) -> RopeConfig:
    key = "rope_parameters" if raw.get("rope_parameters") else "rope_scaling"
    rope = raw.get(key) or {}
    if not isinstance(rope, dict):
        raise _of_another_kind(path, key, "an object", rope)
    at_the_top = _number(raw, "rope_theta", path, otherwise=DEFAULT_ROPE_THETA)
    theta = _number(rope, "rope_theta", path, otherwise=at_the_top)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModel(f"{path}: a partial rotary embedding is not implemented")
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "llama3":
        scaling = Llama3RopeScaling(
            factor=_number(rope, "factor", path),
            low_freq_factor=_number(rope, "low_freq_factor", path),
            high_freq_factor=_number(rope, "high_freq_factor", path),
            original_max_position=_integer(rope, "original_max_position_embeddings", path),
        )
        return RopeConfig(theta=theta, scaling=scaling)
    raise UnsupportedModel(f"{path}: rope_type {kind!r} is not implemented; default and llama3 are")


def _integer(raw: Mapping[str, Any], key: str, path: Path, *, otherwise: int | None = None) -> int:
    """A size; ``otherwise`` where the key is absent or null, and may be."""
    value = _value(raw, key, path, otherwise)
    if not is_integer(value) or value < 1:
        raise _of_another_kind(path, key, "an integer of at least 1", value)
    size: int = value
    return size


def _number(
    raw: Mapping[str, Any], key: str, path: Path, *, otherwise: float | None = None
) -> float:
    """A number above zero; ``otherwise`` where the key is absent or null, and may be."""
    value = _value(raw, key, path, otherwise)
    if not is_number(value) or value <= 0:
        raise _of_another_kind(path, key, "a number above 0", value)
    number: float = value
    return number


def _value(raw: Mapping[str, Any], key: str, path: Path, otherwise: float | None) -> Any:
    value = raw.get(key)
    if value is None and otherwise is not None:
        return otherwise
    if key not in raw:
        raise WeightsMismatch(f"{path}: key {key!r} is missing")
    return value


def _of_another_kind(path: Path, key: str, wanted: str, value: object) -> WeightsMismatch:
    given = "null" if value is None else shown(value)
    return WeightsMismatch(f"{path}: {key!r} must be {wanted}, not {given}")
