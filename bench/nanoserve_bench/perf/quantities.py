"""A quantity of a run of the speed table, in one round: looked up, or the reason why there is none.

Of a trial or a probe that was disturbed and run again, the last attempt counts.
"""

from __future__ import annotations

from fractions import Fraction

from nanoserve_bench.perf.arms import STEP_PROBE
from nanoserve_bench.perf.goals import Measure, Quantity, ReadBandwidth
from nanoserve_bench.perf.records import PerfRun, PerfTrial, StepProbe
from nanoserve_bench.records import NS_PER_S

Reference = Quantity | ReadBandwidth | None


class Unmeasured(Exception):
    """A quantity that does not exist, and why."""


class Refused(Exception):
    """A quantity that exists and must not be used, and why."""


def reference_value(run: PerfRun, number: int, reference: Quantity | ReadBandwidth) -> Fraction:
    """What a figure divides by, in one round; raises as `value` does."""
    if isinstance(reference, ReadBandwidth):
        return _bandwidth(run, number)
    return value(run, number, reference)


def value(run: PerfRun, number: int, quantity: Quantity) -> Fraction:
    """A quantity in one round, in the unit of its measure.

    Raises:
        Unmeasured: It was not measured in that round.
        Refused: It breaks a rule.
    """
    if quantity.measure in {Measure.OUTSIDE_S, Measure.EXTRA_BYTES}:
        return _probed(probe_of(run, number, quantity.slots), quantity.measure)
    trial = trial_of(run, number, quantity)
    for refusal in run.refusals:
        same = (refusal.round, refusal.arm) == (trial.round, trial.arm)
        if same and (refusal.workload, refusal.slots, refusal.attempt) == (
            trial.workload,
            trial.slots,
            trial.attempt,
        ):
            raise Refused(f"{quantity.arm}, round {number + 1}: {refusal.rule} {refusal.message}")
    return _timed(run, trial, quantity.measure)


def trial_of(run: PerfRun, number: int, quantity: Quantity) -> PerfTrial:
    """The last attempt at a trial.

    Raises:
        Unmeasured: There is none.
    """
    attempts = [
        trial
        for trial in run.trials
        if (trial.round, trial.arm) == (number, quantity.arm)
        and (trial.workload, trial.slots) == (quantity.workload, quantity.slots)
    ]
    if not attempts:
        raise Unmeasured(_why_missing(run, number, quantity.arm))
    return max(attempts, key=lambda trial: trial.attempt)


def _why_missing(run: PerfRun, number: int, arm: str) -> str:
    for hole in run.holes:
        if hole.arm == arm and hole.round in {None, number}:
            return f"{arm}: {hole.reason}"
    if arm not in run.orders[number]:
        return f"{arm} took no part"
    return f"{arm} was not measured in round {number + 1}"


def probe_of(run: PerfRun, number: int, slots: int) -> StepProbe:
    """The last attempt at a probe of the steps.

    Raises:
        Unmeasured: There is none.
    """
    attempts = [p for p in run.probes if (p.round, p.slots) == (number, slots)]
    if not attempts:
        raise Unmeasured(_why_missing(run, number, STEP_PROBE))
    return max(attempts, key=lambda probe: probe.attempt)


def _probed(probe: StepProbe, measure: Measure) -> Fraction:
    if measure is Measure.OUTSIDE_S:
        return Fraction(probe.steps_ns - probe.model_ns, probe.steps * NS_PER_S)
    if probe.peak_memory_bytes is None:
        raise Unmeasured("this system does not tell a process's peak memory")
    return Fraction(probe.peak_memory_bytes - probe.weight_bytes - probe.pool_bytes)


def _timed(run: PerfRun, trial: PerfTrial, measure: Measure) -> Fraction:
    def known(number: int | None, what: str) -> int:
        if not number:
            raise Unmeasured(f"{trial.arm} tells no {what}")
        return number

    if measure is Measure.THROUGHPUT:
        return Fraction(trial.output_tokens * NS_PER_S, trial.wall_ns)
    if measure is Measure.PER_SLOT_SECOND:
        return Fraction(trial.output_tokens * NS_PER_S, known(trial.served_ns, "holds"))
    if measure is Measure.PREFILL_RATE:
        return Fraction(trial.requests * NS_PER_S, known(trial.prefill_ns, "first tokens"))
    steps = known(trial.full_steps, "full decode steps")
    rate = Fraction(steps * NS_PER_S, known(trial.full_steps_ns, "full decode steps"))
    if measure is Measure.DECODE_RATE:
        return rate * trial.slots
    return rate * known(weight_bytes(run, trial.arm), "bytes of weights a step")


def weight_bytes(run: PerfRun, arm: str) -> int | None:
    """Bytes of weights that an arm reads in a step; None where it does not tell."""
    return next((a.weight_bytes_per_step for a in run.arms if a.arm == arm), None)


def _bandwidth(run: PerfRun, number: int) -> Fraction:
    rates = [c.read_bytes_per_s for c in run.ceilings if c.round == number]
    if not rates:
        raise Unmeasured(f"the read bandwidth was not measured in round {number + 1}")
    return Fraction(max(rates))
