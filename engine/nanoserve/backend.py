"""What computes a step, and which of the ways to do so runs here.

====================== ==========================================================================
``CompiledBackend``    CPU with AVX2 or AVX-512, float32: one call into C++ for a step
``CudaBackend``        CUDA with Triton: attention through block tables, decoding in CUDA graphs
``TorchBackend``       everywhere else, and whenever ``kernel="torch"`` asks for it
====================== ==========================================================================

All read the same checkpoints and compute the same logits to rounding; the engine's description
says which one ran, and the log why it was not the faster one.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

import torch

from nanoserve.config import EngineConfig
from nanoserve.kernels.backend import CompiledBackend
from nanoserve.kernels.library import KernelsUnavailable, load_kernels
from nanoserve.models.model_config import ModelConfig
from nanoserve.scheduler import SchedulerOutput
from nanoserve.torch_backend import TorchBackend

_log = logging.getLogger(__name__)


class Backend(Protocol):
    """Weights, KV pool and forward pass. ``load`` comes first, then ``reserve``, then steps.

    Attributes:
        kernel_path: What multiplies by weights.
        attention_path: How attention reads the cache.
    """

    kernel_path: str
    attention_path: str

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take the weights: every tensor of ``parameter_shapes``, in ascending order of names."""

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block of the pool that ``reserve`` makes."""

    def reserve(self, *, num_blocks: int, block_size: int) -> None:
        """Make the KV pool."""

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        """Compute a step.

        Returns:
            Logits of the next token of each row that samples, ``[rows, vocab_size]``, valid until
            the next step.
        """

    def highest(self, logits: torch.Tensor) -> list[int | None]:
        """The greedy choice of each row, as ``sampler.highest`` makes it."""


def choose_backend(settings: EngineConfig, config: ModelConfig, *, max_positions: int) -> Backend:
    """The fastest backend that runs this model here."""
    device, dtype = torch.device(settings.device), settings.torch_dtype
    if settings.kernel == "torch":
        _log.info("compiled kernels are not used: kernel='torch' asks for torch")
    elif device.type == "cpu" and dtype == torch.float32:
        try:
            return CompiledBackend(config, load_kernels(), max_positions=max_positions)
        except KernelsUnavailable as reason:
            _log.warning("compiled kernels are not used, and torch is slower here: %s", reason)
    elif device.type == "cuda":
        try:
            from nanoserve.cuda_backend import CudaBackend  # noqa: PLC0415 - needs Triton

            return CudaBackend(
                config,
                device=device,
                dtype=dtype,
                max_positions=max_positions,
                max_slots=settings.max_slots,
            )
        except (ImportError, KernelsUnavailable) as reason:
            _log.warning("Triton's kernels are not used, and torch is slower here: %s", reason)
    return TorchBackend(
        config,
        device=device,
        dtype=dtype,
        max_positions=max_positions,
        max_slots=settings.max_slots,
    )
