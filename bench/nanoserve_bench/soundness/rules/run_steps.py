"""Whether the engine's step log and the requests' holds tell the same story."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from nanoserve_bench.records import StepRecord, SystemRun
from nanoserve_bench.soundness.rule import Flaw, RunRule


def _no_log(run: SystemRun) -> str | None:
    return "no system of the study keeps a step log" if run.steps is None else None


def _log_agrees(run: SystemRun) -> Iterator[Flaw]:
    steps = run.steps or ()
    if not steps:
        yield Flaw("the step log has no rows")
        return
    yield from _form_flaws(steps, run.slots)
    if run.served_ns is None:
        yield Flaw("there is a step log, and the requests tell no holds to hold it against")
        return
    yield from _jump_flaws(run, steps, run.served_ns)


def _form_flaws(steps: Sequence[StepRecord], slots: int) -> Iterator[Flaw]:
    for number, (earlier, later) in enumerate(itertools.pairwise(steps)):
        if later.start_ns <= earlier.start_ns:
            yield Flaw(f"step {number + 1} starts at {later.start_ns} ns, not after step {number}")
    for number, step in enumerate(steps):
        if problem := _row_flaw(step, slots):
            yield Flaw(f"step {number} {problem}", evidence=str(step))
    if steps[-1].holders:
        yield Flaw(
            f"the log ends while {steps[-1].holders} slots are held: the last row must have none"
        )


def _jump_flaws(run: SystemRun, steps: Sequence[StepRecord], served_ns: int) -> Iterator[Flaw]:
    # Two step functions are equal exactly when their jumps are.
    jumps: dict[int, int] = defaultdict(int)
    before = 0
    for step in steps:
        jumps[step.start_ns] += step.holders - before
        before = step.holders
    for record in run.records:
        for acquired, released in record.holds or ():
            jumps[acquired] -= 1
            jumps[released] += 1
    differing = sorted(instant for instant, jump in jumps.items() if jump)
    if differing:
        logged = sum(
            step.holders * (after.start_ns - step.start_ns)
            for step, after in itertools.pairwise(steps)
        )
        yield Flaw(
            f"the step log and the holds disagree from {differing[0]} ns on: the log adds up to "
            f"{logged} slot-ns, the holds to {served_ns}",
            evidence=f"instants at which they differ: {' '.join(map(str, differing[:5]))}",
        )


def _row_flaw(step: StepRecord, slots: int) -> str | None:
    if min(step.start_ns, step.prefill_rows, step.decode_rows, step.holders, step.waiting) < 0:
        return "has a negative entry"
    if step.holders > slots:
        return f"counts {step.holders} holders for {slots} slots"
    if step.prefill_rows + step.decode_rows > step.holders:
        return (
            f"ran {step.prefill_rows + step.decode_rows} rows for {step.holders} holders of a slot"
        )
    return None


STEP_LOG = RunRule(
    code="RUN013",
    name="step-log-agrees",
    sentence="Occupancy from the step log and from the requests' holds is equal at every instant.",
    rationale=(
        "The two are stamped in different places of an engine, so that they agree to the "
        "nanosecond is evidence that rows really shared steps. A row of the log counts its holders "
        "until the next row starts; the last row has none."
    ),
    remedy="Stamp holds with the instants of the steps that admit and release them.",
    check=_log_agrees,
    exempt=_no_log,
    file="steps.csv",
)
