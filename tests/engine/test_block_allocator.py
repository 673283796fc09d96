"""Blocks are conserved: free or owned, owned as often as counted, and no corruption is missed."""

from __future__ import annotations

import random

import pytest

from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.errors import IntegrityError


def test_a_table_takes_whole_blocks_as_its_tokens_need_them():
    allocator = BlockAllocator(4, block_size=3)
    table = BlockTable(allocator)
    assert table.grow_to(1) == [0]
    assert table.grow_to(3) == []
    assert table.missing(4) == 1
    assert table.grow_to(7) == [1, 2]
    assert allocator.num_free == 1
    assert table.missing(1) == 0
    table.release()
    assert (table.blocks, allocator.num_free) == ([], 4)
    assert table.grow_to(7) == [0, 1, 2], "the memory used first is used first again"


def test_slots_follow_the_table_across_blocks():
    allocator = BlockAllocator(5, block_size=2)
    first, second = BlockTable(allocator), BlockTable(allocator)
    first.grow_to(2)
    second.grow_to(1)
    first.grow_to(5)
    assert first.blocks == [0, 2, 3]
    assert first.slots(1, 5) == [1, 4, 5, 6]


def test_a_block_given_back_last_goes_out_first():
    allocator = BlockAllocator(3, block_size=1)
    blocks = [allocator.allocate() for _ in range(3)]
    allocator.release(blocks[1])
    assert allocator.allocate() == blocks[1]


def test_a_shared_block_is_free_when_its_last_reader_lets_go():
    allocator = BlockAllocator(2, block_size=4)
    block = allocator.allocate()
    allocator.share(block)
    allocator.release(block)
    assert allocator.num_free == 1
    allocator.release(block)
    assert allocator.num_free == 2


@pytest.mark.parametrize("misuse", ["release", "share"])
def test_a_free_block_can_be_neither_released_nor_shared(misuse: str):
    with pytest.raises(IntegrityError, match="block 1"):
        getattr(BlockAllocator(2, block_size=4), misuse)(1)


def test_an_empty_pool_says_so():
    allocator = BlockAllocator(1, block_size=4)
    allocator.allocate()
    with pytest.raises(IntegrityError, match="none is free"):
        allocator.allocate()


def corrupted(kind: str) -> tuple[BlockAllocator, list[BlockTable]]:
    allocator = BlockAllocator(6, block_size=2)
    tables = [BlockTable(allocator), BlockTable(allocator)]
    for table in tables:
        table.grow_to(4)
    allocator.check_integrity(tables)
    match kind:
        case "leaked":
            tables[0].blocks.pop()
        case "two owners":
            tables[0].blocks[0] = tables[1].blocks[0]
        case "owned and free":
            allocator._free.append(tables[0].blocks[0])
        case "twice on the free list":
            allocator._free.append(allocator._free[0])
        case "lost from the free list":
            allocator._free.pop()
        case "miscounted":
            allocator._references[tables[0].blocks[0]] += 1
        case "no such block":
            tables[0].blocks.append(99)
    return allocator, tables


@pytest.mark.parametrize(
    "kind",
    [
        "leaked",
        "two owners",
        "owned and free",
        "twice on the free list",
        "lost from the free list",
        "miscounted",
        "no such block",
    ],
)
def test_the_integrity_check_finds(kind: str):
    allocator, tables = corrupted(kind)
    with pytest.raises(IntegrityError, match="block"):
        allocator.check_integrity(tables)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_conserved_under_random_use(seed: int):
    rng = random.Random(seed)
    allocator = BlockAllocator(12, block_size=3)
    tables = [BlockTable(allocator) for _ in range(5)]
    lengths = [0] * 5
    for _ in range(1000):
        index = rng.randrange(5)
        wanted = lengths[index] + rng.randrange(6)
        if rng.random() < 0.2:
            tables[index].release()
            lengths[index] = 0
        elif tables[index].missing(wanted) <= allocator.num_free:
            tables[index].grow_to(wanted)
            lengths[index] = wanted
        allocator.check_integrity(tables)
        assert [len(table.blocks) for table in tables] == [-(-n // 3) for n in lengths]
        assert sum(len(table.blocks) for table in tables) + allocator.num_free == 12
