"""Whether every trial is a measurement of its own."""

from __future__ import annotations

from collections import defaultdict

from nanoserve_bench.records import SystemRun
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule

_Signature = tuple[tuple[int | None, int | None, int | None], ...]


def signature(run: SystemRun) -> _Signature:
    """What shifting all stamps of a run by a constant leaves unchanged, in any row order."""
    return tuple(
        sorted(
            ((r.resident_ns, r.served_ns, r.ttft_ns) for r in run.records),
            key=lambda spans: tuple(-1 if span is None else span for span in spans),
        )
    )


def _copies(evidence: Evidence, inspection: Inspection) -> None:
    # Grouped by hash first, so that only suspects keep their durations in memory.
    suspects: dict[int, list[Trial]] = defaultdict(list)
    for trial in evidence.trials:
        if trial.run.records:
            suspects[hash(signature(trial.run))].append(trial)
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
