"""How long a run of the speed table will take: rough, and said beforehand.

Rates as on a two-core server (`estimate`): they are for planning a coffee, and nothing else.
"""

from __future__ import annotations

from nanoserve_bench.estimate import (
    BATCH_BYTES_PER_S,
    CEILINGS_S,
    LAUNCH_BYTES_PER_S,
    LAUNCH_S,
    ROW_SHARE,
    SERIAL_BYTES_PER_S,
    WARMUP_S,
)
from nanoserve_bench.perf.arms import Arm, Cell
from nanoserve_bench.perf.measure import Ground

_SLOWER = {"hf-generate": 1.0, "hf-static": 1.4, "nanoserve-torch": 1.5}
_RIVAL_SLOWER = 1.3
_PROMPT_TOKENS_PER_STEP = 16
"""So many prompt tokens cost as much as one decode step."""


def arm_s(arm: Arm, ground: Ground) -> float:
    """Expected seconds of one arm in one round."""
    size = ground.model.weight_bytes
    launch_s = len(arm.launches()) * (LAUNCH_S + size / LAUNCH_BYTES_PER_S)
    ceilings_s = CEILINGS_S if arm.ceilings else 0.0
    return launch_s + ceilings_s + sum(WARMUP_S + _cell_s(arm, c, ground) for c in arm.cells)


def _cell_s(arm: Arm, cell: Cell, ground: Ground) -> float:
    workload = ground.workloads[cell.workload]
    theirs = arm.system.startswith("hf-")
    rate = SERIAL_BYTES_PER_S if theirs else BATCH_BYTES_PER_S
    slower = _SLOWER.get(arm.system, _RIVAL_SLOWER if arm.rival else 1.0)
    step_s = slower * ground.model.weight_bytes / rate * (1 + ROW_SHARE * (cell.slots - 1))
    steps = -(-cell.requests // cell.slots) * workload.new_tokens
    prompts = cell.requests * workload.prompt_tokens / _PROMPT_TOKENS_PER_STEP
    return (steps + prompts) * step_s
