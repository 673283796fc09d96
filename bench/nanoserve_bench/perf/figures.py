"""From what was measured to the speed table: ratios round by round, intervals, verdicts.

A ratio is formed inside a round, from trials of that round alone, and averaged over the rounds as a
sweep's ratios are over its blocks (`statistics`). A figure is refused, with the reason in place of
the number, when one of its trials broke a rule of the gate, when its sides did not run under the
same settings, or when any of its outputs differ from another system's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from nanoserve_bench import statistics
from nanoserve_bench.perf.arms import BASELINE, DECODE, STEP_PROBE
from nanoserve_bench.perf.goals import GOALS, PROMPT, Best, Goal, Measure, Quantity
from nanoserve_bench.perf.quantities import (
    Reference,
    Refused,
    Unmeasured,
    probe_of,
    reference_value,
    trial_of,
    value,
    weight_bytes,
)
from nanoserve_bench.perf.records import FigureRow, PerfRun, PerfTrial
from nanoserve_bench.perf.sameness import disagreement, unlike
from nanoserve_bench.soundness.rules.stat_blocks import LEAST_FOR_A_RATIO

WORD_BYTES = 4
"""Of a float32 weight; a row of a step multiplies and adds once with each of them."""


class Standing(StrEnum):
    """What may be said of a figure and its goal."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"
    REFUSED = "refused"
    HOLE = "hole"


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A point and, with as many rounds as STAT001 asks for blocks, the interval around it."""

    point: float
    low: float | None
    high: float | None


def figure_rows(run: PerfRun) -> tuple[FigureRow, ...]:
    """The whole table, in the order of the goals."""
    return tuple(figure_row(run, goal) for goal in GOALS)


def figure_row(run: PerfRun, goal: Goal) -> FigureRow:
    """One row; a hole or a refusal has no number and a note that says why."""
    try:
        return _measured(run, goal)
    except Unmeasured as reason:
        return _empty(run, goal, Standing.HOLE, str(reason))
    except Refused as reason:
        return _empty(run, goal, Standing.REFUSED, str(reason))


def standing(goal: Goal, interval: Interval) -> Standing:
    """The verdict: the whole interval has to lie on one side of the goal."""
    if interval.low is None or interval.high is None:
        return Standing.UNDECIDED
    if goal.at_most:
        met, missed = interval.high <= goal.goal, interval.low > goal.goal
    else:
        met, missed = interval.low >= goal.goal, interval.high < goal.goal
    return Standing.MET if met else Standing.MISSED if missed else Standing.UNDECIDED


def _measured(run: PerfRun, goal: Goal) -> FigureRow:
    note, arm, reference = _reference(run, goal)
    rounds = _usable_rounds(run, goal.candidate, reference)
    _refuse_unlike(run, rounds, goal.candidate, reference)
    ours = [value(run, number, goal.candidate) for number in rounds]
    theirs = None if reference is None else [reference_value(run, n, reference) for n in rounds]
    scale = Fraction(goal.per_unit)
    ratios = (
        [mine / scale for mine in ours]
        if theirs is None
        else [mine / other / scale for mine, other in zip(ours, theirs, strict=True)]
    )
    interval = _interval(ratios, linear=theirs is None)
    return FigureRow(
        figure=goal.key,
        title=_title(run, goal),
        unit=goal.unit,
        goal=goal.goal,
        at_most=goal.at_most,
        point=interval.point,
        low=interval.low,
        high=interval.high,
        rounds=len(rounds),
        disturbed=sum(_disturbed(run, n, goal.candidate, reference) for n in rounds),
        verdict=standing(goal, interval),
        candidate=_mean(ours, linear=theirs is None),
        candidate_unit=goal.candidate.measure.value,
        reference=None if theirs is None else _mean(theirs, linear=False),
        reference_arm=arm,
        floor=_floor(run, rounds, goal.candidate),
        note="; ".join(filter(None, (note, _rounds_note(run, rounds)))) or None,
    )


def _title(run: PerfRun, goal: Goal) -> str:
    lengths = {workload.name: workload.prompt_tokens for workload in run.workloads}
    return goal.title.replace(PROMPT, str(lengths.get(goal.candidate.workload, "?")))


def _reference(run: PerfRun, goal: Goal) -> tuple[str | None, str | None, Reference]:
    """What a goal divides by: a note, whose it is, and the quantity."""
    reference = goal.reference
    if isinstance(reference, Best):
        note, best = _best(run, goal.candidate, reference)
        return note, best.arm, best
    if isinstance(reference, Quantity):
        return None, reference.arm, reference
    return None, None if reference is None else "read bandwidth", reference


def _best(run: PerfRun, candidate: Quantity, best: Best) -> tuple[str | None, Quantity]:
    """The fastest rival that is there and sound; the note names those that are not."""
    found: list[tuple[float, Quantity]] = []
    absent: list[str] = []
    for arm in best.arms:
        quantity = Quantity(arm=arm, measure=best.measure, slots=best.slots)
        try:
            rounds = _usable_rounds(run, candidate, quantity)
            _refuse_unlike(run, rounds, candidate, quantity)
            values = [value(run, number, quantity) for number in rounds]
            found.append((statistics.geometric_mean(values), quantity))
        except (Unmeasured, Refused) as reason:
            absent.append(str(reason))
    if not found:
        if not _took_part(run, best.arms):
            raise Unmeasured("no rival took part in this run")
        raise Unmeasured("no rival was measured: " + "; ".join(absent))
    note = f"best of {len(found)}" + (f"; not among them: {'; '.join(absent)}" if absent else "")
    return note, max(found, key=lambda entry: entry[0])[1]


def _took_part(run: PerfRun, arms: Sequence[str]) -> bool:
    """Whether one of these arms was asked for, whatever became of it."""
    asked = {arm for order in run.orders for arm in order} | {hole.arm for hole in run.holes}
    return not asked.isdisjoint(arms)


def _usable_rounds(run: PerfRun, candidate: Quantity, reference: Reference) -> list[int]:
    """The rounds in which both sides were measured.

    Raises:
        Unmeasured: There is none.
        Refused: One of the trials breaks a rule.
    """
    rounds, reason = [], "no round was finished"
    for number in range(len(run.orders)):
        try:
            value(run, number, candidate)
            if reference is not None:
                reference_value(run, number, reference)
        except Unmeasured as missing:
            reason = str(missing)
            continue
        rounds.append(number)
    if not rounds:
        raise Unmeasured(reason)
    return rounds


def _rounds_note(run: PerfRun, rounds: Sequence[int]) -> str | None:
    """What is missing: rounds that the run has, and rounds that a verdict needs."""
    planned, there = len(run.orders), len(rounds)
    of = "" if there == planned else f" of {planned}"
    count = f"{there}{of} {'round' if planned == 1 else 'rounds'}"
    if there < LEAST_FOR_A_RATIO:
        return f"{count}; a verdict needs {LEAST_FOR_A_RATIO}"
    return count if of else None


def _refuse_unlike(
    run: PerfRun, rounds: Sequence[int], candidate: Quantity, reference: Reference
) -> None:
    """Refuse sides that ran under other settings or said something else.

    Both sides are held against the baseline as well, which decides who is right.
    """
    sides = [side for side in (candidate, reference) if isinstance(side, Quantity)]
    if any(side.arm == STEP_PROBE for side in sides):
        return
    for number in rounds:
        trials = [trial_of(run, number, side) for side in sides]
        for reason in _reasons(run, number, trials):
            raise Refused(f"round {number + 1}: {reason}")


def _reasons(run: PerfRun, number: int, trials: Sequence[PerfTrial]) -> Iterator[str]:
    against = Quantity(arm=BASELINE, measure=Measure.THROUGHPUT, workload=trials[0].workload)
    try:
        witnesses = [trial_of(run, number, against), *trials]
    except Unmeasured:
        witnesses = list(trials)
    first, *others = witnesses
    for other in others:
        yield from disagreement(first, other)
        yield from unlike(run, number, first.arm, other.arm)
    if len(trials) == 2:
        yield from disagreement(*trials)


def _disturbed(run: PerfRun, number: int, *quantities: Reference) -> bool:
    for quantity in quantities:
        if not isinstance(quantity, Quantity):
            continue
        if quantity.arm == STEP_PROBE:
            if probe_of(run, number, quantity.slots).disturbed is not None:
                return True
        elif trial_of(run, number, quantity).disturbed is not None:
            return True
    return False


def _interval(values: Sequence[Fraction], *, linear: bool) -> Interval:
    if len(values) < LEAST_FOR_A_RATIO:
        return Interval(point=_mean(values, linear=linear), low=None, high=None)
    estimate = (statistics.estimate_linear if linear else statistics.estimate)(values)
    return Interval(point=estimate.point, low=estimate.low, high=estimate.high)


def _mean(values: Sequence[Fraction], *, linear: bool) -> float:
    if linear:
        return float(sum(values, Fraction(0)) / len(values))
    return statistics.geometric_mean(values)


def _floor(run: PerfRun, rounds: Sequence[int], quantity: Quantity) -> float | None:
    """What one read of the weights and their arithmetic allow, at the rates that were measured.

    A step of n rows reads the weights once and does two operations per weight and row, so it takes
    at least max(bytes / bandwidth, 2 x weights x n / matrix rate). Prefill, attention and
    everything else are left out: it is a bound, and not an aim. The rates are readings of another
    moment, so a figure may pass it.
    """
    bounds: dict[Measure, Callable[[Fraction], Fraction]] = {
        Measure.THROUGHPUT: lambda step_s: quantity.slots / step_s,
        Measure.DECODE_RATE: lambda step_s: quantity.slots / step_s,
        Measure.PER_SLOT_SECOND: lambda step_s: 1 / step_s,
    }
    if quantity.workload != DECODE or quantity.measure not in bounds:
        return None
    read_bytes = weight_bytes(run, quantity.arm)
    floors = []
    for number in rounds:
        ceilings = [ceiling for ceiling in run.ceilings if ceiling.round == number]
        if read_bytes is None or not ceilings:
            return None
        operations = 2 * Fraction(read_bytes, WORD_BYTES) * quantity.slots
        step_s = max(
            read_bytes / Fraction(max(c.read_bytes_per_s for c in ceilings)),
            operations / Fraction(max(c.matmul_flop_per_s for c in ceilings)),
        )
        floors.append(bounds[quantity.measure](step_s))
    return _mean(floors, linear=False)


def _empty(run: PerfRun, goal: Goal, verdict: Standing, note: str) -> FigureRow:
    return FigureRow(
        figure=goal.key,
        title=_title(run, goal),
        unit=goal.unit,
        goal=goal.goal,
        at_most=goal.at_most,
        point=None,
        low=None,
        high=None,
        rounds=0,
        disturbed=0,
        verdict=verdict,
        candidate=None,
        candidate_unit=goal.candidate.measure.value,
        reference=None,
        reference_arm=None,
        floor=None,
        note=note,
    )
