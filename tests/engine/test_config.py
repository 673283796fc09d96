"""The engine's settings: nothing unknown, nothing out of range, all faults at once."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
import torch

from nanoserve import LLM, EngineConfig
from nanoserve.errors import ConfigError


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("modle", "model"), ("max_slot", "max_slots"), ("blocksize", "block_size")],
)
def test_an_unknown_key_is_refused_with_the_nearest_real_one(typo: str, meant: str):
    with pytest.raises(ConfigError, match=rf"unknown setting '{typo}'; did you mean '{meant}'\?"):
        EngineConfig(model="synthetic:tiny-llama", **{typo: 1})  # type: ignore[arg-type]


def test_an_unknown_key_with_no_neighbour_lists_what_there_is():
    with pytest.raises(ConfigError, match="known: model, device, dtype"):
        EngineConfig(model="x", zzzz=1)  # type: ignore[call-arg]


def test_the_offline_door_refuses_unknown_keys_likewise():
    with pytest.raises(ConfigError, match="did you mean 'max_slots'"):
        LLM("synthetic:tiny-llama", max_slts=2)


def test_the_offline_door_takes_a_whole_config_and_then_nothing_else():
    config = EngineConfig(model="synthetic:tiny-llama", max_slots=3)
    assert LLM(config).engine.config is config
    with pytest.raises(ConfigError, match="max_slots"):
        LLM(config, max_slots=4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", ""),
        ("model", None),
        ("dtype", "float64"),
        ("dtype", torch.float32),
        ("dtype", []),
        ("device", "gpu"),
        ("device", None),
        ("device", 0),
        ("device", "meta"),
        ("device", "cuda:one"),
        ("kernel", []),
        ("max_slots", 0),
        ("max_slots", 1.0),
        ("max_slots", True),
        ("block_size", -16),
        ("max_batch_tokens", 0),
        ("max_batch_tokens", "512"),
        ("prefix_cache", "on"),
        ("prefix_cache", 1),
        ("max_model_len", 0),
        ("max_model_len", 1),
        ("kv_pool_tokens", 0),
        ("kv_pool_tokens", 15),
    ],
)
def test_a_bad_value_names_key_and_value(key: str, value: Any):
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**{"model": "x", key: value})
    assert key in str(caught.value)
    assert str(value) in str(caught.value)


def test_a_value_that_cannot_be_shown_is_named_all_the_same():
    with pytest.raises(ConfigError, match=r"max_slots must be .*, not <int without a repr>"):
        EngineConfig(model="x", max_slots=-(10**5000))


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "mps", "xpu:0"])
def test_the_devices_that_there_are_can_be_asked_for(device: str):
    assert EngineConfig(model="x", device=device, max_model_len=2).device == device


@pytest.mark.parametrize(
    ("device", "asked", "tokens"),
    [("cpu", None, 512), ("cuda:1", None, 2048), ("cpu", 7, 7), ("cuda", 7, 7)],
)
def test_a_step_has_a_budget_that_suits_the_device(device: str, asked: int | None, tokens: int):
    assert EngineConfig(model="x", device=device, max_batch_tokens=asked).step_tokens == tokens


def test_all_faults_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        EngineConfig(model="", dtype="int8", max_slots=0, max_model_len=-1)
    assert all(key in str(caught.value) for key in ("model", "dtype", "max_slots", "max_model_len"))


def test_a_config_is_frozen_keyword_only_and_travels():
    config = EngineConfig(model="x", max_slots=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.max_slots = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        EngineConfig("x")  # type: ignore[misc]
    assert dataclasses.replace(config, max_slots=4).max_slots == 4
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="device 'cuda:99' cannot be used here: "):
        LLM("synthetic:tiny-llama", device="cuda:99")


def test_a_length_beyond_the_model_is_refused():
    with pytest.raises(ConfigError, match=r"max_model_len=513 exceeds the 512 positions"):
        LLM("synthetic:tiny-llama", max_model_len=513)
