"""Blocks of the KV cache: who owns which, and the law that none is lost.

The cache is cut into blocks of ``block_size`` tokens. A sequence owns whole blocks, listed in its
``BlockTable`` in the order of its tokens, so it grows one block at a time, wherever a block is
free: nothing is reserved for tokens that may never come, and nothing is ever moved.

The allocator counts references per block, so that several tables may read one block; a block is
free exactly when its count is zero. ``check_integrity`` states the conservation law and is run
after every step of the property tests.
"""

from collections import Counter
from collections.abc import Iterable

from nanoserve.errors import IntegrityError


class BlockAllocator:
    """Hands out block ids and takes them back.

    The free list is a stack: a block given back last goes out first, so a lightly loaded engine
    keeps to few pages of memory.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self._references = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody owns."""
        return len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` tokens need, the last one perhaps in part."""
        return -(-num_tokens // self.block_size)

    def allocate(self) -> int:
        """Take one free block, with one reference.

        Raises:
            IntegrityError: When none is free; callers ask ``num_free`` first.
        """
        if not self._free:
            raise IntegrityError("a block was asked for, and none is free")
        block = self._free.pop()
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add a reference to a block that somebody already owns."""
        if self._references[block] == 0:
            raise IntegrityError(f"block {block} is free and cannot be shared")
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop one reference; the block is free when it was the last."""
        if self._references[block] == 0:
            raise IntegrityError(f"block {block} is released twice")
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free.append(block)

    def check_integrity(self, tables: Iterable["BlockTable"]) -> None:
        """Check that every block is either free or owned, and owned as often as it is counted.

        Args:
            tables: The block tables of every live sequence.

        Raises:
            IntegrityError: Naming each block that is leaked, doubled or miscounted.
        """
        owned = Counter(block for table in tables for block in table.blocks)
        free = Counter(self._free)
        faults = [
            f"block {block}: counted {self._references[block]}, "
            f"in {owned[block]} tables, {free[block]} times on the free list"
            for block in range(self.num_blocks)
            if self._references[block] != owned[block] or free[block] != (owned[block] == 0)
        ]
        faults += [
            f"block {block} does not exist" for block in (owned | free) if block >= self.num_blocks
        ]
        if faults:
            raise IntegrityError("; ".join(faults))


class BlockTable:
    """The blocks of one sequence: token ``i`` lives in ``blocks[i // block_size]``."""

    def __init__(self, allocator: BlockAllocator) -> None:
        self._allocator = allocator
        self.blocks: list[int] = []

    def missing(self, num_tokens: int) -> int:
        """Blocks still to be taken before ``num_tokens`` tokens fit."""
        return max(0, self._allocator.blocks_for(num_tokens) - len(self.blocks))

    def grow_to(self, num_tokens: int) -> list[int]:
        """Take the missing blocks for ``num_tokens`` tokens.

        Returns:
            The blocks that are new to this sequence.
        """
        new = [self._allocator.allocate() for _ in range(self.missing(num_tokens))]
        self.blocks += new
        return new

    def release(self) -> None:
        """Give every block back, the last first so that the first goes out again first."""
        while self.blocks:
            self._allocator.release(self.blocks.pop())

    def slots(self, start: int, stop: int) -> list[int]:
        """Where tokens ``start`` to ``stop`` live, as ``block * block_size + offset``."""
        size = self._allocator.block_size
        return [self.blocks[i // size] * size + i % size for i in range(start, stop)]
