"""Whether the stamps of a run are there, and whether time runs forward in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nanoserve_bench.protocol import STAMPS
from nanoserve_bench.records import Hold, RunRecord, SystemRun
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.soundness.rule import Flaw, Inspection, RunRule, StudyRule
from nanoserve_bench.tables import Flags
from nanoserve_bench.trialset import TrialSet

COLUMNS = {"holds": "holds_ns", "first_token": "first_token_ns", "tokens": "token_ns"}
"""What a request can stamp: the word for it, and its column."""
KNOWN_STAMPS = frozenset(STAMPS)


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


def _all_present(profile: Profile) -> Flags:
    trials = profile.trials
    never_held = trials.known("holds_ns") & (trials.requests.lists("holds_ns").lengths == 0)
    clear = profile.none(~trials.known("finished_ns") | never_held)
    for name in ("holds_ns", "first_token_ns", "token_ns"):
        clear &= profile.all_or_none(name)
    return clear


PRESENT = RunRule(
    code="RUN003",
    name="stamps-present",
    sentence="Every request has a finish, and what one request of a run stamps, all of them do.",
    rationale="A request without a finish drops out of a mean, and it was the slow one.",
    remedy="Measure again; a stamp cannot be filled in afterwards.",
    check=_present,
    clear=_all_present,
)


def _as_declared(evidence: Evidence, inspection: Inspection) -> None:
    told = {
        word: evidence.columns.count(evidence.columns.known(column)).tolist()
        for word, column in COLUMNS.items()
    }
    for trial in evidence.measured:
        inspection.saw(len(trial.run.records))
        for flaw in _declaration_flaws(trial, {w: n[trial.number] for w, n in told.items()}):
            inspection.refuse_trial(trial, flaw)


def _declaration_flaws(trial: Trial, told: Mapping[str, int]) -> Iterator[Flaw]:
    """What a trial stamps against what its system declares; `told` counts requests by word."""
    declared = trial.stamps
    for word in sorted(declared - KNOWN_STAMPS):
        yield Flaw(f"the system declares the unknown stamp {word!r}", file="systems.csv")
    for word, count in told.items():
        wanted = word in declared
        if count != (len(trial.run.records) if wanted else 0):
            yield Flaw(
                _declaration(word, declared),
                request=_first_request(trial, word, stamped=not wanted),
            )
    if ("steps" in declared) != (trial.run.steps is not None):
        yield Flaw(_declaration("steps", declared), file="steps.csv")


def _declaration(word: str, declared: frozenset[str]) -> str:
    if word in declared:
        return f"the system says that it stamps {word}, and it is missing"
    says = " ".join(sorted(declared)) or "nothing"
    return f"{word} is stamped although the system does not say so (it says {says})"


def _first_request(trial: Trial, word: str, *, stamped: bool) -> str:
    """The first request of a trial that has a stamp, or that lacks it."""
    values = {
        "holds": lambda record: record.holds,
        "first_token": lambda record: record.first_token_ns,
        "tokens": lambda record: record.token_ns,
    }
    records = trial.run.records
    return next(r.request for r in records if (values[word](r) is not None) == stamped)


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
    if record.holds:
        for position, stamp in enumerate(stamps):
            if not _held(record.holds, stamp):
                return f"token {position} is stamped {stamp}, while it held no slot"
    return None


def _held(holds: Sequence[Hold], instant: int) -> bool:
    # A token exists at the end of a step, which may be the instant of the release.
    return any(hold.acquired_ns < instant <= hold.released_ns for hold in holds)


def _all_in_order(profile: Profile) -> Flags:
    trials = profile.trials
    arrival, submitted = trials.numbers("arrival_ns"), trials.numbers("submitted_ns")
    finished, first = trials.numbers("finished_ns"), trials.numbers("first_token_ns")
    ended, started = trials.known("finished_ns"), trials.known("first_token_ns")
    wrong = (arrival < 0) | (submitted < arrival) | (ended & (finished <= submitted))
    wrong |= started & ((first <= submitted) | (ended & (first > finished)))
    return profile.none(wrong | _wrong_holds(trials) | _wrong_tokens(trials))


def _wrong_holds(trials: TrialSet) -> Flags:
    """Requests whose holds are not surely in order, or not surely around the first token."""
    holds = trials.requests.lists("holds_ns")
    acquired, released = holds.flat[::2], holds.flat[1::2]
    held = np.flatnonzero(holds.lengths)
    begin, end = holds.bounds[:-1][held] // 2, holds.bounds[1:][held] // 2 - 1
    first = trials.numbers("first_token_ns")[held]
    inside = (acquired[begin] < first) & (first <= released[begin])
    wrong = np.zeros(len(holds), np.bool_)
    wrong[held] = (
        (acquired[begin] < trials.numbers("submitted_ns")[held])
        | (
            trials.known("finished_ns")[held]
            & (released[end] != trials.numbers("finished_ns")[held])
        )
        | (trials.known("first_token_ns")[held] & ~inside)
    )
    owner = np.repeat(np.arange(len(holds)), holds.lengths // 2)
    wrong[owner[released <= acquired]] = True
    back = (acquired[1:] < released[:-1]) & (owner[1:] == owner[:-1])
    wrong[owner[1:][back]] = True
    return wrong


def _wrong_tokens(trials: TrialSet) -> Flags:
    """Requests whose token stamps are not surely in order and inside of a hold."""
    tokens, holds = trials.requests.lists("token_ns"), trials.requests.lists("holds_ns")
    stamped = np.flatnonzero(tokens.lengths)
    earliest, latest = (
        tokens.flat[tokens.bounds[:-1][stamped]],
        tokens.flat[tokens.bounds[1:][stamped] - 1],
    )
    wrong = np.zeros(len(tokens), np.bool_)
    started, ended = trials.known("first_token_ns")[stamped], trials.known("finished_ns")[stamped]
    wrong[stamped] = (
        (started & (earliest != trials.numbers("first_token_ns")[stamped]))
        | (earliest <= trials.numbers("submitted_ns")[stamped])
        | (ended & (latest > trials.numbers("finished_ns")[stamped]))
        # Whether each token lies in a hold is left to the check, but where the first one has to.
        | (holds.lengths[stamped] > np.where(started, 2, 0))
    )
    owner = np.repeat(np.arange(len(tokens)), tokens.lengths)
    back = (tokens.flat[1:] < tokens.flat[:-1]) & (owner[1:] == owner[:-1])
    wrong[owner[1:][back]] = True
    return wrong


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
    clear=_all_in_order,
)
