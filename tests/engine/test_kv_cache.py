"""The pool: what is written is read back through the tables, and its size is explained."""

from __future__ import annotations

import logging

import pytest
import torch

from nanoserve import EngineConfig
from nanoserve.errors import ConfigError
from nanoserve.kv_cache import PagedKVCache, available_bytes, bytes_per_token, size_pool
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS

TINY = SYNTHETIC_CONFIGS["tiny-llama"]
CPU = torch.device("cpu")


def make_cache(num_blocks: int = 6, block_size: int = 2) -> PagedKVCache:
    return PagedKVCache(
        TINY, num_blocks=num_blocks, block_size=block_size, device=CPU, dtype=torch.float32
    )


def test_what_is_written_at_slots_is_read_through_tables():
    cache = make_cache()
    keys, values = torch.randn(5, 2, 16), torch.randn(5, 2, 16)
    cache.write(1, keys, values, torch.tensor([8, 9, 2, 3, 4]))  # blocks 4, 1 and half of 2
    got_keys, got_values = cache.read(1, torch.tensor([[4, 1, 2], [1, 1, 4]]))
    assert got_keys.shape == (2, 2, 6, 16)
    assert torch.equal(got_keys[0, :, :5], keys.transpose(0, 1))
    assert torch.equal(got_values[0, :, :5], values.transpose(0, 1))
    assert torch.equal(got_values[1, :, 4:], values[:2].transpose(0, 1))


def test_layers_do_not_share_memory():
    cache = make_cache()
    cache.clean(range(6))
    cache.write(0, torch.ones(1, 2, 16), torch.ones(1, 2, 16), torch.tensor([0]))
    keys, values = cache.read(1, torch.tensor([[0]]))
    assert keys.abs().sum() == values.abs().sum() == 0


def test_a_block_is_clean_after_cleaning_and_the_others_are_untouched():
    cache = make_cache()
    cache.keys.fill_(float("nan"))
    cache.values.fill_(float("nan"))
    cache.clean([1, 3])
    for pool in (cache.keys, cache.values):
        assert (pool[:, [1, 3]] == 0).all()
        assert pool[:, [0, 2, 4, 5]].isnan().all()


def settings(**changes: object) -> EngineConfig:
    return EngineConfig(model="x", **{"max_slots": 3, "block_size": 16, **changes})  # type: ignore[arg-type]


def test_by_default_every_slot_has_room_for_the_longest_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("nanoserve.kv_cache.available_bytes", lambda device: 2**30)
    with caplog.at_level(logging.INFO, logger="nanoserve"):
        assert size_pool(settings(), TINY, max_model_len=100, device=CPU) == 3 * 7
    assert "3 slots x 100 tokens = 21 blocks" in caplog.text
    assert "-> 21 blocks x 16 tokens x 512 B = 0.2 MiB" in caplog.text


def test_the_memory_at_hand_bounds_the_default(monkeypatch: pytest.MonkeyPatch):
    assert bytes_per_token(TINY, torch.float32) == 2 * 2 * 2 * 16 * 4
    assert bytes_per_token(TINY, torch.bfloat16) == 2 * 2 * 2 * 16 * 2
    monkeypatch.setattr("nanoserve.kv_cache.available_bytes", lambda device: 2 * 5 * 16 * 512 + 99)
    assert size_pool(settings(), TINY, max_model_len=100, device=CPU) == 5
    monkeypatch.setattr("nanoserve.kv_cache.available_bytes", lambda device: 100)
    with pytest.raises(ConfigError, match="no block of 8192 bytes fits"):
        size_pool(settings(), TINY, max_model_len=100, device=CPU)


def test_a_pool_of_given_size_is_rounded_down_to_whole_blocks():
    config = settings(kv_pool_tokens=47)
    assert size_pool(config, TINY, max_model_len=100, device=CPU) == 2


def test_this_machine_has_memory():
    assert 2**20 < available_bytes(CPU) < 2**50
