"""Keys and values of every cached token, in blocks.

Two tensors hold the whole pool, ``[layers, blocks, block_size, kv_heads, head_dim]``. A token's
place is its *slot*, ``block * block_size + offset``; the scheduler's block tables say which blocks
belong to which sequence. The memory is reserved once and never initialised as a whole: the
operating system commits a page when it is first written.

A block is cleaned when it changes hands. Readers fetch whole blocks and mask what lies behind
the end of a sequence, and a mask cannot hide a NaN (0 * NaN is NaN); cleaning is what
guarantees that no request ever sees anything of another.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nanoserve.config import EngineConfig
from nanoserve.errors import ConfigError
from nanoserve.models.model_config import ModelConfig

_log = logging.getLogger(__name__)

# Percent of the memory at hand that the pool may take by default. A CPU shares it with everybody;
# on a card, the rest is for what a step computes in passing.
_PERCENT_OF_HOST = 50
_PERCENT_OF_DEVICE = 90
_CARDS: dict[str, Any] = {"cuda": torch.cuda, "xpu": torch.xpu}  # with memory of their own
_CONTROL_GROUP = Path("/sys/fs/cgroup")


class PagedKVCache:
    """The pool's tensors.

    Args:
        config: Shape of the model.
        num_blocks: Blocks in the pool.
        block_size: Tokens in a block.
        device: Where the pool lives.
        dtype: Dtype of keys and values.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_blocks: int,
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.keys = torch.empty(shape, device=device, dtype=dtype)
        self.values = torch.empty(shape, device=device, dtype=dtype)
        # The same memory: a layer's blocks, and its slots.
        self._blocks = list(zip(self.keys, self.values, strict=True))
        self._slots = [(keys.flatten(0, 1), values.flatten(0, 1)) for keys, values in self._blocks]
        self._room = _Room(self.keys)

    def clean(self, blocks: Sequence[int]) -> None:
        """Zero the blocks that change hands, in all layers."""
        if blocks:
            index = torch.tensor(blocks, device=self.keys.device)
            self.keys.index_fill_(1, index, 0)
            self.values.index_fill_(1, index, 0)

    def write(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Store the keys and values, ``[tokens, kv_heads, head_dim]``, of tokens at ``slots``."""
        key_slots, value_slots = self._slots[layer]
        key_slots.index_copy_(0, slots, keys)
        value_slots.index_copy_(0, slots, values)

    def read(
        self, layer: int, blocks: torch.Tensor, *, sequences: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fetch whole blocks of some sequences.

        They come into the same memory every time: making room for them anew, page by page, takes
        longer than the copying.

        Args:
            layer: Which layer.
            blocks: Ids, those of one sequence after those of the other, the same number of each.
            sequences: How many there are.

        Returns:
            Keys and values, each ``[sequences, kv_heads, tokens, head_dim]``, valid until the
            next call.
        """
        keys, values = self._blocks[layer]
        room = self._room.of(len(blocks), sequences)
        torch.index_select(keys, 0, blocks, out=room.keys)
        torch.index_select(values, 0, blocks, out=room.values)
        return room.by_head


class _Room:
    """Memory for what is fetched, and how it was looked at last: all layers of a step are alike."""

    def __init__(self, pool: torch.Tensor) -> None:
        self._memory = pool.new_empty(2, 0)
        self._block = pool.shape[2:]
        self._last = (0, 0)
        self.keys = self.values = self._memory[0]
        self.by_head = (self.keys, self.values)

    def of(self, blocks: int, sequences: int) -> "_Room":
        """Make it fit: ``keys`` and ``values`` block by block, and ``by_head`` by sequence."""
        if self._last != (blocks, sequences):
            self._last = (blocks, sequences)
            size = blocks * self._block.numel()
            if size > self._memory.shape[1]:
                self._memory = self._memory.new_empty(2, size + size // 2)
            self.keys, self.values = self._memory[:, :size].view(2, blocks, *self._block)
            shape = (sequences, -1, *self._block[1:])
            keys, values = (part.view(shape).transpose(1, 2) for part in (self.keys, self.values))
            self.by_head = (keys, values)
        return self


def block_bytes(config: ModelConfig, *, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block of a ``PagedKVCache``: keys and values, all layers."""
    features = config.num_layers * config.num_kv_heads * config.head_dim
    return 2 * features * block_size * dtype.itemsize


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSize:
    """How large the pool is, and why; as a string, the whole arithmetic in a line.

    Attributes:
        num_blocks: Blocks in the pool.
        block_size: Tokens in a block.
        block_bytes: Bytes of a block, all layers.
        why: Where the number of blocks comes from.
    """

    num_blocks: int
    block_size: int
    block_bytes: int
    why: str

    def __str__(self) -> str:
        mebibytes = self.num_blocks * self.block_bytes / 2**20
        return (
            f"{self.why} -> {self.num_blocks} blocks of {self.block_size} tokens "
            f"x {self.block_bytes} B = {mebibytes:.1f} MiB"
        )


def size_pool(
    settings: EngineConfig, *, block_bytes: int, max_model_len: int, device: torch.device
) -> PoolSize:
    """How many blocks the pool gets; the arithmetic goes to the log.

    Args:
        settings: The engine's.
        block_bytes: What a block takes in the layout that it will have.
        max_model_len: Most tokens of a request.
        device: Where the pool will live.

    Returns:
        ``kv_pool_tokens / block_size`` blocks where that is set. Otherwise every slot gets room
        for ``max_model_len`` tokens, unless that exceeds the pool's share of the memory at hand.

    Raises:
        ConfigError: When not even one block fits, or not what was asked for.
    """
    block_size, asked = settings.block_size, settings.kv_pool_tokens
    available = available_bytes(device)
    at_hand = f"{available / 2**20:.0f} MiB at hand"
    if asked is not None:
        blocks = asked // block_size
        why = f"kv_pool_tokens={asked} in whole blocks"
        if blocks * block_bytes > available:
            raise ConfigError(
                f"kv_pool_tokens={asked} needs {blocks} blocks of {block_bytes} bytes, and of "
                f"{at_hand} there is room for {available // block_bytes * block_size} tokens"
            )
    else:
        percent = _PERCENT_OF_DEVICE if device.type in _CARDS else _PERCENT_OF_HOST
        wanted = settings.max_slots * -(-max_model_len // block_size)
        fitting = available * percent // 100 // block_bytes
        blocks = min(wanted, fitting)
        why = (
            f"the smaller of {settings.max_slots} slots x {max_model_len} tokens = {wanted} "
            f"blocks, and {percent}% of {at_hand} / {block_bytes} B = {fitting} blocks"
        )
    if blocks < 1:
        raise ConfigError(f"no block of {block_bytes} bytes fits into the KV pool: {why}")
    size = PoolSize(num_blocks=blocks, block_size=block_size, block_bytes=block_bytes, why=why)
    _log.info("KV pool: %s", size)
    return size


def available_bytes(device: torch.device) -> int:
    """Memory that can still be had on the device; on the host within the control group's limit."""
    if device.type in _CARDS:
        card = _CARDS[device.type]
        card.empty_cache()  # what torch has kept since loading the weights would count as used
        free: int = card.mem_get_info(device)[0]
        return free
    limits = (_host_available(), _control_group_available())
    return min(limit for limit in limits if limit is not None)


def _host_available() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _control_group_available() -> int | None:
    """What a container's limit leaves; None where there is no limit."""
    try:
        limit = (_CONTROL_GROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_CONTROL_GROUP / "memory.current").read_text(encoding="ascii"))
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - used + _reclaimable())


def _reclaimable() -> int:
    """Files that the group's use counts, but that are dropped before memory is refused.

    A checkpoint that has just been read is such a file, as large as the weights.
    """
    try:
        stat = (_CONTROL_GROUP / "memory.stat").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in stat.splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0
