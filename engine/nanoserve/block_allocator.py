"""Blocks of the KV cache: who owns which, and the law that none is lost.

The cache is cut into blocks of ``block_size`` tokens. A sequence owns whole blocks, listed in its
``BlockTable`` in the order of its tokens, so it grows one block at a time, wherever a block is
free: nothing is reserved for tokens that may never come, and nothing is ever moved.

The allocator counts references per block, because several tables may read a block that the prefix
cache knows. A block whose count is zero is

- *free*, if nobody can want what it holds;
- *idle*, if it is in the prefix cache. It can be had as well, but only when no block is free, and
  then that which has been idle for longest goes first. A sequence gives its last block back first,
  so the end of a prefix goes before its beginning.

``check_integrity`` states the conservation law and is run after every step of the property tests.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from nanoserve.errors import IntegrityError
from nanoserve.prefix_cache import PrefixCache


class BlockAllocator:
    """Hands out block ids and takes them back.

    The free list is a stack: a block given back last goes out first, so a lightly loaded engine
    keeps to few pages of memory.

    Attributes:
        prefixes: Which blocks hold which prefix; empty where nobody puts anything in.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefixes = PrefixCache()
        self._free: list[int] = []
        self._idle: dict[int, None] = {}  # in the order in which they became idle
        self._references: list[int] = []
        self.reset()

    def reset(self) -> None:
        """Nobody owns anything, and no block holds anything worth keeping."""
        self._free = list(range(self.num_blocks - 1, -1, -1))
        self._idle = {}
        self._references = [0] * self.num_blocks
        self.prefixes.clear()

    @property
    def num_free(self) -> int:
        """Blocks that nobody owns: free and idle ones."""
        return len(self._free) + len(self._idle)

    def is_owned(self, block: int) -> bool:
        """Whether a sequence owns the block."""
        return self._references[block] > 0

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` tokens need, the last one perhaps in part."""
        return -(-num_tokens // self.block_size)

    def allocate(self) -> int:
        """Take one free block, or else the longest idle one, with one reference.

        Raises:
            IntegrityError: When there is none; callers ask ``num_free`` first.
        """
        if self._free:
            block = self._free.pop()
        elif self._idle:
            block = next(iter(self._idle))
            del self._idle[block]
            self.prefixes.forget(block)
        else:
            raise IntegrityError("a block was asked for, and none is free")
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add a reference to a block that somebody owns, or that is idle."""
        if self._references[block] == 0:
            if block not in self._idle:
                raise IntegrityError(f"block {block} is free and cannot be shared")
            del self._idle[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop one reference; the block is free, or idle, when it was the last."""
        if self._references[block] == 0:
            raise IntegrityError(f"block {block} is released twice")
        self._references[block] -= 1
        if self._references[block] == 0:
            if block in self.prefixes:
                self._idle[block] = None
            else:
                self._free.append(block)

    def check_integrity(self, tables: Iterable["BlockTable"]) -> None:
        """Check that every block is free, idle or owned, and owned as often as it is counted.

        Args:
            tables: The block tables of every live sequence.

        Raises:
            IntegrityError: Naming each block that is leaked, doubled or miscounted.
        """
        rows = [table.blocks for table in tables]
        owned = Counter(block for row in rows for block in row)
        free = Counter(self._free)
        faults = [
            f"block {block}: counted {count}, in {owned[block]} tables, {free[block]} times on the "
            f"free list, {'' if block in self._idle else 'not '}idle, "
            f"{'' if block in self.prefixes else 'not '}cached"
            for block, count in enumerate(self._references)
            if count != owned[block]
            or free[block] + (block in self._idle) != (count == 0)
            or (block not in self.prefixes and (block in self._idle or count > 1))
        ]
        faults += [
            f"block {block} does not exist" for block in (owned | free) if block >= self.num_blocks
        ]
        faults += [f"twice in one table: {row}" for row in rows if len(set(row)) < len(row)]
        faults += self.prefixes.faults()
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

    def adopt(self, blocks: Sequence[int]) -> int:
        """Begin with whole blocks that hold the sequence's first tokens already, to be read only.

        Returns:
            How many tokens they hold.
        """
        for block in blocks:
            self._allocator.share(block)
            self.blocks.append(block)
        return len(blocks) * self._allocator.block_size

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
