"""A step on a CUDA card: the torch model, attention through block tables, decoding in CUDA graphs.

A step in which every sequence advances by one token replays a graph (``decode_graphs``); a step
with prompts in it is launched kernel by kernel, since its shape is always another one. Both run
the same ``Decoder`` with the same attention kernel, and the host waits for the card once per
step: when the sampler fetches the tokens.

float32 is IEEE float32: products never go through TF32, whose mantissa has 10 bits.

Importing this module needs Triton.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from nanoserve.decode_graphs import DecodeBuffers, GraphRecorder, Step, buckets
from nanoserve.kernels.library import KernelsUnavailable
from nanoserve.kernels.triton_attention import (
    ATTENTION_PATH,
    Tiles,
    check,
    paged_attention,
    tile_tokens,
)
from nanoserve.kernels.triton_pointwise import TritonPointwise
from nanoserve.kernels.triton_pointwise import check as check_pointwise
from nanoserve.kv_cache import PagedKVCache, block_bytes
from nanoserve.linear import PlainKernel
from nanoserve.models.decoder import Decoder
from nanoserve.models.model_config import ModelConfig
from nanoserve.pointwise import Pointwise, TorchPointwise
from nanoserve.sampler import highest
from nanoserve.scheduler import ScheduledRow, SchedulerOutput

_log = logging.getLogger(__name__)

Record = Callable[[Step], Step]


class CudaBackend:
    """``Decoder`` on a card.

    Args:
        config: The model's shape.
        device: The card.
        dtype: Dtype of weights, activations and cache.
        max_positions: Positions the rotary table is made for, and most tokens of a sequence.
        max_slots: Most rows of a decode step.
        recorder: Makes what records the steps; on a card, CUDA graphs.

    Raises:
        KernelsUnavailable: When Triton does not compile or run here.
    """

    attention_path = ATTENTION_PATH
    highest = staticmethod(highest)

    def __init__(
        self,
        config: ModelConfig,
        *,
        device: torch.device,
        dtype: torch.dtype,
        max_positions: int,
        max_slots: int,
        recorder: Callable[[], Record] = GraphRecorder,
    ) -> None:
        self._config = config
        self._device = device
        self._dtype = dtype
        self._max_positions = max_positions
        self._max_slots = max_slots
        self._recorder = recorder
        self._windows = config.hiding_windows(max_positions)
        self._group = config.num_heads // config.num_kv_heads
        self._kernel = PlainKernel()
        self._model: Decoder
        self._cache: PagedKVCache
        self._buffers: DecodeBuffers
        self._recorded: dict[int, Step] = {}
        torch.set_float32_matmul_precision("highest")
        with self._on_device():
            check(config, device=device, dtype=dtype)
            self._pointwise = self._choose_pointwise()
        self.kernel_path = f"{self._kernel.path}, {self._pointwise.path}"

    def _choose_pointwise(self) -> Pointwise:
        try:
            check_pointwise(self._config, device=self._device, dtype=self._dtype)
        except KernelsUnavailable as reason:
            _log.warning("torch computes norms, rotation and gate, and slower: %s", reason)
            return TorchPointwise()
        return TritonPointwise()

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Fuse the weights."""
        self._model = Decoder(
            self._config,
            tensors,
            kernel=self._kernel,
            pointwise=self._pointwise,
            max_positions=self._max_positions,
        )

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block of the pool."""
        return block_bytes(self._config, block_size=block_size, dtype=self._dtype)

    def reserve(self, *, num_blocks: int, block_size: int) -> None:
        """Make the KV pool, with a scratch block behind it, compile, and record decode steps."""
        scratch_block = num_blocks
        self._cache = PagedKVCache(
            self._config,
            num_blocks=num_blocks + 1,
            block_size=block_size,
            device=self._device,
            dtype=self._dtype,
        )
        self._buffers = DecodeBuffers(
            rows=self._max_slots,
            blocks=-(-self._max_positions // block_size),
            block_size=block_size,
            scratch_block=scratch_block,
            device=self._device,
        )
        with self._on_device():
            self._warm_up(scratch_block)
            self._record()

    def _warm_up(self, scratch_block: int) -> None:
        """Run a prompt of two tokens, so that no request waits for the compiler."""
        slot = scratch_block * self._cache.block_size
        self._forward(
            token_ids=[0, 0],
            positions=[0, 1],
            slots=[slot, slot],
            wanted=[1],
            tables=[[scratch_block] * 2],
            lengths=[2],
        )

    def _record(self) -> None:
        """Record a decode step for every bucket, the largest first: the others fit its memory."""
        try:
            record = self._recorder()
            for bucket in reversed(buckets(self._max_slots)):
                self._recorded[bucket] = record(self._decode_step(bucket))
        except RuntimeError as error:
            self._recorded.clear()
            first_line = str(error).partition("\n")[0]
            _log.warning("decode steps run without CUDA graphs, and slower: %s", first_line)
            return
        self.kernel_path += ", decoding in CUDA graphs"

    def _decode_step(self, bucket: int) -> Step:
        """One token for each of the first rows in the buffers, whatever they hold then."""
        buffers = self._buffers
        rows = torch.arange(bucket, device=self._device, dtype=torch.int32)
        token_ids, positions = buffers.token_ids[:bucket], buffers.positions[:bucket]
        attend = partial(
            paged_attention,
            cache=self._cache,
            windows=self._windows,
            tiles=Tiles(
                positions=positions,
                slots=buffers.slots[:bucket],
                tables=buffers.tables,
                sequences=rows,
                starts=rows,
                lengths=torch.ones_like(rows),
                tokens=1,
            ),
        )
        wanted = rows.long()
        return lambda: self._model.forward(token_ids, positions, wanted, attend=attend)

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        """Compute a step.

        Blocks that change hands are not cleaned: the kernel reads only what was written since.
        """
        rows = plan.rows
        with self._on_device():
            if all(row.length == 1 and row.samples for row in rows):
                fitting = [bucket for bucket in self._recorded if bucket >= len(rows)]
                if fitting:
                    bucket = min(fitting)
                    self._buffers.fill(rows, bucket)
                    return self._recorded[bucket]()[: len(rows)]
            logits = self._run_eagerly(rows)
            if not len(logits) and self._device.type == "cuda":
                # Nobody will fetch a token, and the end of the step is the end of its work.
                torch.cuda.current_stream().synchronize()
            return logits

    def _run_eagerly(self, rows: Sequence[ScheduledRow]) -> torch.Tensor:
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        wanted: list[int] = []
        for row in rows:
            stop = row.start + row.length
            token_ids += row.request.token_ids[row.start : stop]
            positions += range(row.start, stop)
            slots += row.request.table.slots(row.start, stop)
            if row.samples:
                wanted.append(len(token_ids) - 1)
        return self._forward(
            token_ids=token_ids,
            positions=positions,
            slots=slots,
            wanted=wanted,
            tables=[row.request.table.blocks for row in rows],
            lengths=[row.length for row in rows],
        )

    def _forward(
        self,
        *,
        token_ids: Sequence[int],
        positions: Sequence[int],
        slots: Sequence[int],
        wanted: Sequence[int],
        tables: Sequence[Sequence[int]],
        lengths: Sequence[int],
    ) -> torch.Tensor:
        """Run tokens that lie flat, sequence after sequence.

        Args:
            token_ids: The tokens.
            positions: Their places in their sequences.
            slots: Where their keys and values go.
            wanted: Which of the tokens to take through the head.
            tables: Block table of each sequence.
            lengths: New tokens of each sequence.
        """
        tokens = tile_tokens(max(lengths), group=self._group, dtype=self._dtype)
        tiles = list(_cut(lengths, tokens))
        width = max(map(len, tables))
        padded = [block for table in tables for block in (*table, *[0] * (width - len(table)))]
        parts = [token_ids, positions, slots, wanted, *zip(*tiles, strict=True), padded]
        # One copy to the card instead of eight.
        packed = torch.tensor([number for part in parts for number in part], device="cpu")
        ids, places, slot, last, sequences, starts, sizes, blocks = torch.split(
            packed.to(self._device), [len(part) for part in parts]
        )
        return self._model.forward(
            ids,
            places,
            last,
            attend=partial(
                paged_attention,
                cache=self._cache,
                windows=self._windows,
                tiles=Tiles(
                    positions=places,
                    slots=slot,
                    tables=blocks.view(len(tables), width),
                    sequences=sequences,
                    starts=starts,
                    lengths=sizes,
                    tokens=tokens,
                ),
            ),
        )

    def _on_device(self) -> contextlib.AbstractContextManager[object]:
        """Make the card the current one: that is where Triton and graphs run."""
        if self._device.type != "cuda":
            return contextlib.nullcontext()  # Triton's interpreter
        return torch.cuda.device(self._device)


def _cut(lengths: Iterable[int], tokens: int) -> Iterable[tuple[int, int, int]]:
    """Cut each sequence's new tokens into tiles: (sequence, first token, tokens)."""
    start = 0
    for sequence, length in enumerate(lengths):
        for done in range(0, length, tokens):
            yield sequence, start + done, min(tokens, length - done)
        start += length
