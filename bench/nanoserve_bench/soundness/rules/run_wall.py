"""Whether the time inside of the worker is the time that was seen from outside."""

from __future__ import annotations

from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule

SLACK_NS = 50_000_000
SLACK_SHARE = 0.02


def _wall(evidence: Evidence, inspection: Inspection) -> None:
    for trial in evidence.measured:
        inspection.saw()
        if trial.figures is None:
            inspection.refuse_trial(
                trial, Flaw("the run has no wall to hold against the parent's"), file="trials.csv"
            )
            continue
        inside, outside = trial.figures.wall_ns, trial.row.wall_ns
        slack = SLACK_NS + SLACK_SHARE * outside
        evidence_text = f"worker {inside} ns, parent {outside} ns, slack {slack:.0f} ns"
        if inside > outside:
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"the requests take {inside} ns, and the parent waited {outside} ns for all "
                    "of it",
                    evidence=evidence_text,
                ),
                file="trials.csv",
            )
        elif outside - inside > slack:
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"the parent waited {outside} ns, and the requests account for {inside} ns: "
                    f"{outside - inside} ns of work lie outside of the stamps",
                    evidence=evidence_text,
                ),
                file="trials.csv",
            )


WALL = StudyRule(
    code="RUN014",
    name="wall-agrees",
    sentence="The wall of the requests fits into the wall that the parent saw and nearly fills it.",
    rationale=(
        "Work done before the first stamp, or after the last, is free in the worker's figures and "
        "is not free for whoever waits. The parent's wall may exceed the worker's by 50 ms and 2 % "
        "for handing over the trial and its answer."
    ),
    remedy="Prepare at launch, and let the first stamp be the arrival of the first request.",
    check=_wall,
)
