"""Keys stand for all that came before, and blocks that nobody owns are kept until needed."""

from __future__ import annotations

import random

import pytest

from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.errors import IntegrityError
from nanoserve.prefix_cache import PrefixCache, extend_keys


def keys_of(tokens: list[int], block_size: int = 2) -> list[bytes]:
    keys: list[bytes] = []
    extend_keys(keys, tokens, block_size=block_size, num_blocks=len(tokens) // block_size)
    return keys


def test_a_key_stands_for_its_block_and_for_everything_before_it():
    one, other = keys_of([1, 2, 3, 4]), keys_of([9, 2, 3, 4])
    assert one == keys_of([1, 2, 3, 4, 5])
    assert len({*one, *other}) == 4, "the second blocks are alike, and their pasts are not"
    assert keys_of([1, 2, 2, 1])[0] == one[0]
    assert keys_of([1, 2, 3], 1)[1] != keys_of([1, 3, 2], 1)[1]


def test_ids_cannot_run_into_each_other():
    assert keys_of([1, 23]) != keys_of([12, 3])
    assert keys_of([0, 1]) != keys_of([1, 0]) != keys_of([256, 0])
    assert len(set(keys_of([0, 0, 0, 0]))) == 2


def test_keys_grow_with_the_sequence():
    tokens, keys = [1, 2, 3], keys_of([1, 2])
    extend_keys(keys, tokens, block_size=2, num_blocks=1)
    assert len(keys) == 1
    tokens += [4, 5, 6]
    extend_keys(keys, tokens, block_size=2, num_blocks=3)
    assert keys == keys_of([1, 2, 3, 4, 5, 6])


def test_the_longest_known_prefix_is_found_and_no_further():
    cache, keys = PrefixCache(), keys_of([1, 2, 3, 4, 5, 6])
    cache.add(keys[0], 7)
    cache.add(keys[2], 9)
    assert cache.find(keys) == [7], "what comes before the third block is not there"
    cache.add(keys[1], 8)
    assert cache.find(keys) == [7, 8, 9]
    assert cache.find(keys_of([5, 5])) == []
    cache.forget(8)
    assert cache.find(keys) == [7]


def test_of_two_blocks_with_one_content_the_first_stays():
    cache, keys = PrefixCache(), keys_of([1, 2])
    cache.add(keys[0], 3)
    cache.add(keys[0], 4)
    assert (3 in cache, 4 in cache, len(cache)) == (True, False, 1)
    assert cache.faults() == []


def pool(blocks: int = 4) -> tuple[BlockAllocator, list[bytes]]:
    """A pool whose first three blocks were filled, cached, and given back in their order."""
    allocator = BlockAllocator(blocks, block_size=2)
    keys = keys_of([1, 2, 3, 4, 5, 6])
    taken = [allocator.allocate() for _ in keys]
    for key, block in zip(keys, taken, strict=True):
        allocator.prefixes.add(key, block)
    for block in taken:
        allocator.release(block)
    return allocator, keys


def test_a_cached_block_that_nobody_owns_is_kept_until_no_other_is_free():
    allocator, keys = pool()
    assert allocator.num_free == 4
    assert allocator.allocate() == 3
    assert allocator.prefixes.find(keys) == [0, 1, 2]
    assert allocator.allocate() == 0, "idle for longest"
    assert allocator.prefixes.find(keys) == []
    assert allocator.num_free == 2


def test_a_block_that_was_read_again_has_not_been_idle_for_longest():
    allocator, _ = pool(3)
    allocator.share(0)
    allocator.release(0)
    assert [allocator.allocate() for _ in range(3)] == [1, 2, 0]
    with pytest.raises(IntegrityError, match="none is free"):
        allocator.allocate()


def test_of_a_sequence_given_back_the_end_goes_first():
    allocator = BlockAllocator(3, block_size=2)
    table = BlockTable(allocator)
    table.grow_to(6)
    for key, block in zip(keys_of([1, 2, 3, 4, 5, 6]), table.blocks, strict=True):
        allocator.prefixes.add(key, block)
    table.release()
    assert [allocator.allocate() for _ in range(3)] == [2, 1, 0]


def test_an_idle_block_can_be_adopted_and_is_idle_again_when_its_last_reader_lets_go():
    allocator, keys = pool()
    first, second = BlockTable(allocator), BlockTable(allocator)
    assert first.adopt(allocator.prefixes.find(keys)) == 6
    assert second.adopt(allocator.prefixes.find(keys[:1])) == 2
    allocator.check_integrity([first, second])
    assert (first.blocks, second.blocks, allocator.num_free) == ([0, 1, 2], [0], 1)
    first.release()
    assert allocator.num_free == 3, "the second still reads the first block"
    second.release()
    assert allocator.num_free == 4
    allocator.check_integrity([])


def test_a_block_that_holds_something_else_is_forgotten():
    allocator, keys = pool(3)
    table = BlockTable(allocator)
    table.grow_to(6)
    assert len(allocator.prefixes) == 0
    table.release()
    assert allocator.prefixes.find(keys) == []
    allocator.check_integrity([])


def test_after_a_reset_everything_is_free_and_nothing_cached():
    allocator, keys = pool()
    BlockTable(allocator).adopt([0, 1])
    allocator.reset()
    assert (allocator.num_free, allocator.prefixes.find(keys)) == (4, [])
    allocator.check_integrity([])


@pytest.mark.parametrize(
    "kind",
    [
        "idle and free",
        "idle and owned",
        "idle, not cached",
        "shared, not cached",
        "twice in one",
        "a key astray",
        "a key too many",
    ],
)
def test_the_integrity_check_finds_a_block_that_is(kind: str):
    allocator, keys = pool(6)
    tables = [BlockTable(allocator), BlockTable(allocator)]
    for table in tables:
        table.adopt([0])
        table.grow_to(4)
    allocator.check_integrity(tables)
    match kind:
        case "idle and free":
            allocator._free.append(1)
        case "idle and owned":
            allocator._idle[0] = None
        case "idle, not cached":
            allocator.prefixes.forget(1)
        case "shared, not cached":
            allocator.prefixes.forget(0)
        case "twice in one":
            tables[0].adopt([0])
        case "a key astray":
            allocator.prefixes._block_of[keys[1]] = 2
        case "a key too many":
            allocator.prefixes._block_of[b"?"] = 2
    with pytest.raises(IntegrityError):
        allocator.check_integrity(tables)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_conserved_and_what_is_found_is_what_was_stored(seed: int):
    rng = random.Random(seed)
    allocator = BlockAllocator(12, block_size=3)
    stored: dict[int, tuple[int, ...]] = {}  # the whole past of each block
    tables = [BlockTable(allocator) for _ in range(5)]
    hits = 0
    for _ in range(1500):
        table = rng.choice(tables)
        table.release()
        tokens = [rng.randrange(2) for _ in range(rng.randrange(13))]
        keys = keys_of(tokens, 3)
        found = allocator.prefixes.find(keys)
        own = sum(map(allocator.is_owned, found))
        if allocator.blocks_for(len(tokens)) - own <= allocator.num_free:
            hits += len(found)
            for index, block in enumerate(found):
                assert stored[block] == tuple(tokens[: 3 * index + 3])
            table.adopt(found)
            table.grow_to(len(tokens))
            for index, key in enumerate(keys):
                stored.setdefault(table.blocks[index], ())
                if index >= len(found):
                    stored[table.blocks[index]] = tuple(tokens[: 3 * index + 3])
                allocator.prefixes.add(key, table.blocks[index])
        allocator.check_integrity(tables)
    assert hits > 500
