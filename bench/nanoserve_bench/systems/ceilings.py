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

    Reading does not depend on the dtype: a buffer is read as 32-bit words, by a sum and by a dot
    product, of which the faster counts. A product of two n x n matrices is 2 n^3 operations.

    Args:
        device: Torch device name.
        dtype: Dtype of the matrices.
        buffer_bytes: Size of the buffer, in bytes.
    """
    words = torch.ones(max(1, buffer_bytes // 4), dtype=torch.float32, device=device)
    read_s = min(
        _best_s(lambda: words.sum(), device), _best_s(lambda: torch.dot(words, words), device)
    )
    read_bytes = words.numel() * 4
    del words
    side = _SIDE.get(device.partition(":")[0], _SIDE_OF_A_CARD)
    matrix = torch.full((side, side), 0.5, dtype=getattr(torch, dtype), device=device)
    product_s = _best_s(lambda: matrix @ matrix, device)
    return Ceilings(
        read_bytes_per_s=read_bytes / read_s, matmul_flop_per_s=2 * side**3 / product_s
    )


def _best_s(run: Callable[[], object], device: str) -> float:
    run()  # the first call pays for threads, pages and kernels
    synchronise(device)
    best_ns, spent_ns = None, 0
    for _ in range(REPETITIONS):
        start_ns = time.perf_counter_ns()
        run()
        synchronise(device)
        took_ns = max(1, time.perf_counter_ns() - start_ns)
        spent_ns += took_ns
        best_ns = took_ns if best_ns is None else min(best_ns, took_ns)
        if spent_ns > _LONGEST_S * 1e9:
            break
    assert best_ns is not None
    return best_ns / 1e9
