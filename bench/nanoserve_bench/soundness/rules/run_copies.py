"""Whether every trial is a measurement of its own."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from nanoserve_bench.records import SystemRun
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.trialset import TrialSet

_Signature = tuple[tuple[int | None, int | None, int | None], ...]


def signature(run: SystemRun) -> _Signature:
    """What shifting all stamps of a run by a constant leaves unchanged, in any row order."""
    return tuple(
        sorted(
            ((r.resident_ns, r.served_ns, r.ttft_ns) for r in run.records),
            key=lambda spans: tuple(-1 if span is None else span for span in spans),
        )
    )


def _hashes(trials: TrialSet) -> list[int]:
    """A number for each trial, equal where the signatures are: durations mixed, then summed up."""
    arrival = trials.numbers("arrival_ns")
    mixed = np.zeros(len(arrival), np.uint64)
    for spans, known in (
        (trials.numbers("finished_ns") - arrival, trials.known("finished_ns")),
        (trials.served_ns, trials.known("holds_ns")),
        (trials.numbers("first_token_ns") - arrival, trials.known("first_token_ns")),
    ):
        mixed ^= np.where(known, spans, -1).astype(np.uint64)
        for factor, shift in ((0x9E3779B97F4A7C15, 29), (0xBF58476D1CE4E5B9, 32)):
            mixed *= np.uint64(factor)
            mixed ^= mixed >> np.uint64(shift)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    hashes: list[int] = np.diff(sums[trials.bounds]).tolist()
    return hashes


def _copies(evidence: Evidence, inspection: Inspection) -> None:
    # Grouped by a hash first, so that only suspects keep their durations in memory.
    suspects: dict[tuple[int, int], list[Trial]] = defaultdict(list)
    for trial, key in zip(evidence.trials, _hashes(evidence.columns), strict=True):
        if trial.run.records:
            suspects[key, len(trial.run.records)].append(trial)
    inspection.saw(sum(1 for trial in evidence.measured if trial.run.records))
    for group in suspects.values():
        twins: dict[_Signature, list[Trial]] = defaultdict(list)
        if len(group) > 1:
            for trial in group:
                twins[signature(trial.run)].append(trial)
        for durations, copies in twins.items():
            if len(copies) > 1:
                _refuse(durations, copies, evidence, inspection)


def _refuse(
    durations: _Signature, copies: list[Trial], evidence: Evidence, inspection: Inspection
) -> None:
    for index, trial in enumerate(copies):
        if id(trial) in evidence.measured_ids:
            twin = copies[0] if index else copies[1]
            kind = "the warm-up of " if twin.row.warmup else ""
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"every duration equals, to the nanosecond, that of {kind}{twin.cell.id} in "
                    f"block {twin.block}: one of the two is a copy",
                    evidence=f"in the system, in a slot, to the first token: {durations[0]} ns",
                ),
            )


COPIES = StudyRule(
    code="RUN017",
    name="trial-not-a-copy",
    sentence="No trial has exactly the durations of another.",
    rationale=(
        "Two runs never take the same number of nanoseconds for every request. A trial that was "
        "copied with its stamps shifted, or a best trial that was written over a bad one, does."
    ),
    remedy="Measure again; find out how the rows came to be written twice.",
    check=_copies,
)
