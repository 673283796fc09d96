"""config.json: both generations are read, and what is not implemented is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from nanoserve.errors import ModelNotFound, UnsupportedModel, WeightsMismatch
from nanoserve.models.hf_config import as_hf_config, read_model_config
from nanoserve.models.model_config import Llama3RopeScaling, RopeConfig
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}
QWEN: dict[str, Any] = {"model_type": "qwen2", "num_key_value_heads": 4, "head_dim": 16}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


FULL, SLIDING = "full_attention", "sliding_attention"
LEFT_OUT = object()


def write(folder: Path, generation: dict[str, Any] | None = None, **changes: Any) -> Path:
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not LEFT_OUT}
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def test_what_a_config_leaves_out_follows_from_the_rest(tmp_path: Path):
    config = read_model_config(write(tmp_path))
    assert (config.num_kv_heads, config.head_dim) == (4, 16)
    assert config.rope.theta == 10_000
    assert config.rope.scaling is None
    assert not config.tie_word_embeddings
    assert config.eos_token_ids == frozenset()


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
    ],
    ids=["transformers 5", "transformers 4", "older"],
)
def test_rope_is_read_in_every_spelling(tmp_path: Path, spelling: dict[str, Any]):
    rope = read_model_config(write(tmp_path, **spelling)).rope
    assert rope.theta == 5e5
    assert rope.scaling == Llama3RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=64
    )


@pytest.mark.parametrize(
    ("model", "generation", "eos"),
    [
        ({"eos_token_id": 2}, None, {2}),
        ({"eos_token_id": [2, 3]}, None, {2, 3}),
        ({"eos_token_id": 2}, {"eos_token_id": [7, 8]}, {7, 8}),
        ({"eos_token_id": 2}, {"temperature": 0.6}, {2}),
        ({"eos_token_id": None}, None, set()),
    ],
)
def test_eos_is_a_set_and_the_generation_config_wins(
    tmp_path: Path, model: dict[str, Any], generation: dict[str, Any] | None, eos: set[int]
):
    assert read_model_config(write(tmp_path, generation, **model)).eos_token_ids == eos


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "mamba"},
            "model_type 'mamba' is not implemented; llama, mistral, qwen2, q",
        ),
        ({"model_type": ["llama"]}, r"model_type \['llama'\] is not implemented"),
        ({"model_type": LEFT_OUT}, "model_type None is not implemented"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not implemented"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "rope_type 'yarn'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial rotary"),
        ({"partial_rotary_factor": 0.5}, "partial rotary"),
        ({"rope_parameters": {FULL: {"rope_theta": 1e4}}}, "a rope for each type of layer"),
        ({"quantization_config": {"quant_method": "gptq"}}, "weights quantised by 'gptq' are not"),
        ({"head_dim": 15}, "rotated in pairs, and head_dim is 15"),
        ({**QWEN, "model_type": "qwen3", "attention_bias": True}, "attention_bias=True"),
        ({**QWEN, "model_type": "mistral", "layer_types": [FULL, SLIDING]}, "layer_types="),
        ({**QWEN, "layer_types": ["chunked_attention", FULL]}, "'chunked_attention' is not impl"),
        (
            {**QWEN, "layer_types": [FULL, SLIDING]},
            "'sliding_attention' is not implemented; .* whe",
        ),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3 KV heads"),
    ],
)
def test_what_would_run_nearly_right_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
):
    with pytest.raises(UnsupportedModel, match=message):
        read_model_config(write(tmp_path, **change))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[1]", "holds a list, not an object"),
        (b'{"model_type": "llama", "num_attention_heads": 4}', "key 'hidden_size' is missing"),
        (b'{"vocab_size": %s}' % (b"9" * 5000), "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
    ids=["cut off", "not UTF-8", "a list", "a missing key", "a number beyond all bounds", "depths"],
)
def test_a_damaged_config_says_where_and_what(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(WeightsMismatch, match=message) as caught:
        read_model_config(tmp_path)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize("value", [None, "48", 48.0, 0, -1, True, [48]], ids=str)
@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
    ],
)
def test_a_size_that_is_no_size_is_named(tmp_path: Path, key: str, value: object):
    folder = write(tmp_path, **{key: value})
    if value is None and key in ("num_key_value_heads", "head_dim"):
        assert read_model_config(folder).head_dim == 16, "null is left out"
        return
    with pytest.raises(WeightsMismatch) as caught:
        read_model_config(folder)
    shown = "null" if value is None else repr(value)
    wanted = f"config.json: '{key}' must be an integer of at least 1, not {shown}"
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rms_norm_eps": None}, "'rms_norm_eps' must be a number above 0, not null"),
        ({"rms_norm_eps": "1e-5"}, "'rms_norm_eps' must be a number above 0, not '1e-5'"),
        ({"rope_theta": 0}, "'rope_theta' must be a number above 0, not 0"),
        ({"rope_theta": 10**400}, "'rope_theta' must be a number above 0, not 1000"),
        ({"rope_scaling": "llama3"}, "'rope_scaling' must be an object, not 'llama3'"),
        ({"rope_parameters": [1]}, r"'rope_parameters' must be an object, not \[1\]"),
        (
            {"rope_scaling": {"type": "llama3", **LLAMA3, "low_freq_factor": 0}},
            "'low_freq_factor' must be a number above 0, not 0",
        ),
        ({"rope_scaling": {"type": "llama3"}}, "key 'factor' is missing"),
        ({**QWEN, "use_sliding_window": None}, "'use_sliding_window' must be true or false"),
        (
            {**QWEN, "use_sliding_window": True, "sliding_window": 0},
            "'sliding_window' must be an in",
        ),
        ({**QWEN, "layer_types": [FULL]}, r"'layer_types' must be a list of 2 types, not \['full"),
        ({**QWEN, "layer_types": FULL}, "'layer_types' must be a list of strings, not 'full_att"),
        ({**QWEN, "max_window_layers": -1}, "'max_window_layers' must be an integer of at least 0"),
        ({**QWEN, "num_key_value_heads": LEFT_OUT}, "key 'num_key_value_heads' is missing"),
        ({**QWEN, "model_type": "mistral", "num_key_value_heads": LEFT_OUT}, "key 'num_key_val"),
        ({**QWEN, "model_type": "qwen3", "head_dim": LEFT_OUT}, "key 'head_dim' is missing"),
        ({"tie_word_embeddings": "no"}, "'tie_word_embeddings' must be true or false, not 'no'"),
        ({"eos_token_id": "2"}, "'eos_token_id' must be an integer or a list of them, not '2'"),
        ({"eos_token_id": [2, None]}, r"'eos_token_id' must be .*, not \[2, None\]"),
    ],
)
def test_a_value_of_another_kind_is_named(tmp_path: Path, change: dict[str, Any], message: str):
    with pytest.raises(WeightsMismatch, match=rf"config\.json: {message}"):
        read_model_config(write(tmp_path, **change))


def test_a_bad_eos_of_the_generation_config_names_that_file(tmp_path: Path):
    with pytest.raises(WeightsMismatch, match=r"generation_config\.json: 'eos_token_id' must be"):
        read_model_config(write(tmp_path, {"eos_token_id": "</s>"}))


@pytest.mark.parametrize(
    ("model_type", "changes", "windows"),
    [
        ("mistral", {"sliding_window": 7}, (7, 7)),
        ("mistral", {"sliding_window": None}, ()),
        ("mistral", {}, (4096, 4096)),
        ("qwen2", {"sliding_window": 7}, ()),
        (
            "qwen2",
            {"sliding_window": 7, "use_sliding_window": True, "max_window_layers": 1},
            (None, 7),
        ),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 0}, (4096, 4096)),
        ("qwen2", {"use_sliding_window": True}, ()),
        ("qwen3", {"sliding_window": None, "use_sliding_window": True, "max_window_layers": 0}, ()),
        (
            "qwen3",
            {"sliding_window": 7, "use_sliding_window": True, "layer_types": [SLIDING, FULL]},
            (7, None),
        ),
        ("llama", {"sliding_window": 7}, ()),
    ],
)
def test_windows_are_those_of_transformers(
    tmp_path: Path, model_type: str, changes: dict[str, Any], windows: tuple[int | None, ...]
):
    folder = write(tmp_path, **QWEN | {"model_type": model_type} | changes)
    assert read_model_config(folder).windows == windows
    theirs = AutoConfig.from_pretrained(folder)
    kinds = getattr(theirs, "layer_types", None) or [SLIDING] * 2
    window = getattr(theirs, "sliding_window", None)
    mine = tuple(window if kind == SLIDING and model_type != "llama" else None for kind in kinds)
    assert (windows or (None, None)) == mine


@pytest.mark.parametrize(
    ("model_type", "bias", "norm"),
    [
        ("llama", False, False),
        ("mistral", False, False),
        ("qwen2", True, False),
        ("qwen3", False, True),
    ],
)
def test_what_a_layer_has_follows_from_the_architecture(
    tmp_path: Path, model_type: str, bias: bool, norm: bool
):
    config = read_model_config(write(tmp_path, **QWEN | {"model_type": model_type}))
    assert (config.architecture, config.qkv_bias, config.qk_norm) == (model_type, bias, norm)


def test_a_folder_without_a_config_is_no_checkpoint(tmp_path: Path):
    with pytest.raises(ModelNotFound, match=r"has no config\.json"):
        read_model_config(tmp_path)


@pytest.mark.parametrize("name", SYNTHETIC_CONFIGS)
def test_a_config_survives_hugging_faces_spelling(tmp_path: Path, name: str):
    config = SYNTHETIC_CONFIGS[name]
    (tmp_path / "config.json").write_text(json.dumps(as_hf_config(config)))
    assert read_model_config(tmp_path) == config


def test_mixed_windows_survive_hugging_faces_spelling(tmp_path: Path):
    config = replace(SYNTHETIC_CONFIGS["tiny-qwen3"], windows=(None, 9), rope=RopeConfig(theta=1e6))
    (tmp_path / "config.json").write_text(json.dumps(as_hf_config(config)))
    assert read_model_config(tmp_path) == config


def test_a_table_of_frequencies_has_no_spelling():
    config = replace(
        SYNTHETIC_CONFIGS["tiny-llama"], rope=RopeConfig(theta=1e4, frequency_divisors=(1.0,) * 8)
    )
    with pytest.raises(UnsupportedModel, match="cannot spell a table"):
        as_hf_config(config)
