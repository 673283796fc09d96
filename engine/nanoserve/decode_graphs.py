"""Decode steps that are recorded once and replayed: fixed memory, a few fixed batch sizes.

Launching a kernel costs the host more than a small kernel costs the card, and a decode step is
hundreds of small kernels. A CUDA graph replays all of them with one call, as long as every one of
them reads and writes where it did when it was recorded. So a recorded step reads its tokens,
positions, slots and block tables from buffers that are filled before each replay, and there is a
recording for each of a few batch sizes, the *buckets*; a batch between two of them is padded.

A padding row is token 0 at position 0 of a sequence of its own, whose only block is the *scratch
block*, one that the allocator does not know. It attends to itself, and nobody reads what comes out.
"""

from collections.abc import Callable, Sequence

import torch

from nanoserve.scheduler import ScheduledRow

Step = Callable[[], torch.Tensor]
"""A forward pass over what the buffers hold, to logits."""

_WARM_UPS = 2  # the first pass compiles kernels and makes workspaces, which must not be recorded


def buckets(most: int) -> tuple[int, ...]:
    """Batch sizes to record: the powers of two below ``most``, and ``most``, ascending."""
    powers = []
    size = 1
    while size < most:
        powers.append(size)
        size *= 2
    return (*powers, most)


class DecodeBuffers:
    """What a recorded step reads, at fixed places in memory.

    Everything goes through one staging buffer on the host, pinned where the device is a card, so
    that filling never waits for the device.

    Args:
        rows: Most rows of a step.
        blocks: Most blocks of a sequence.
        block_size: Tokens in a block.
        scratch_block: The block that padding rows use.
        device: Where the step runs.

    Attributes:
        token_ids: The rows' tokens, ``[rows]``, int64.
        positions: Their places in their sequences, ``[rows]``, int64.
        slots: Where their keys and values go, ``[rows]``, int64.
        tables: Their block tables, ``[rows, blocks]``, int32.
    """

    def __init__(
        self,
        *,
        rows: int,
        blocks: int,
        block_size: int,
        scratch_block: int,
        device: torch.device,
    ) -> None:
        on_card = device.type == "cuda"
        self._block_size = block_size
        self._scratch_block = scratch_block
        self._staged = torch.zeros(3, rows, dtype=torch.int64, device="cpu", pin_memory=on_card)
        self._staged_tables = torch.full(
            (rows, blocks), scratch_block, dtype=torch.int32, device="cpu", pin_memory=on_card
        )
        # The same memory; numpy takes lists of integers several times faster than torch.
        self._numbers = self._staged.numpy()
        self._blocks = self._staged_tables.numpy()
        self._known: list[list[int]] = [[scratch_block]] * rows
        self._copied = torch.cuda.Event() if on_card else None  # type: ignore[no-untyped-call]

        self._device_numbers = torch.zeros_like(self._staged, device=device)
        self._device_numbers[2] = scratch_block * block_size
        self.token_ids, self.positions, self.slots = self._device_numbers
        self.tables = torch.full_like(self._staged_tables, scratch_block, device=device)

    def fill(self, rows: Sequence[ScheduledRow], bucket: int) -> None:
        """Put in the rows of a step, one token each, and padding up to the bucket's size."""
        if self._copied is not None:
            self._copied.synchronize()  # the staging buffer may still be on its way to the card
        count = len(rows)
        numbers, block_size = self._numbers, self._block_size
        positions = [row.start for row in rows]
        tables = [row.request.table.blocks for row in rows]
        numbers[0, :count] = [row.request.token_ids[row.start] for row in rows]
        numbers[1, :count] = positions
        numbers[2, :count] = [
            table[position // block_size] * block_size + position % block_size
            for table, position in zip(tables, positions, strict=True)
        ]
        numbers[:2, count:bucket] = 0
        numbers[2, count:bucket] = self._scratch_block * block_size
        padding = [[self._scratch_block]] * (bucket - count)
        self._device_numbers.copy_(self._staged, non_blocking=True)
        self._fill_tables([*tables, *padding])
        if self._copied is not None:
            self._copied.record()

    def _fill_tables(self, tables: Sequence[list[int]]) -> None:
        """Send the tables that are not those of the step before, and what lies between them."""
        changed = [row for row, table in enumerate(tables) if table != self._known[row]]
        for row in changed:
            self._known[row] = list(tables[row])
            self._blocks[row, : len(tables[row])] = tables[row]
        if changed:
            span = slice(changed[0], changed[-1] + 1)
            self.tables[span].copy_(self._staged_tables[span], non_blocking=True)


class GraphRecorder:
    """Records steps as CUDA graphs that share one pool of memory.

    A replay may overwrite what another graph computed, so a result is good until the next one.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> Step:
        """Record a step on the current device.

        Returns:
            Its replay, which gives the same tensor each time.

        Raises:
            RuntimeError: The step does something that cannot be recorded, or memory ran out.
        """
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = step()

        def replay() -> torch.Tensor:
            graph.replay()
            return logits

        return replay
