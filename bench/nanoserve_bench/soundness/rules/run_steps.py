"""Whether the engine's step log and the requests' holds tell the same story."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from nanoserve_bench.records import StepRecord, SystemRun
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.soundness.rule import Flaw, RunRule
from nanoserve_bench.tables import Flags, Ints


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


def _all_logs_agree(profile: Profile) -> Flags:
    trials, steps = profile.trials, profile.trials.steps
    owner = np.repeat(np.arange(len(trials)), np.diff(trials.step_bounds))
    start, prefill, decode, holders, waiting = (
        steps.whole(name).values
        for name in ("start_ns", "prefill_rows", "decode_rows", "holders", "waiting")
    )
    same = owner[1:] == owner[:-1]
    wrong = (start < 0) | (prefill < 0) | (decode < 0) | (holders < 0) | (waiting < 0)
    wrong |= (holders > profile.slots[owner]) | (decode > holders - prefill)
    wrong[1:] |= same & (start[1:] <= start[:-1])
    wrong |= np.append(~same, np.ones(min(1, len(owner)), np.bool_)) & (holders != 0)
    jumps = holders.copy()
    jumps[1:] -= np.where(same, holders[:-1], 0)
    told = trials.count(trials.known("holds_ns")) == trials.counts
    clear: Flags = profile.logged & told & (trials.counts > 0)
    clear[owner[wrong]] = False
    clear[_disagreeing(profile, owner, start, jumps)] = False
    return clear


def _disagreeing(profile: Profile, owner: Ints, start: Ints, jumps: Ints) -> Ints:
    """Trials in which the jumps of the log are not those of the holds."""
    moved = jumps != 0
    holds = profile.trials.requests.lists("holds_ns").flat
    trial = np.concatenate([owner[moved], np.repeat(profile.trials.trials_of_holds(), 2)])
    instant = np.concatenate([start[moved], holds])
    change = np.concatenate([jumps[moved], np.tile(np.array([-1, 1]), len(holds) // 2)])
    order = np.lexsort((instant, trial))
    trial, instant, left = trial[order], instant[order], np.cumsum(change[order])
    # One sum runs over all trials, so each is held against what was left before it.
    starts = np.flatnonzero(np.diff(trial, prepend=-1))
    before = np.append(0, left)[starts]
    left = left - np.repeat(before, np.diff(np.append(starts, len(trial))))
    last = np.append((np.diff(instant) != 0) | (np.diff(trial) != 0), True)
    return np.unique(trial[last & (left != 0)])


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
    clear=_all_logs_agree,
    exempt=_no_log,
    file="steps.csv",
)
