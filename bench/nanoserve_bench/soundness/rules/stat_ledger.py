"""Whether the start ledger accounts for every time that this plan was started."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from nanoserve_bench.plan import Plan, Start
from nanoserve_bench.records import NS_PER_S
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule

MOST_EMPTY_STARTS = 3
"""Starts that may have ended before their first block was complete."""
MOST_ASTRAY_S = 86_400.0
"""A machine that slept stops its clock and not the day; no block sleeps for longer than this."""
COARSE = timedelta(seconds=1)
"""How coarse the time of a start may be written."""


def _ledger(evidence: Evidence, inspection: Inspection) -> None:
    manifest = evidence.results.manifest
    done = len({trial.block for trial in evidence.trials})
    inspection.saw(len(manifest.ledger))
    for index, flaw in (
        *_constancy(manifest.ledger, evidence.plan, manifest.machine),
        *_succession(manifest.ledger, done),
    ):
        inspection.refuse_study(flaw, file="manifest.json", column=f"ledger[{index}]")
    for trial in evidence.trials if manifest.ledger else ():
        message = _outside(trial, manifest.ledger)
        if message is not None:
            inspection.refuse_trial(trial, Flaw(message), file="trials.csv")
    for trial, message in _astray(evidence.trials):
        inspection.refuse_trial(trial, Flaw(message), file="trials.csv")


def _astray(trials: Sequence[Trial]) -> Iterator[tuple[Trial, str]]:
    """Trials whose time of day does not go with the clock that their block was stamped with."""
    first: dict[int, Trial] = {}
    for trial in trials:
        one = first.setdefault(trial.block, trial)
        by_day = _time(trial.row.started_at) - _time(one.row.started_at)
        by_clock = (trial.row.started_ns - one.row.started_ns) / NS_PER_S
        if abs(by_day.total_seconds() - by_clock) > MOST_ASTRAY_S:
            message = (
                f"it started at {trial.row.started_at}, {by_day} from the first trial of its block "
                f"({one.row.started_at}), and {by_clock:.0f} s from it by the stamps"
            )
            yield trial, message


def start_of(ledger: Sequence[Start], block: int) -> int:
    """The start that ran a block: the last one that had come no further."""
    return max((n for n, start in enumerate(ledger) if start.first_block <= block), default=0)


def _outside(trial: Trial, ledger: Sequence[Start]) -> str | None:
    """Why a trial is of another time than the start that ran its block; None where it is not."""
    number = start_of(ledger, trial.block)
    begin, at = _time(ledger[number].started_at), _time(trial.row.started_at)
    if at < begin:
        return (
            f"it started at {trial.row.started_at}, before start {number}, which ran its block "
            f"({ledger[number].started_at})"
        )
    end = _time(ledger[number + 1].started_at) if number + 1 < len(ledger) else None
    if end is not None and begin < end and at - end >= COARSE:
        return (
            f"it started at {trial.row.started_at}, and start {number}, which ran its block, had "
            f"ended when the next one began ({ledger[number + 1].started_at})"
        )
    return None


def _time(text: str) -> datetime:
    """An ISO time; one without an offset is read as UTC, and no time as the first: see REP011."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _constancy(ledger: Sequence[Start], plan: Plan, machine: str) -> Iterator[tuple[int, str]]:
    for index, start in enumerate(ledger):
        for what, value, expected in (
            ("revision", start.revision, plan.revision),
            ("dirty state of the tree", start.dirty, plan.dirty),
            ("machine", start.machine, machine),
        ):
            if value != expected:
                message = f"the {what} of start {index} is {value!r}, the plan's {expected!r}"
                yield index, f"{message}: its blocks are not of one thing"


def _succession(ledger: Sequence[Start], done: int) -> Iterator[tuple[int, str]]:
    if not ledger:
        return
    if ledger[0].first_block != 0:
        yield 0, f"the first start begins at block {ledger[0].first_block}: earlier ones are gone"
    empty = 0
    for index, (earlier, later) in enumerate(itertools.pairwise(ledger)):
        empty += earlier.first_block == later.first_block
        if _time(later.started_at) < _time(earlier.started_at):
            yield index + 1, f"start {index + 1} ({later.started_at}) is older than start {index}"
        if later.first_block < earlier.first_block:
            back = f"start {index + 1} goes back to block {later.first_block}"
            yield index + 1, f"{back} from {earlier.first_block}: measured blocks were thrown away"
        if not (earlier.outcome == "interrupted" or earlier.outcome.startswith("failed")):
            ended = f"start {index} is {earlier.outcome!r}, and another start follows it"
            yield index, f"{ended}: the study does not account for both"
    last = len(ledger) - 1
    if ledger[last].outcome != "completed":
        yield last, f"the last start is {ledger[last].outcome!r}, not completed"
    if ledger[last].first_block > done:
        yield last, f"the last start begins at block {ledger[last].first_block} of {done}"
    if empty > MOST_EMPTY_STARTS:
        count = f"{empty} starts ended without a block, {MOST_EMPTY_STARTS} are accounted for"
        yield last, f"{count}: what they measured is unknown"


LEDGER = StudyRule(
    code="STAT006",
    name="starts-accounted-for",
    sentence="Every start of the plan led to the blocks that are there, on one commit and machine, "
    "in its own time.",
    rationale=(
        "The best of ten sweeps is a sweep of the noise. The manifest keeps every start: none may "
        "follow a completed one, none may throw measured blocks away, all but a few must have "
        "added a block, all ran the commit of the plan on the same machine, and every trial is of "
        "the time between the start that ran its block and the next."
    ),
    remedy="Publish the sweep that was started first, or plan a new one under another run id.",
    check=_ledger,
)
