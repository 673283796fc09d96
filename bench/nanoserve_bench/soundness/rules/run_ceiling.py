"""Whether the device could have done what the run says it did."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from nanoserve_bench.records import NS_PER_S
from nanoserve_bench.schema import CeilingRow
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.physical import multiply_rate, read_rate
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.trialset import TrialSet

MARGIN = Fraction(3, 2)
"""A run may exceed the highest ceiling of the sweep by this much.

The read bandwidth of one quiet machine was seen to wander between 23 and 33 GB/s from run to run, a
factor of 1.43; a card that was not synchronised exceeds its memory by whole factors.
"""
SOONEST_STEP = 0.5
"""Of the time that reading the weights takes at that rate, what a single step takes at least.

The shortest of 30,000 real steps took 1.2 times as long.
"""
MOST_SPREAD = 3
"""A ceiling this many times the median of its sweep is no ceiling."""
LEAST_SHARE = 0.1
"""A ceiling below this share of the median of its sweep was not measured, or by a busy machine."""
LEAST_BYTES = 0.25
"""Least share of what another arm reads of the same tensors; a head of its own is far less."""
LEAST_BUFFER = 0.5
"""A ceiling must be read over at least this share of the weights, or a cache may have given it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceilings:
    """The ceilings of one device and dtype over the whole sweep.

    Attributes:
        by_block: What each block measured.
        read: Highest read bandwidth, bytes per second.
        multiply: Highest matrix rate, floating-point operations per second.
        usual_read: Median read bandwidth, bytes per second.
        usual_multiply: Median matrix rate, floating-point operations per second.
    """

    by_block: Mapping[int, CeilingRow]
    read: float
    multiply: float
    usual_read: float
    usual_multiply: float

    @classmethod
    def of(cls, rows: Sequence[CeilingRow]) -> Ceilings:
        """Sum the rows of one device and dtype up; at least one."""
        reads = [row.read_bytes_per_s for row in rows]
        rates = [row.matmul_flop_per_s for row in rows]
        return cls(
            by_block={row.block: row for row in rows},
            read=max(reads),
            multiply=max(rates),
            usual_read=statistics.median(reads),
            usual_multiply=statistics.median(rates),
        )


def _ceiling(evidence: Evidence, inspection: Inspection) -> None:
    rows: dict[tuple[str, str], list[CeilingRow]] = defaultdict(list)
    for row in evidence.results.ceilings:
        rows[row.device, row.dtype].append(row)
    ceilings = {place: Ceilings.of(measured) for place, measured in rows.items()}
    most = _most_bytes(evidence)
    for trial in evidence.measured:
        inspection.saw()
        ceiling = ceilings.get((trial.cell.device, trial.cell.dtype))
        for message in _unusable(trial, ceiling):
            _refuse(inspection, trial, message)
        bytes_per_step = trial.launch.weight_bytes_per_step
        if bytes_per_step is None or bytes_per_step <= 0:
            _refuse(
                inspection,
                trial,
                "the system does not say how many bytes of weights a step reads "
                f"({bytes_per_step}), so its throughput cannot be held against the device",
                file="systems.csv",
            )
        elif bytes_per_step < LEAST_BYTES * most.get(_tensors(trial), 0):
            _refuse(
                inspection,
                trial,
                f"the system says that a step reads {bytes_per_step} bytes of weights, and another "
                f"one reads {most[_tensors(trial)]} of the same tensors",
                file="systems.csv",
            )
        elif trial.figures is None:
            _refuse(inspection, trial, "the run has no wall to hold against the ceiling")
        elif ceiling is not None:
            _compare(inspection, trial, bytes_per_step, ceiling)
            for flaw in _too_soon(evidence.columns, trial, bytes_per_step, ceiling):
                inspection.refuse_trial(trial, flaw)


def _tensors(trial: Trial) -> tuple[str | None, str]:
    """What a step reads from: the weights by name, and their dtype."""
    return trial.launch.weights, trial.launch.dtype


def _most_bytes(evidence: Evidence) -> Mapping[tuple[str | None, str], int]:
    """The most bytes that any system says a step reads of the same tensors."""
    most: dict[tuple[str | None, str], int] = {}
    for trial in evidence.measured:
        tensors, said = _tensors(trial), trial.launch.weight_bytes_per_step or 0
        if tensors[0] and tensors[0].startswith("sha256:"):
            most[tensors] = max(said, most.get(tensors, 0))
    return most


def _unusable(trial: Trial, ceiling: Ceilings | None) -> Iterator[str]:
    """Why the ceiling of a trial's block is no evidence."""
    row = None if ceiling is None else ceiling.by_block.get(trial.block)
    if ceiling is None or row is None:
        yield f"block {trial.block} measured no ceiling of {trial.cell.device} {trial.cell.dtype}"
        return
    for rate, usual, unit in (
        (row.read_bytes_per_s, ceiling.usual_read, "GB/s"),
        (row.matmul_flop_per_s, ceiling.usual_multiply, "GFLOP/s"),
    ):
        if not LEAST_SHARE * usual < rate <= MOST_SPREAD * usual:
            yield (
                f"the ceiling of block {row.block} is {rate / 1e9:.4g} {unit}, and the median of "
                f"the sweep {usual / 1e9:.4g} {unit}"
            )
    if row.buffer_bytes < LEAST_BUFFER * (trial.launch.weight_bytes_per_step or 0):
        yield (
            f"the ceiling of block {row.block} was read over {row.buffer_bytes} bytes, which a "
            "cache may hold, and not over a buffer as large as the weights"
        )


