"""Paged attention against the formula, with everything that must not be seen poisoned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanoserve.attention import AttentionPlan, paged_attention
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.kv_cache import PagedKVCache
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS

CPU = torch.device("cpu")
KV_HEADS, HEAD_DIM, LAYER = 2, 16, 1


def formula(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last tokens of one sequence, one head and one token at a time."""
    groups = queries.shape[1] // keys.shape[1]
    out = torch.zeros_like(queries)
    offset = len(keys) - len(queries)
    for i in range(len(queries)):
        for head in range(queries.shape[1]):
            past = slice(0, offset + i + 1)
            k, v = keys[past, head // groups], values[past, head // groups]
            out[i, head] = ((k @ queries[i, head]) / HEAD_DIM**0.5).softmax(0) @ v
    return out.flatten(1)


class Scene:
    """A cache full of NaN, a few sequences in it, and the rows of one step."""

    def __init__(self, block_size: int = 3):
        torch.manual_seed(0)
        self.allocator = BlockAllocator(60, block_size)
        self.cache = PagedKVCache(
            SYNTHETIC_CONFIGS["tiny-llama"],
            num_blocks=60,
            block_size=block_size,
            device=CPU,
            dtype=torch.float32,
        )
        self.cache.keys.fill_(float("nan"))
        self.cache.values.fill_(float("nan"))
        self.rows: list[Any] = []
        self.parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def add(self, past: int, length: int, heads: int = 6) -> None:
        """A row of ``length`` new tokens after ``past`` cached ones."""
        self.allocator.allocate()  # a stranger's block between the sequences, full of NaN
        table = BlockTable(self.allocator)
        self.cache.clean(table.grow_to(past + length))
        keys, values = torch.randn(2, past + length, KV_HEADS, HEAD_DIM)
        slots = torch.tensor(table.slots(0, past), dtype=torch.int64)
        self.cache.write(LAYER, keys[:past], values[:past], slots)
        self.rows.append(
            SimpleNamespace(
                request=SimpleNamespace(table=table),
                start=past,
                length=length,
                is_prefill=past == 0,
            )
        )
        self.parts.append((torch.randn(length, heads, HEAD_DIM), keys, values))

    def check(self) -> None:
        plan = AttentionPlan.build(self.rows, block_size=self.cache.block_size, device=CPU)
        new = [(q, k[-len(q) :], v[-len(q) :]) for q, k, v in self.parts]
        queries, keys, values = (torch.cat(tensors) for tensors in zip(*new, strict=True))
        got = paged_attention(queries, keys, values, cache=self.cache, layer=LAYER, plan=plan)
        wanted = torch.cat([formula(*part) for part in self.parts])
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_decode_rows_of_all_lengths_in_one_batch(block_size: int):
    scene = Scene(block_size)
    for past in (1, 2, 3, 5, 11, 8):
        scene.add(past, 1)
    scene.check()


def test_prompts_of_equal_and_of_other_lengths():
    scene = Scene()
    for length in (4, 4, 4, 1, 7, 7, 4):
        scene.add(0, length)
    scene.check()


def test_decode_rows_and_prompts_together():
    scene = Scene()
    for past, length in ((5, 1), (2, 1), (9, 1), (0, 6), (0, 1), (0, 6)):
        scene.add(past, length)
    scene.check()


@pytest.mark.parametrize("heads", [2, 4, 10])
def test_queries_share_kv_heads_in_order(heads: int):
    scene = Scene()
    scene.add(4, 1, heads)
    scene.add(0, 3, heads)
    scene.check()


def test_one_row_alone():
    for past, length in ((6, 1), (0, 6), (0, 1)):
        scene = Scene()
        scene.add(past, length)
        scene.check()


def test_neighbouring_prompts_of_one_length_are_one_group():
    scene = Scene()
    for past, length in ((3, 1), (0, 4), (0, 4), (0, 2), (0, 4)):
        scene.add(past, length)
    plan = AttentionPlan.build(scene.rows, block_size=3, device=CPU)
    assert [(g.start, g.count, g.length) for g in plan.prompts] == [
        (1, 2, 4),
        (9, 1, 2),
        (11, 1, 4),
    ]
