"""Whether the warm-up had settled before the first measured block, and before the first request."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from nanoserve_bench.plan import Cell
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rule import Inspection, StudyRule
from nanoserve_bench.stamps import Stamps
from nanoserve_bench.statistics import EQUIVALENCE, log_of, t_upper_tail

FAMILY_ERROR = 0.01
"""Chance that a study of settled cells is refused, over all its cells together."""
LEAST_DRIFT = 0.05
"""A first block that is less than this much slower is not held against a cell."""
LEAST_BLOCKS = 4


def first_block_tail(logs: Sequence[float]) -> tuple[float, float]:
    """How much lower the first of several logs is than the others, and how surprising that is.

    Returns:
        The distance of the first from the mean of the others, and the one-sided probability of one
        as large where all are alike: the prediction interval of Student's t.
    """
    first, rest = logs[0], logs[1:]
    distance = statistics.fmean(rest) - first
    spread = statistics.stdev(rest) * math.sqrt(1 + 1 / len(rest))
    if spread == 0:
        return distance, 0.0 if distance > 0 else 1.0
    return distance, t_upper_tail(distance / spread, len(rest) - 1)


def first_request_logs(run: SystemRun) -> float | None:
    """Log of how much longer a token of a serial run's first request took than of its others."""
    stamps = Stamps.of(run.records)
    resident, tokens = stamps.finished_ns - stamps.arrival_ns, stamps.output_lengths
    if len(resident) < 2 or not stamps.finished or resident.min() <= 0 or tokens.min() <= 0:
        return None
    times, first = resident / tokens, stamps.arrival_ns.argmin()
    return math.log(times[first] / statistics.fmean(np.delete(times, first).tolist()))


def _settled(evidence: Evidence, inspection: Inspection) -> None:
    # In an open loop throughput is what was offered, block by block.
    offered = {w.name for w in evidence.plan.workloads if w.arrivals is not None}
    for cell in evidence.plan.cells:
        if cell.workload in offered:
            continue
        trials = [evidence.by_cell[cell.id][b] for b in sorted(evidence.by_cell[cell.id])]
        logs = [log_of(t.figures.throughput) for t in trials if t.figures is not None]
        if len(logs) < LEAST_BLOCKS or len(logs) != len(trials):
            continue
        inspection.saw()
        level = FAMILY_ERROR / len(evidence.plan.cells)
        distance, tail = first_block_tail(logs)
        if distance > math.log1p(LEAST_DRIFT) and tail < level:
            inspection.refuse_cell(
                trials[0],
                cell.id,
                cell.arm,
                f"its first block was more than {LEAST_DRIFT:.0%} slower than the others: the "
                "warm-up had not settled",
                evidence=f"one-sided p {tail:.2g}, below {level:.2g}",
            )
        if all(trial.run.shape is Shape.SERIAL for trial in trials):
            ratios = [first_request_logs(trial.run) for trial in trials]
            known = [ratio for ratio in ratios if ratio is not None]
            if len(known) == len(trials):
                requests = min(len(trial.run.records) for trial in trials)
                _check_first_request(inspection, cell, known, level, requests)
    if not inspection.examined and evidence.measured:
        inspection.not_applicable = (
            f"no cell has the {LEAST_BLOCKS} blocks that a drift could be told from"
        )


def _check_first_request(
    inspection: Inspection, cell: Cell, ratios: Sequence[float], level: float, requests: int
) -> None:
    mean, spread = statistics.fmean(ratios), statistics.stdev(ratios)
    error = spread / math.sqrt(len(ratios))
    tail = 0.0 if error == 0 else t_upper_tail(mean / error, len(ratios) - 1)
    cost = math.expm1(mean) / requests
    if cost > EQUIVALENCE and tail < level:
        inspection.refuse_cell(
            None,
            cell.id,
            cell.arm,
            "the first request of its trials takes longer per token than the others, which moves "
            f"the cell by more than {EQUIVALENCE:.0%}: the warm-up had not settled",
            evidence=f"one-sided p {tail:.2g}, below {level:.2g}",
        )


SETTLED = StudyRule(
    code="STAT003",
    name="warm-up-settled",
    sentence="Neither the first block of a cell nor the first request of its trials is slower than "
    "the rest.",
    rationale=(
        "The first cell of a benchmark was seen 30 times slower than the rest. A first block that "
        "is more than 5 % slower, or a first request that moves its trial by more than the "
        "equivalence margin of 3 %, is refused where chance would show one in a hundred studies, "
        "over all cells together: of thirty cells one may look unsettled by chance."
    ),
    remedy="Warm up longer: the warm-up of every cell is part of the trial's launch.",
    check=_settled,
)
