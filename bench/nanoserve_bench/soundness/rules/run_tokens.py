"""Whether the tokens of an engine with a step log came out of the steps of that log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from nanoserve_bench.records import RunRecord
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.trialset import TrialSet


def _tokens_from_steps(evidence: Evidence, inspection: Inspection) -> None:
    logged = [trial for trial in evidence.measured if trial.run.steps is not None]
    if evidence.measured and not logged:
        inspection.not_applicable = "no system of the study keeps a step log"
    for trial in logged:
        inspection.saw(len(trial.run.records))
        for flaw in _flaws(evidence.columns, trial):
            inspection.refuse_trial(trial, flaw)


def _flaws(trials: TrialSet, trial: Trial) -> Iterator[Flaw]:
    log = [int(trials.step_bounds[trial.number + i]) for i in (0, 1)]
    starts = trials.steps.whole("start_ns").part(*log)
    rows = sum(
        int(trials.steps.whole(name).part(*log).sum()) for name in ("prefill_rows", "decode_rows")
    )
    own = [int(trials.bounds[trial.number + i]) for i in (0, 1)]
    discarded = sum(trials.of_trial("discarded_tokens", trial.number).tolist())  # of any size
    tokens = trial.run.output_tokens + discarded
    if rows < tokens:
        yield Flaw(
            f"its step log ran {rows} rows, and {tokens} tokens came out: every token needs a row "
            "of a step",
            file="steps.csv",
        )
    holds, first = trials.requests.lists("holds_ns"), trials.requests.whole("first_token_ns")
    stamps = trials.requests.lists("token_ns").part(*own)
    # Requests stand one behind the other: two tokens at one instant are of two, or in doubt.
    if not (
        first.full(*own)
        and np.isin(first.part(*own), starts).all()
        and np.isin(holds.part(*own), starts).all()
        and (starts[np.searchsorted(starts[:-1], stamps)] == stamps).all()
        and np.diff(stamps).all()
    ):
        boundaries = frozenset(starts.tolist())
        for record in trial.run.records:
            yield from _request_flaws(record, boundaries)


def _request_flaws(record: RunRecord, boundaries: frozenset[int]) -> Iterator[Flaw]:
    events = [
        event
        for acquired, released in record.holds or ()
        for event in (("takes a slot", acquired), ("leaves its slot", released))
    ]
    if record.first_token_ns is not None:
        events.append(("has its first token", record.first_token_ns))
    stamps = record.token_ns or ()
    events += [(f"has its token {number}", stamp) for number, stamp in enumerate(stamps) if number]
    for number, (earlier, later) in enumerate(itertools.pairwise(stamps)):
        if later == earlier:
            yield Flaw(
                f"request {record.request} has tokens {number} and {number + 1} at {later} ns: a "
                "row of a step gives one token",
                request=record.request,
                position=number + 1,
            )
    for what, instant in events:
        if instant not in boundaries:
            yield Flaw(
                f"request {record.request} {what} at {instant} ns, and no step of the log begins "
                "or ends there",
                request=record.request,
            )


TOKENS_FROM_STEPS = StudyRule(
    code="RUN022",
    name="tokens-from-steps",
    sentence="Tokens and holds stand at bounds of logged steps, and each token has its own row.",
    rationale=(
        "A token exists at the end of a step, and a slot passes on between two of them. A first "
        "token inside of a step is one that was stamped before it was computed, which halves a "
        "prefill; a slot that passes on inside of a step moves time from one request to the next, "
        "which no sum shows; a token that is stamped between two steps hides the gap that a caller "
        "waits for. A log with fewer rows than tokens leaves steps out, and with them what the "
        "device must have read."
    ),
    remedy="Stamp tokens, acquire and release with the instants of the steps.",
    check=_tokens_from_steps,
)
