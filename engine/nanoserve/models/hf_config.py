"""Hugging Face's ``config.json``, read and written.

Everything that would change the arithmetic in a way that is not implemented is refused by name, so
that a model never runs nearly right.

Configs come in two generations: transformers 5 writes ``rope_parameters``, earlier ones a
top-level ``rope_theta`` and ``rope_scaling``. Both are read.
"""

from pathlib import Path
from typing import Any

from nanoserve.errors import ModelNotFound, UnsupportedModel
from nanoserve.models.architecture import FULL, SLIDING, Architecture
from nanoserve.models.architectures import ARCHITECTURES
from nanoserve.models.config_file import ConfigFile
from nanoserve.models.model_config import Llama3RopeScaling, ModelConfig, RopeConfig

DEFAULT_ROPE_THETA = 10_000.0


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
    config = ConfigFile.read(path)
    generation = folder / "generation_config.json"
    asked = ConfigFile.read(generation) if generation.is_file() else config
    eos = asked if asked.get("eos_token_id") is not None else config
    return _parse(config, eos.ids("eos_token_id"))


def _parse(config: ConfigFile, eos: frozenset[int]) -> ModelConfig:
    architecture = _architecture(config)
    config.has_only("hidden_act", "silu")
    for key, wanted in architecture.only.items():
        config.has_only(key, wanted)
    for key in architecture.needed:
        config.needs(key)
    _refuse_quantised(config)
    hidden_size = config.integer("hidden_size")
    num_heads = config.integer("num_attention_heads")
    num_layers = config.integer("num_hidden_layers")
    windows = architecture.read_windows(config, num_layers)
    return ModelConfig(
        architecture=architecture.name,
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=config.integer("num_key_value_heads", otherwise=num_heads),
        head_dim=config.integer("head_dim", otherwise=hidden_size // num_heads),
        rms_norm_eps=config.number("rms_norm_eps"),
        rope=_parse_rope(config),
        max_position=config.integer("max_position_embeddings"),
        tie_word_embeddings=config.flag("tie_word_embeddings", otherwise=False),
        qkv_bias=architecture.qkv_bias,
        qk_norm=architecture.qk_norm,
        windows=windows if any(windows) else (),
        eos_token_ids=eos,
    )


def _architecture(config: ConfigFile) -> Architecture:
    name = config.get("model_type")
    architecture = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if architecture is None:
        raise UnsupportedModel(
            f"{config.path}: model_type {name!r} is not implemented; {', '.join(ARCHITECTURES)} are"
        )
    return architecture


def _refuse_quantised(config: ConfigFile) -> None:
    """Weights that only look like what the config says."""
    if config.get("quantization_config") is not None:
        method = config.section("quantization_config").get("quant_method")
        raise UnsupportedModel(
            f"{config.path}: weights quantised by {method!r} are not implemented; give the model "
            "in float32, bfloat16 or float16, or as GGUF"
        )


def _parse_rope(config: ConfigFile) -> RopeConfig:
    rope = config.section("rope_parameters" if config.get("rope_parameters") else "rope_scaling")
    at_the_top = config.number("rope_theta", otherwise=DEFAULT_ROPE_THETA)
    theta = rope.number("rope_theta", otherwise=at_the_top)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if any(place.number("partial_rotary_factor", otherwise=1.0) != 1 for place in (config, rope)):
        raise UnsupportedModel(f"{config.path}: a partial rotary embedding is not implemented")
    if rope.get(FULL) is not None or rope.get(SLIDING) is not None:
        raise UnsupportedModel(f"{config.path}: a rope for each type of layer is not implemented")
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "llama3":
        scaling = Llama3RopeScaling(
            factor=rope.number("factor"),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_max_position=rope.integer("original_max_position_embeddings"),
        )
        return RopeConfig(theta=theta, scaling=scaling)
    raise UnsupportedModel(
        f"{config.path}: rope_type {kind!r} is not implemented; default and llama3 are"
    )


def as_hf_config(config: ModelConfig) -> dict[str, Any]:
    """A shape as ``config.json`` spells it.

    Raises:
        UnsupportedModel: When the rotary frequencies are a table, which it cannot spell.
    """
    if config.rope.frequency_divisors is not None:
        raise UnsupportedModel("config.json cannot spell a table of rotary frequencies")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope.theta}
    if (scaling := config.rope.scaling) is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position,
        }
    architecture = ARCHITECTURES[config.architecture]
    windows = tuple(config.window(layer) for layer in range(config.num_layers))
    return {
        "architectures": [architecture.hf_class],
        "model_type": architecture.name,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": rope,
        "max_position_embeddings": config.max_position,
        "tie_word_embeddings": config.tie_word_embeddings,
        **{key: value for key, value in architecture.only.items() if value is not None},
        **architecture.spell_windows(windows),
        "bos_token_id": None,
        "eos_token_id": sorted(config.eos_token_ids) or None,
    }
