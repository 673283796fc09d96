"""Paged attention against the formula, with everything that must not be seen poisoned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanoserve import attention
from nanoserve.attention import AttentionPlan, SingleTokens, WholePrompts, paged_attention
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.kv_cache import PagedKVCache
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS

CPU = torch.device("cpu")
KV_HEADS, HEAD_DIM, LAYER = 2, 16, 1


def formula(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int | None
) -> torch.Tensor:
    """Causal attention of the last tokens of one sequence, one head and one token at a time."""
    groups = queries.shape[1] // keys.shape[1]
    out = torch.zeros_like(queries)
    offset = len(keys) - len(queries)
    for i in range(len(queries)):
        for head in range(queries.shape[1]):
            stop = offset + i + 1
            past = slice(0 if window is None else max(0, stop - window), stop)
            k, v = keys[past, head // groups], values[past, head // groups]
            out[i, head] = ((k @ queries[i, head]) / HEAD_DIM**0.5).softmax(0) @ v
    return out.flatten(1)


class Scene:
    """A cache full of NaN, a few sequences in it, and the rows of one step."""

    def __init__(self, block_size: int = 3):
        torch.manual_seed(0)
        self.allocator = BlockAllocator(90, block_size)
        self.cache = PagedKVCache(
            SYNTHETIC_CONFIGS["tiny-llama"],
            num_blocks=90,
            block_size=block_size,
            device=CPU,
            dtype=torch.float32,
        )
        self.cache.keys.fill_(float("nan"))
        self.cache.values.fill_(float("nan"))
        self.rows: list[Any] = []
        self.parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def add(
        self, past: int, length: int, heads: int = 6, *, is_prefill: bool | None = None
    ) -> None:
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
                is_prefill=past == 0 if is_prefill is None else is_prefill,
            )
        )
        self.parts.append((torch.randn(length, heads, HEAD_DIM), keys, values))

    def plan(self, window: int | None = None) -> AttentionPlan:
        return AttentionPlan.build(self.rows, cache=self.cache, windows=(None, window))

    def check(self, window: int | None = None) -> None:
        plan = self.plan(window)
        new = [(q, k[-len(q) :], v[-len(q) :]) for q, k, v in self.parts]
        queries, keys, values = (torch.cat(tensors) for tensors in zip(*new, strict=True))
        got = paged_attention(queries, keys, values, cache=self.cache, layer=LAYER, plan=plan)
        wanted = torch.cat([formula(*part, window) for part in self.parts])
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


@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize(("past", "length"), [(1, 5), (3, 3), (4, 1), (17, 8), (6, 20)])
def test_a_piece_of_a_prompt_sees_its_past_and_itself(past: int, length: int, block_size: int):
    scene = Scene(block_size)
    scene.add(past, length, is_prefill=True)
    scene.check()


def test_pieces_prompts_and_decode_rows_together():
    """In any order, with neighbours of one length that must not be taken for each other."""
    scene = Scene()
    for past, length in ((5, 1), (9, 1)):
        scene.add(past, length)
    for past, length in ((4, 6), (7, 6), (0, 6), (0, 6), (3, 6), (2, 1), (0, 1), (0, 2)):
        scene.add(past, length, is_prefill=True)
    scene.check()


def test_a_piece_does_not_look_into_blocks_that_its_prompt_has_yet_to_fill():
    """They are its own, clean or not."""
    scene = Scene()
    scene.add(4, 6, is_prefill=True)
    table = scene.rows[0].request.table
    table.grow_to(40)
    scene.check()


@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize("window", [1, 2, 3, 5, 9, 11, 100])
def test_a_token_sees_no_further_than_its_window(window: int, block_size: int):
    """Decode rows, prompts shorter and longer than the window, and pieces of them, in any order."""
    scene = Scene(block_size)
    for past, length in ((11, 1), (2, 1), (8, 1), (0, 4), (0, 4), (0, 12), (7, 5), (1, 8), (0, 1)):
        scene.add(past, length)
    scene.check(window)


def test_the_queries_of_a_long_piece_take_turns(monkeypatch: pytest.MonkeyPatch):
    """However long it is, a call masks no more pairs of tokens than this."""
    monkeypatch.setattr(attention, "_MASKED", 40)
    scene = Scene()
    scene.add(5, 14)
    scene.add(0, 3)
    scene.add(30, 6)
    scene.check()
    scene.check(window=7)


def test_neighbouring_prompts_of_one_length_are_one_group():
    scene = Scene()
    for past, length in ((3, 1), (0, 4), (0, 4), (0, 2), (0, 4)):
        scene.add(past, length)
    single, *prompts = scene.plan().groups[LAYER]
    assert isinstance(single, SingleTokens)
    assert prompts == [
        WholePrompts(start=1, count=2, length=4),
        WholePrompts(start=9, count=1, length=2),
        WholePrompts(start=11, count=1, length=4),
    ]


def test_a_long_context_does_not_make_its_neighbours_long(monkeypatch: pytest.MonkeyPatch):
    """What is fetched is at most twice what is seen, and a little."""
    monkeypatch.setattr(attention, "_LITTLE", 6)
    scene = Scene()
    for past in (1, 2, 3, 29, 31, 1, 1, 1, 4, 30):
        scene.add(past, 1)
    groups = [group for group in scene.plan().groups[LAYER] if isinstance(group, SingleTokens)]
    assert [(group.start, group.count, len(group.blocks)) for group in groups] == [
        (0, 3, 6),
        (3, 4, 44),
        (7, 2, 4),
        (9, 1, 11),
    ]
    scene.check()


def test_nothing_is_fetched_that_no_window_reaches():
    scene = Scene()
    scene.add(29, 1)
    (group,) = scene.plan(window=4).groups[LAYER]
    assert isinstance(group, SingleTokens)
    table = scene.rows[0].request.table.blocks
    assert group.blocks.tolist() == table[-2:], "positions 27 to 29 and 24 to 26"
