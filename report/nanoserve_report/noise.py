"""Which half is the noisy one? How far each arm's throughput scatters from block to block.

The source document finds its baseline to be the noisy half of every ratio, so that the headline
inherits the baseline's noise and the doublings do not. Which half is the noisy one is a property of
the machine and of what limits each side, so it is computed here, arm by arm, from the blocks of
every sweep of one setting.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from nanoserve_bench.statistics import log_of
from nanoserve_report import numbers
from nanoserve_report.study import Section
from nanoserve_report.sweeps import Sweep

NOISIER = 1.5
"""An arm scatters more than another when its scatter is more than this many times as large."""
APART = 1.3
"""Trials of one cell whose largest is more than this many times the smallest have a wide spread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
    """How far one arm's throughput strays from block to block.

    Attributes:
        arm: Name of the arm.
        deviation: Standard deviation of the logs of the throughput, pooled over cells and sweeps,
            so that neither the number of cells nor what tells them apart is in it.
        widest: Largest throughput over the smallest inside one cell of one sweep.
    """

    arm: str
    deviation: float
    widest: float

    @property
    def words(self) -> str:
        """`15 % for nanoserve (up to a factor of 1.42 in one cell)`."""
        share = numbers.significant(100 * self.deviation, 2)
        return f"{share} % for {self.arm} (up to a factor of {self.widest:.2f} in one cell)"


def scatters(section: Section) -> dict[str, Scatter]:
    """By arm, over the sound cells of every sweep; an arm without two blocks is left out."""
    squares: dict[str, float] = defaultdict(float)
    degrees: dict[str, int] = defaultdict(int)
    widest: dict[str, float] = defaultdict(float)
    for sweep in section.sweeps:
        for cell in sweep.sound_cells:
            logs = [log_of(run.throughput) for run in cell.runs.values()]
            if len(logs) < 2:
                continue
            arm = cell.cell.arm
            squares[arm] += statistics.variance(logs) * (len(logs) - 1)
            degrees[arm] += len(logs) - 1
            widest[arm] = max(widest[arm], math.exp(max(logs) - min(logs)))
    return {
        arm: Scatter(arm=arm, deviation=math.sqrt(squares[arm] / n), widest=widest[arm])
        for arm, n in degrees.items()
    }


def noisier(baseline: Scatter, candidate: Scatter) -> Scatter | None:
    """The one that scatters clearly more than the other; None where neither does."""
    for one, other in ((baseline, candidate), (candidate, baseline)):
        if one.deviation > NOISIER * other.deviation:
            return one
    return None


def words(section: Section) -> str:
    """Which half of each ratio is the noisy one here; empty where there is no ratio's worth."""
    found = scatters(section)
    base = found.get(section.lead.plan.headline_baseline)
    selves = {pair.candidate.arm for sweep in section.sweeps for pair in sweep.selves}
    rivals = [s for arm, s in found.items() if base is not None and arm not in {base.arm, *selves}]
    if base is None or not rivals:
        return ""
    listed = numbers.enumerate_words([scatter.words for scatter in (base, *rivals)])
    return (
        f"From block to block throughput scattered by {listed}: {_halves(base, rivals)}."
        f"{_bandwidth(section.sweeps)}"
    )


def trials(sweep: Sweep) -> str:
    """How far single trials of a cell lie apart, beside the memory of the same sweep.

    What is computed: in each sound cell the largest throughput of a trial over the smallest. Where
    that exceeds `APART`, a point between the two need not be near any trial, and it is said.
    """
    rates = {
        cell.cell.id: [float(run.throughput) for run in cell.runs.values()]
        for cell in sweep.sound_cells
        if len(cell.runs) > 1
    }
    wide = [
        (cell, min(rates[cell.cell.id]), max(rates[cell.cell.id]))
        for cell in sweep.sound_cells
        if cell.cell.id in rates and max(rates[cell.cell.id]) > APART * min(rates[cell.cell.id])
    ]
    if not rates:
        return ""
    if not wide:
        return (
            f"In no cell was the fastest trial more than {APART} times as fast as the slowest."
            f"{_bandwidth((sweep,))}"
        )
    listed = [
        f"{cell.cell.arm} at {numbers.count(cell.cell.slots, 'slot')} from "
        f"{numbers.significant(low)} to {numbers.significant(high)} tok/s "
        f"({high / low:.2f}{numbers.TIMES})"
        for cell, low, high in wide
    ]
    return (
        f"From the slowest trial to the fastest went {numbers.enumerate_words(listed)}. Where "
        f"that ratio exceeds {APART}, the trials may lie in groups, and a point between them is no "
        f"typical trial.{_bandwidth((sweep,))}"
    )


def _halves(base: Scatter, rivals: list[Scatter]) -> str:
    said = []
    for rival in rivals:
        noisy = noisier(base, rival)
        if noisy is None:
            said.append(f"neither {base.arm} nor {rival.arm} is clearly the noisy half")
        else:
            quiet = rival if noisy is base else base
            said.append(f"{noisy.arm} is the noisy half, {quiet.arm} the steady one")
    return "; ".join(said)


def _bandwidth(sweeps: Sequence[Sweep]) -> str:
    """How far the memory itself wandered, which is what a memory-bound side inherits."""
    rates = [
        row.read_bytes_per_s / 1e9
        for sweep in sweeps
        for row in sweep.results.ceilings
        if (row.device, row.dtype) == (sweep.setting.device, sweep.setting.dtype)
    ]
    if len(rates) < 2:
        return ""
    low, high = (numbers.significant(rate) for rate in (min(rates), max(rates)))
    return (
        f" The memory's read bandwidth, measured in every block, ranged from {low} to {high} GB/s."
    )
