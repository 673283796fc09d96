"""How long a sweep will take, before it is started and while it runs.

Where an earlier run in the results folder measured the same cell on the same model, its trials say
it. Otherwise these rough costs do, taken on a two-core server: transformers spends 62 ms on a token
of a model with 538 MB of weights, an engine with packed weights half of that on a step of any few
rows, and a worker needs some seconds to import torch and to load. They are for planning a coffee,
and nothing else.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nanoserve_bench.faults import ResultsError
from nanoserve_bench.plan import Cell, Plan
from nanoserve_bench.results import MANIFEST, read

SERIAL_BYTES_PER_S = 8.7e9
BATCH_BYTES_PER_S = 16e9
CARD_SPEEDUP = 5.0
ROW_SHARE = 0.03
"""Share of a one-row step that each further row adds."""
LAUNCH_S = 5.0
LAUNCH_BYTES_PER_S = 4e8
CEILINGS_S = 1.5
WARMUP_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Expected seconds.

    Attributes:
        launch_s: To launch one worker.
        ceilings_s: To measure the ceilings of one device and dtype.
        cells_s: Of one trial of each cell.
        measured: Cells whose cost an earlier run measured.
    """

    launch_s: float
    ceilings_s: float
    cells_s: Mapping[str, float]
    measured: frozenset[str]

    def block_s(self, plan: Plan) -> float:
        """Of one block."""
        grounds = len({(cell.device, cell.dtype) for cell in plan.cells})
        return (
            grounds * (len(plan.arms) * self.launch_s + self.ceilings_s)
            + len(plan.cells) * WARMUP_S
            + sum(self.cells_s[cell.id] for cell in plan.cells)
        )


def estimate(plan: Plan, *, weight_bytes: int, earlier: Path | None) -> Costs:
    """What a plan will cost.

    Args:
        plan: The plan.
        weight_bytes: Size of the model's weights.
        earlier: Folder with earlier runs.
    """
    known = measured_walls(earlier, plan.model) if earlier is not None else {}
    cells_s = {
        cell.id: known.get(cell.id) or _rough(plan, cell, weight_bytes) for cell in plan.cells
    }
    return Costs(
        launch_s=LAUNCH_S + weight_bytes / LAUNCH_BYTES_PER_S,
        ceilings_s=CEILINGS_S,
        cells_s=cells_s,
        measured=frozenset(known) & frozenset(cells_s),
    )


def _rough(plan: Plan, cell: Cell, weight_bytes: int) -> float:
    workload = next(w for w in plan.workloads if w.name == cell.workload)
    rate = BATCH_BYTES_PER_S if cell.system == "nanoserve" else SERIAL_BYTES_PER_S
    step_s = weight_bytes / rate * (1 + ROW_SHARE * (cell.slots - 1))
    if cell.device != "cpu":
        step_s /= CARD_SPEEDUP
    tokens = sum(one.new_tokens for one in workload.of_block(0))
    return max(workload.new_tokens, -(-tokens // cell.slots)) * step_s


def measured_walls(folder: Path, model: str) -> Mapping[str, float]:
    """Median seconds of every cell that the newest readable runs of this model measured."""
    if not folder.is_dir():
        return {}
    runs = [path for path in folder.iterdir() if (path / MANIFEST).is_file()]
    walls: dict[str, list[float]] = defaultdict(list)
    for path in sorted(runs, key=lambda path: (path / MANIFEST).stat().st_mtime)[-3:]:
        try:
            results = read(path)
        except ResultsError:
            continue  # judging it is not our business here
        if results.plan.model == model:
            for trial in results.trials:
                if not trial.warmup:
                    walls[trial.cell].append(trial.wall_ns / 1e9)
    return {cell: statistics.median(values) for cell, values in walls.items()}
