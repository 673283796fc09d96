"""The pool: what is written is read back through the tables, and its size is explained."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nanoserve import EngineConfig, kv_cache
from nanoserve.errors import ConfigError
from nanoserve.kv_cache import PagedKVCache, available_bytes, block_bytes, size_pool
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
    got_keys, got_values = cache.read(1, torch.tensor([4, 1, 2, 1, 1, 4]), sequences=2)
    assert got_keys.shape == (2, 2, 6, 16)
    assert torch.equal(got_keys[0, :, :5], keys.transpose(0, 1))
    assert torch.equal(got_values[0, :, :5], values.transpose(0, 1))
    assert torch.equal(got_values[1, :, 4:], values[:2].transpose(0, 1))


def test_layers_do_not_share_memory():
    cache = make_cache()
    cache.clean(range(6))
    cache.write(0, torch.ones(1, 2, 16), torch.ones(1, 2, 16), torch.tensor([0]))
    keys, values = cache.read(1, torch.tensor([0]), sequences=1)
    assert keys.abs().sum() == values.abs().sum() == 0


def test_reading_makes_no_room_that_is_there_already():
    cache = make_cache()
    cache.clean(range(6))
    first, _ = cache.read(0, torch.tensor([0, 1, 2, 3]), sequences=2)
    second, _ = cache.read(1, torch.tensor([5]), sequences=1)
    assert second.data_ptr() == first.data_ptr()


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


def blocks_of(config: EngineConfig) -> int:
    return size_pool(config, block_bytes=8192, max_model_len=100, device=CPU).num_blocks


def test_by_default_every_slot_has_room_for_the_longest_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("nanoserve.kv_cache.available_bytes", lambda device: 2**30)
    with caplog.at_level(logging.INFO, logger="nanoserve"):
        assert blocks_of(settings()) == 3 * 7
    (record,) = caplog.records
    assert record.getMessage() == (
        "KV pool: the smaller of 3 slots x 100 tokens = 21 blocks, and 50% of 1024 MiB at hand / "
        "8192 B = 65536 blocks -> 21 blocks of 16 tokens x 8192 B = 0.2 MiB"
    )


def test_the_memory_at_hand_bounds_the_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("nanoserve.kv_cache.available_bytes", lambda device: 2 * 5 * 8192 + 99)
    assert blocks_of(settings()) == 5
    monkeypatch.setattr("nanoserve.kv_cache.available_bytes", lambda device: 100)
    with pytest.raises(ConfigError, match="no block of 8192 bytes fits"):
        blocks_of(settings())


def test_a_pool_of_given_size_is_rounded_down_to_whole_blocks():
    assert blocks_of(settings(kv_pool_tokens=47)) == 2
    pool = size_pool(settings(kv_pool_tokens=47), block_bytes=2**20, max_model_len=100, device=CPU)
    assert str(pool) == (
        "kv_pool_tokens=47 in whole blocks -> 2 blocks of 16 tokens x 1048576 B = 2.0 MiB"
    )


def test_a_pool_larger_than_the_memory_is_refused_and_told_what_would_fit(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("nanoserve.kv_cache.available_bytes", lambda device: 5 * 8192 + 99)
    assert blocks_of(settings(kv_pool_tokens=5 * 16)) == 5
    with pytest.raises(ConfigError) as caught:
        blocks_of(settings(kv_pool_tokens=10**15))
    assert str(caught.value) == (
        "kv_pool_tokens=1000000000000000 needs 62500000000000 blocks of 8192 bytes, and of "
        "0 MiB at hand there is room for 80 tokens"
    )


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_on_a_card_nine_tenths_of_its_free_memory_are_at_hand(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    """Free once torch has given back what it kept after loading the weights."""
    kept = [64 * 8192]
    card = SimpleNamespace(
        empty_cache=kept.clear, mem_get_info=lambda device: (100 * 8192 - sum(kept), 10**12)
    )
    monkeypatch.setitem(kv_cache._CARDS, kind, card)
    pool = size_pool(
        settings(max_slots=99), block_bytes=8192, max_model_len=100, device=torch.device(kind)
    )
    assert pool.num_blocks == 90
    assert "and 90% of 1 MiB at hand / 8192 B = 90 blocks" in str(pool)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_pool_is_as_large_as_its_blocks(dtype: torch.dtype):
    cache = PagedKVCache(TINY, num_blocks=6, block_size=3, device=CPU, dtype=dtype)
    block = block_bytes(TINY, block_size=3, dtype=dtype)
    assert cache.keys.nbytes + cache.values.nbytes == 6 * block


def test_a_containers_limit_leaves_what_is_not_used_or_can_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kv_cache, "_CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(kv_cache, "_host_available", lambda: 10_000)
    assert available_bytes(CPU) == 10_000, "no control group"
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    assert available_bytes(CPU) == 100, "nothing is known of files"
    (tmp_path / "memory.stat").write_text(
        "anon 200\nfile 700\ninactive_anon 5\ninactive_file 600\nactive_file 100\n"
    )
    assert available_bytes(CPU) == 700
    (tmp_path / "memory.current").write_text("2000\n")
    assert available_bytes(CPU) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(CPU) == 10_000, "no limit"


def test_this_machine_has_memory():
    assert 2**20 < available_bytes(CPU) < 2**50
