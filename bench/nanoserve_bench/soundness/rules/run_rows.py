"""Whether the rows and the queue that a step log counts are those that the stamps give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.tables import Flags, Ints
from nanoserve_bench.trialset import TrialSet

MOST_STEPS_NAMED = 3
"""Steps of one trial that are worded; a log that was falsified is wrong in many."""
_LATE = 2**62


@dataclass(frozen=True, kw_only=True)
class Log:
    """The step log of a trial; a step ends where the next one starts."""

    start: Ints
    prefill: Ints
    decode: Ints
    holders: Ints
    waiting: Ints

    @classmethod
    def of(cls, trials: TrialSet, number: int) -> Log:
        """The rows of a trial."""
        rows = [int(trials.step_bounds[number + i]) for i in (0, 1)]
        start, prefill, decode, holders, waiting = (
            trials.steps.whole(name).part(*rows)
            for name in ("start_ns", "prefill_rows", "decode_rows", "holders", "waiting")
        )
        return cls(start=start, prefill=prefill, decode=decode, holders=holders, waiting=waiting)

    def step_before(self, instants: Ints) -> Ints | None:
        """The step that ends at each instant; None where one stands at no bound."""
        places = np.searchsorted(self.start, instants)
        if len(instants) and (places.min() < 1 or places.max() >= len(self.start)):
            return None
        return places - 1 if (self.start[places] == instants).all() else None


@dataclass(frozen=True, kw_only=True)
class Requests:
    """The requests of a trial: the step in which each hold began, and that of each token.

    `hold_of` and `token_of` name the request of each hold and token.
    """

    submitted: Ints
    finished: Ints
    cached: Flags
    acquired: Ints
    released: Ints
    hold_of: Ints
    tokens: Ints
    token_of: Ints

    @classmethod
    def of(cls, trials: TrialSet, number: int) -> Requests | None:
        """Those of a trial; None where something is missing that another rule asks for."""
        if not all(trials.full(name, number) for name in ("finished_ns", "holds_ns", "token_ns")):
            return None
        own = trials.place(number)
        bounds = slice(own[0], own[1] + 1)
        holds, tokens = (trials.requests.lists(name) for name in ("holds_ns", "token_ns"))
        flat, count = holds.part(*own), own[1] - own[0]
        return cls(
            submitted=trials.of_trial("submitted_ns", number),
            finished=trials.of_trial("finished_ns", number),
            cached=trials.of_trial("cached_tokens", number) > 0,
            acquired=flat[::2],
            released=flat[1::2],
            hold_of=np.repeat(np.arange(count), np.diff(holds.bounds[bounds]) // 2),
            tokens=tokens.part(*own),
            token_of=np.repeat(np.arange(count), np.diff(tokens.bounds[bounds])),
        )


def _queue(log: Log, requests: Requests) -> tuple[Ints, Ints]:
    """The fewest and the most requests that can have waited during each step.

    Whoever had been submitted when the step began waits unless it holds a slot or has finished;
    whoever is submitted before the step ends may have been seen. A row between two steps, in which
    nobody holds a slot, need not count a queue.
    """

    def until(instants: Ints, bounds: Ints) -> Ints:
        return np.searchsorted(np.sort(instants), bounds, side="right")

    ends = np.append(log.start[1:], _LATE)
    gone = (
        until(requests.finished, log.start)
        + until(requests.acquired, log.start)
        - until(requests.released, log.start)
    )
    between = (log.holders == 0) & (log.prefill + log.decode == 0)
    least = np.where(between, 0, until(requests.submitted, log.start) - gone)
    return least, until(requests.submitted, ends) - gone


@dataclass(frozen=True, kw_only=True)
class Rows:
    """How many rows each step ran, at the least, by what came of them.

    Attributes:
        prefill: First tokens of requests that took their slot at the start of that same step.
        decode: Tokens behind another one of the same hold.
        either: Other first tokens of a hold: of a prompt that was cut or cached, or that was kept
            while its request had no slot.
        filling: Holders that have had no token of their hold yet, and get none in this step.
        idle: Holders that have had one and get none.
    """

    prefill: Ints
    decode: Ints
    either: Ints
    filling: Ints
    idle: Ints

    @classmethod
    def of(cls, log: Log, requests: Requests) -> Rows | None:
        """Those of a trial; None where a stamp stands at no bound, which is for RUN022."""
        steps = len(log.start)
        of_token = log.step_before(requests.tokens)
        last = log.step_before(requests.released)
        first = np.searchsorted(log.start, requests.acquired)
        if (
            of_token is None
            or last is None
            or (log.start[first % steps] != requests.acquired).any()
        ):
            return None
        # Holds and tokens of one request stand behind those of the one before.
        holds = requests.hold_of * steps + first
        hold = np.searchsorted(holds, requests.token_of * steps + of_token, side="right") - 1
        if (hold < 0).any() or (requests.hold_of[hold] != requests.token_of).any():
            return None
        opens = np.diff(hold, prepend=-1) != 0
        opened, at = hold[opens], of_token[opens]
        prompt = np.diff(requests.hold_of, prepend=-1)[opened] != 0
        sure = prompt & (first[opened] == at) & ~requests.cached[requests.hold_of[opened]]
        waits_until = last + 1
        waits_until[opened] = at
        filling = np.cumsum(_counted(first, steps + 1) - _counted(waits_until, steps + 1))[:-1]
        prefill, either = _counted(at[sure], steps), _counted(at[~sure], steps)
        decode = _counted(of_token[~opens], steps)
        return cls(
            prefill=prefill,
            decode=decode,
            either=either,
            filling=filling,
            idle=log.holders - prefill - either - decode - filling,
        )


def _counted(steps: Ints, count: int) -> Ints:
    return np.bincount(steps, minlength=count)


def _flaws(trials: TrialSet, trial: Trial) -> Iterator[Flaw]:
    log, requests = Log.of(trials, trial.number), Requests.of(trials, trial.number)
    if requests is None or (np.diff(log.start) <= 0).any():
        return  # what is missing, and a log that runs backwards, others refuse
    least, most = _queue(log, requests)
    for step in np.flatnonzero((log.waiting < least) | (log.waiting > most))[:MOST_STEPS_NAMED]:
        yield Flaw(
            f"step {step} counts {log.waiting[step]} waiting requests, and by the requests' stamps "
            + _between(int(least[step]), int(most[step])),
            file="steps.csv",
        )
    rows = Rows.of(log, requests)
    if rows is None:
        return
    # A row of a static batch runs on behind its request's length.
    spare = rows.idle if trials.of_trial("discarded_tokens", trial.number).any() else 0
    all_rows = log.prefill + log.decode
    tokens = rows.prefill + rows.either + rows.decode
    for what, said, low, high in (
        ("prefill rows", log.prefill, rows.prefill, rows.prefill + rows.either + rows.filling),
        ("decode rows", log.decode, rows.decode, rows.decode + rows.either + spare),
        ("rows", all_rows, tokens, tokens + rows.filling + spare),
    ):
        for step in np.flatnonzero((said < low) | (said > high))[:MOST_STEPS_NAMED]:
            yield Flaw(
                f"step {step} counts {said[step]} {what}, and by the requests' stamps "
                + _between(int(low[step]), int(np.broadcast_to(high, said.shape)[step])),
                file="steps.csv",
            )


def _between(least: int, most: int) -> str:
    return f"there were {least}" if least == most else f"there were {least} to {most}"


def _rows(evidence: Evidence, inspection: Inspection) -> None:
    logged = [trial for trial in evidence.measured if trial.run.steps is not None]
    if evidence.measured and not logged:
        inspection.not_applicable = "no system of the study keeps a step log"
    for trial in logged:
        inspection.saw(len(trial.run.steps or ()))
        for flaw in _flaws(evidence.columns, trial):
            inspection.refuse_trial(trial, flaw)


ROWS = StudyRule(
    code="RUN025",
    name="step-counts-from-stamps",
    sentence="The prefill rows, decode rows and waiting requests of every logged step are those "
    "that the requests' stamps give.",
    rationale=(
        "A first token that ends the step in which its request took a slot came out of a prefill "
        "row, and a token behind another one of the same hold out of a decode row; whoever has "
        "been submitted, holds no slot and has not finished waits. So a log that was written "
        "afterwards, to hide a queue or to call prefills decodes, contradicts the requests. Room "
        "is left for what the stamps do not tell: a prompt that is cut over several steps, a first "
        "token behind a cached prompt or after a preemption, rows of a static batch that run on, "
        "and requests that are submitted while the step is put together."
    ),
    remedy="Count the rows and the queue where the step is scheduled, and write them as they were.",
    check=_rows,
)