def _compare(inspection: Inspection, trial: Trial, bytes_per_step: int, ceiling: Ceilings) -> None:
    for what, unit, rate, highest in (
        ("reads weights at", "GB/s", read_rate(trial.run, bytes_per_step), ceiling.read),
        (
            "multiplies at",
            "GFLOP/s",
            multiply_rate(trial.run, bytes_per_step, trial.cell.dtype),
            ceiling.multiply,
        ),
    ):
        if rate is not None and rate > MARGIN * Fraction(highest):
            _refuse(
                inspection,
                trial,
                f"it {what} {float(rate) / 1e9:.1f} {unit} at the very least, and the highest that "
                f"the device was seen to do is {highest / 1e9:.1f} {unit}",
            )


def _too_soon(
    trials: TrialSet, trial: Trial, bytes_per_step: int, ceiling: Ceilings
) -> Iterator[Flaw]:
    """Requests whose tokens, and steps whose ends, came sooner than the weights can be read.

    Between the first token and the finish only of systems that tell their holds: what a server
    sends may be held up and come all at once.
    """
    if not all(trials.full(name, trial.number) for name in ("first_token_ns", "finished_ns")):
        return
    submitted, first, finished = (
        trials.of_trial(f"{name}_ns", trial.number)
        for name in ("submitted", "first_token", "finished")
    )
    start, stop = trials.place(trial.number)
    step_ns = bytes_per_step * NS_PER_S / (float(MARGIN) * ceiling.read)
    yield from _short_steps(trials, trial, step_ns)
    behind = trials.output_lengths[start:stop] - 1.0
    behind += trials.of_trial("discarded_tokens", trial.number)
    held = trials.full("holds_ns", trial.number)
    holds = trials.requests.lists("holds_ns")
    if holds.lengths[start:stop].all():
        submitted = np.maximum(submitted, holds.flat[holds.bounds[start:stop]])
    for what, span, steps, looked_at in (
        ("its first token", first - submitted, np.ones(len(first)), True),
        ("what follows its first token", finished - first, behind, held),
    ):
        early = np.flatnonzero((span < steps * step_ns) & looked_at)
        if len(early):
            place = int(early[0])
            request = trials.request(start + place)
            yield Flaw(
                f"{len(early)} request(s), such as {request}, have {what} after {span[place]} ns, "
                f"in which the device reads the weights {span[place] / step_ns:.2f} times at most, "
                f"and {steps[place]:.0f} are the least",
                request=request,
            )


def _short_steps(trials: TrialSet, trial: Trial, step_ns: float) -> Iterator[Flaw]:
    """Logged steps with rows that were over before half of the weights can have been read."""
    log = [int(trials.step_bounds[trial.number + i]) for i in (0, 1)]
    start, prefill, decode = (
        trials.steps.whole(name).part(*log) for name in ("start_ns", "prefill_rows", "decode_rows")
    )
    spans, ran = np.diff(start), (prefill + decode)[:-1] > 0
    short = np.flatnonzero(ran & (spans < SOONEST_STEP * step_ns))
    if len(short):
        step = int(short[0])
        yield Flaw(
            f"{len(short)} step(s), such as {step}, ran rows and were over after {spans[step]} ns, "
            f"in which the device reads {spans[step] / step_ns:.2f} of the weights at most",
            file="steps.csv",
        )


def _refuse(
    inspection: Inspection, trial: Trial, message: str, *, file: str = "ceilings.csv"
) -> None:
    inspection.refuse_trial(trial, Flaw(message), file=file)


CEILING = StudyRule(
    code="RUN018",
    name="below-ceiling",
    sentence="No run reads weights or multiplies faster than 1.5 times the device's best.",
    rationale=(
        "A step reads every weight that it uses, tied or not, and multiplies each with every row. "
        "A figure above what the memory delivers means that the device was not synchronised, that "
        "tokens were counted that no step produced, or that the answer was remembered. The run is "
        "held against the highest ceiling of the whole sweep, times 1.5, because a memory may read "
        "faster in the run than in the probe a minute earlier; so is the time to each first token, "
        "from the slot on where it is told, "
        "and from there to the last one, where a stamp that comes too early would flatter one of "
        "them and leave the throughput as it is, and half of it for every single step of a log. A "
        "ceiling that is missing, zero, "
        "read over what a cache holds, three times the median of its sweep or a tenth of it is "
        "refused, and "
        "so is a system that says it reads less than a quarter of what another one reads of the "
        "same tensors: no evidence is not good evidence."
    ),
    remedy="Synchronise before stamps, measure the ceilings in every block, and state the bytes.",
    check=_ceiling,
)
