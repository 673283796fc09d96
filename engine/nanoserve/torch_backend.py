"""A step in torch: on any device, in any dtype, and what the kernels are tested against."""

from collections.abc import Iterable
from functools import partial

import torch

from nanoserve.attention import ATTENTION_PATH, AttentionPlan, paged_attention
from nanoserve.kv_cache import PagedKVCache, block_bytes
from nanoserve.linear import choose_kernel
from nanoserve.models.decoder import Decoder
from nanoserve.models.model_config import ModelConfig
from nanoserve.pointwise import TorchPointwise
from nanoserve.sampler import highest
from nanoserve.scheduler import SchedulerOutput


class TorchBackend:
    """``Decoder`` over a ``PagedKVCache``.

    Args:
        config: The model's shape.
        device: Where to run.
        dtype: Dtype of weights, activations and cache.
        max_positions: Positions the rotary table is made for.
        max_slots: Most rows of a decode step.
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
    ) -> None:
        self._config = config
        self._device = device
        self._dtype = dtype
        self._max_positions = max_positions
        self._windows = config.hiding_windows(max_positions)
        self._kernel = choose_kernel(device, dtype, max_slots=max_slots)
        self.kernel_path = self._kernel.path
        self._model: Decoder
        self._cache: PagedKVCache

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Pack the weights."""
        self._model = Decoder(
            self._config,
            tensors,
            kernel=self._kernel,
            pointwise=TorchPointwise(),
            max_positions=self._max_positions,
        )

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block of the pool."""
        return block_bytes(self._config, block_size=block_size, dtype=self._dtype)

    def reserve(self, *, num_blocks: int, block_size: int) -> None:
        """Make the KV pool."""
        self._cache = PagedKVCache(
            self._config,
            num_blocks=num_blocks,
            block_size=block_size,
            device=self._device,
            dtype=self._dtype,
        )

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        """Flatten the rows of a step into one batch, and run it through the model."""
        self._cache.clean(plan.new_blocks)
        token_ids: list[int] = []
        positions: list[int] = []
        last: list[int] = []
        for row in plan.rows:
            stop = row.start + row.length
            token_ids += row.request.token_ids[row.start : stop]
            positions += range(row.start, stop)
            if row.samples:
                last.append(len(token_ids) - 1)
        seen = AttentionPlan.build(plan.rows, cache=self._cache, windows=self._windows)
        return self._model.forward(
            torch.tensor(token_ids, device=self._device),
            torch.tensor(positions, device=self._device),
            torch.tensor(last, device=self._device, dtype=torch.int64),
            attend=partial(paged_attention, cache=self._cache, plan=seen),
        )
