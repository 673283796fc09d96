"""Whether the stamps of a run are there, and whether time runs forward in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from nanoserve_bench.records import Hold, RunRecord, SystemRun
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, RunRule, StudyRule

KNOWN_STAMPS = frozenset({"holds", "first_token", "tokens", "steps"})


def _present(run: SystemRun) -> Iterator[Flaw]:
    for record in run.records:
        if record.finished_ns is None:
            yield Flaw(f"request {record.request} has no finish stamp", request=record.request)
        if record.holds == ():
            yield Flaw(f"request {record.request} never held a slot", request=record.request)
    for what, missing in (
        ("holds", [r.request for r in run.records if r.holds is None]),
        ("first-token stamp", [r.request for r in run.records if r.first_token_ns is None]),
        ("token stamps", [r.request for r in run.records if r.token_ns is None]),
    ):
        if missing and len(missing) < len(run.records):
            yield Flaw(
                f"request {missing[0]} has no {what}, and others of the run have "
                f"({len(missing)} of {len(run.records)} lack it)",
                request=missing[0],
            )


PRESENT = RunRule(
    code="RUN003",
    name="stamps-present",
    sentence="Every request has a finish, and what one request of a run stamps, all of them do.",
    rationale="A request without a finish drops out of a mean, and it was the slow one.",
    remedy="Measure again; a stamp cannot be filled in afterwards.",
    check=_present,
)


def _as_declared(evidence: Evidence, inspection: Inspection) -> None:
    for trial in evidence.measured:
        inspection.saw(len(trial.run.records))
        for flaw in _declaration_flaws(trial):
            inspection.refuse_trial(trial, flaw)


def _declaration_flaws(trial: Trial) -> Iterator[Flaw]:
    declared = trial.stamps
    for word in sorted(declared - KNOWN_STAMPS):
        yield Flaw(f"the system declares the unknown stamp {word!r}", file="systems.csv")
    told = {
        "holds": [record.holds is not None for record in trial.run.records],
        "first_token": [record.first_token_ns is not None for record in trial.run.records],
        "tokens": [record.token_ns is not None for record in trial.run.records],
        "steps": [trial.run.steps is not None],
    }
    for word, present in told.items():
        if word in declared and not all(present):
            number = present.index(False)
            yield Flaw(
                f"the system says that it stamps {word}, and it is missing",
                request=None if word == "steps" else trial.run.records[number].request,
                file="steps.csv" if word == "steps" else None,
            )
        elif word not in declared and any(present):
            number = present.index(True)
            yield Flaw(
                f"{word} is stamped although the system does not say so "
                f"(it says {' '.join(sorted(declared)) or 'nothing'})",
                request=None if word == "steps" else trial.run.records[number].request,
                file="steps.csv" if word == "steps" else None,
            )


AS_DECLARED = StudyRule(
    code="RUN004",
    name="stamps-as-declared",
    sentence="What a system says it stamps is there in every request, and nothing else is.",
    rationale=(
        "A hole must be a property of the system, told beforehand, not the place where an "
        "unfavourable stamp was."
    ),
    remedy="Let the system declare exactly what it stamps (holds first_token tokens steps).",
    check=_as_declared,
)


def _in_order(run: SystemRun) -> Iterator[Flaw]:
    for record in run.records:
        problem = _order_flaw(record)
        if problem is not None:
            yield Flaw(f"request {record.request}: {problem}", request=record.request)


def _order_flaw(record: RunRecord) -> str | None:
    """The first thing wrong with a request's stamps."""
    submitted, finished = record.submitted_ns, record.finished_ns
    problem = _residence_flaw(record.arrival_ns, submitted, finished)
    if problem is None and record.holds:
        problem = _hold_flaw(record.holds, submitted, finished)
    if problem is None and record.first_token_ns is not None:
        problem = _first_flaw(record, record.first_token_ns)
    if problem is None and record.token_ns:
        problem = _token_flaw(record, record.token_ns)
    return problem


def _residence_flaw(arrival: int, submitted: int, finished: int | None) -> str | None:
    if arrival < 0:
        return f"the arrival is negative ({arrival})"
    if submitted < arrival:
        return f"it was submitted at {submitted}, before it arrived at {arrival}"
    if finished is not None and finished <= submitted:
        return f"it finished at {finished}, not after it was submitted at {submitted}"
    return None


def _first_flaw(record: RunRecord, first: int) -> str | None:
    submitted, finished = record.submitted_ns, record.finished_ns
    if first <= submitted or (finished is not None and first > finished):
        return f"the first token at {first} lies outside of {submitted} to {finished}"
    if record.holds and not _held(record.holds, first):
        return f"the first token at {first} came while it held no slot"
    return None


def _hold_flaw(holds: Sequence[Hold], submitted: int, finished: int | None) -> str | None:
    if holds[0].acquired_ns < submitted:
        return f"it held a slot at {holds[0].acquired_ns}, before it was submitted at {submitted}"
    for acquired, released in holds:
        if released <= acquired:
            return f"a hold ends at {released}, not after it began at {acquired}"
    for earlier, later in itertools.pairwise(holds):
        if later.acquired_ns < earlier.released_ns:
            return f"a hold begins at {later.acquired_ns}, before the last one ended"
    if finished is not None and holds[-1].released_ns != finished:
        return f"it finished at {finished}, and left its slot at {holds[-1].released_ns}"
    return None


def _token_flaw(record: RunRecord, stamps: Sequence[int]) -> str | None:
    if record.first_token_ns is not None and stamps[0] != record.first_token_ns:
        return f"token 0 is stamped {stamps[0]}, the first token {record.first_token_ns}"
    if stamps[0] <= record.submitted_ns:
        return f"token 0 is stamped {stamps[0]}, not after it was submitted"
    if any(later < earlier for earlier, later in itertools.pairwise(stamps)):
        return "its token stamps run backwards"
    if record.finished_ns is not None and stamps[-1] > record.finished_ns:
        return f"its last token is stamped {stamps[-1]}, after the finish at {record.finished_ns}"
    if record.holds and len(record.holds) > 1:
        for position, stamp in enumerate(stamps):
            if not _held(record.holds, stamp):
                return f"token {position} is stamped {stamp}, while it held no slot"
    return None


def _held(holds: Sequence[Hold], instant: int) -> bool:
    # A token exists at the end of a step, which may be the instant of the release.
    return any(hold.acquired_ns < instant <= hold.released_ns for hold in holds)


IN_ORDER = RunRule(
    code="RUN005",
    name="stamps-in-order",
    sentence="Stamps are positive and run forward: arrival, submission, hold, tokens, finish.",
    rationale=(
        "A first token of 0, a finish before the arrival or a token outside of every hold is not "
        "a measurement, and each of them flatters some figure. The first token and the stamp of "
        "token 0 are one event, and so are the finish and the last release."
    ),
    remedy="Stamp with one monotonic clock, and synchronise the device before a stamp.",
    check=_in_order,
)
