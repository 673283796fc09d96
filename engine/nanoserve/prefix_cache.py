"""Prompts that begin alike: which block already holds which prefix.

A block's *key* is a digest of its own tokens and of the key of the block before it, so that it
stands for everything from the start of the sequence to the end of the block. Keys and values of a
token depend on that and on nothing else: of two sequences with one key in common, one can read
the other's block.

Only whole blocks have a key, and a block is never written again once it is whole. So a block that
several sequences read is one that nobody writes, and nothing is ever copied.

The digest is a cryptographic one. With a hash that can be steered, a prompt could be made to
collide with another's, and its author would be answered from a stranger's text.
"""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

_KEY_BYTES = 32


def extend_keys(
    keys: list[bytes], tokens: Sequence[int], *, block_size: int, num_blocks: int
) -> None:
    """Add the keys that are missing of a sequence's first blocks.

    Args:
        keys: Keys of its first blocks, as many as are known.
        tokens: The sequence; may have grown since, but not changed.
        block_size: Tokens in a block.
        num_blocks: How many of its blocks, all of them whole, must have a key in the end.
    """
    for index in range(len(keys), num_blocks):
        own = array("q", tokens[index * block_size : (index + 1) * block_size])
        before = keys[-1] if keys else b""
        keys.append(blake2b(before + own.tobytes(), digest_size=_KEY_BYTES).digest())


class PrefixCache:
    """Key to block, and back. Who owns a block, and when it may go, the allocator knows."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._key_of)

    def __contains__(self, block: int) -> bool:
        return block in self._key_of

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks of the longest prefix that is here."""
        found = []
        for key in keys:
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def add(self, key: bytes, block: int) -> None:
        """Say that a block holds the prefix of this key; of several that do, the first stays."""
        if self._block_of.setdefault(key, block) == block:
            self._key_of[block] = key

    def forget(self, block: int) -> None:
        """The block is about to hold something else."""
        del self._block_of[self._key_of.pop(block)]

    def clear(self) -> None:
        """Forget all blocks."""
        self._block_of.clear()
        self._key_of.clear()

    def faults(self) -> list[str]:
        """Where the two directions disagree: always nowhere."""
        return [
            f"block {block} is cached under a key that leads elsewhere"
            for block, key in self._key_of.items()
            if self._block_of.get(key) != block
        ] + ["a key leads to a block that does not know it"] * (
            len(self._block_of) != len(self._key_of)
        )
