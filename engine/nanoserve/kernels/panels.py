"""Weights in panels, in memory made for reading them through once a step.

A weight ``[outputs, inputs]`` is cut into panels of as many outputs as the kernel's tile is wide
(``panel_width``), and a panel lies as ``[inputs, panel_width]``: a row of inputs meets all outputs
of a panel in one pass over contiguous memory. The last panel is filled up with zeros.
"""

import contextlib
import mmap

import torch

from nanoserve.kernels.library import Matrix

_CHUNK_BYTES = 64 * 2**20
_ALIGNMENT = 16  # floats in a cache line


class WeightMemory:
    """Hands out pieces of large stretches of memory, in huge pages where the system has them.

    A step reads every page of the weights; in pages of 4 KiB, looking up where they are costs a
    noticeable share of it.
    """

    def __init__(self) -> None:
        # All of them, as long as this object lives: the kernels know a piece by its address alone.
        self._chunks: list[torch.Tensor] = []
        self._used = 0

    def take(self, size: int) -> torch.Tensor:
        """``size`` floats, zeroed, in memory that lives as long as this object."""
        if not self._chunks or self._used + size > len(self._chunks[-1]):
            self._chunks.append(huge_floats(max(size, _CHUNK_BYTES // 4)))
            self._used = 0
        piece = self._chunks[-1][self._used : self._used + size]
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return piece


def huge_floats(size: int) -> torch.Tensor:
    """``size`` floats, zeroed, in huge pages where the system has them."""
    memory = mmap.mmap(-1, size * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32)


class PackedMatrix:
    """A weight in panels.

    Args:
        weight: ``[outputs, inputs]``, float32 on the CPU.
        width: Outputs in a panel.
        memory: Where to put it.

    Attributes:
        panels: ``[panels, inputs, width]``.
        matrix: The same for the kernels; valid as long as the memory lives.
    """

    def __init__(self, weight: torch.Tensor, *, width: int, memory: WeightMemory) -> None:
        outputs, inputs = weight.shape
        count = -(-outputs // width)
        self.panels = memory.take(count * inputs * width).view(count, inputs, width)
        whole = outputs // width
        self.panels[:whole] = weight[: whole * width].view(whole, width, inputs).transpose(1, 2)
        if outputs % width:
            self.panels[whole, :, : outputs % width] = weight[whole * width :].T
        self.matrix = Matrix(panels=self.panels.data_ptr(), outputs=outputs, inputs=inputs)
