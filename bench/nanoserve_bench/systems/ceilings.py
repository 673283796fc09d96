"""What a device can do at best: how fast it reads memory, and how fast it multiplies matrices.

Measured by a worker in every block, over a buffer as large as the model's weights, so that a cell
can be shown as a share of what was physically there, and one above it be refused. The best of
several repetitions counts: a ceiling that contention lowered is none. Imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from nanoserve_bench.protocol import Ceilings
from nanoserve_bench.systems.torch_facts import synchronise

REPETITIONS = 5
_LONGEST_S = 2.0  # a dtype without instructions for it is slow: its first repetitions will do
_SIDE = {"cpu": 1024, "mps": 2048}
_SIDE_OF_A_CARD = 8192


def measure(*, device: str, dtype: str, buffer_bytes: int) -> Ceilings:
    """Measure both ceilings.

    Args:
        device: Torch device name.
        dtype: Dtype of the matrices; what is read does not depend on it.
        buffer_bytes: Size of the buffer, in bytes.
    """
    return Ceilings(
        read_bytes_per_s=_read_rate(device, buffer_bytes),
        matmul_flop_per_s=_multiply_rate(device, dtype),
    )


def reads(device: str, buffer_bytes: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Two ways to read a buffer of 32-bit words once: a sum and a dot product."""
    words = torch.ones(max(1, buffer_bytes // 4), dtype=torch.float32, device=device)
    return words.sum, lambda: torch.dot(words, words)


def _read_rate(device: str, buffer_bytes: int) -> float:
    """Bytes per second at which a buffer is read, the faster way."""
    best_s = min(_best_s(read, device) for read in reads(device, buffer_bytes))
    return max(1, buffer_bytes // 4) * 4 / best_s


def _multiply_rate(device: str, dtype: str) -> float:
    """Operations per second of a product of two n x n matrices, which is 2 n^3 of them."""
    side = _SIDE.get(device.partition(":")[0], _SIDE_OF_A_CARD)
    matrix = torch.full((side, side), 0.5, dtype=getattr(torch, dtype), device=device)
    return 2 * side**3 / _best_s(lambda: matrix @ matrix, device)


def _best_s(run: Callable[[], object], device: str) -> float:
    run()  # the first call pays for threads, pages and kernels
    synchronise(device)
    times_ns: list[int] = []
    while len(times_ns) < REPETITIONS and sum(times_ns) < _LONGEST_S * 1e9:
        start_ns = time.perf_counter_ns()
        run()
        synchronise(device)
        times_ns.append(max(1, time.perf_counter_ns() - start_ns))
    return min(times_ns) / 1e9
