"""Whether the time inside of the worker is the time that was seen from outside."""

from __future__ import annotations

from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule

SLACK_NS = 50_000_000
SLACK_SHARE = 0.02


def _wall(evidence: Evidence, inspection: Inspection) -> None:
    for trial in evidence.trials:
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
        else:
            _check_window(inspection, trial)


def _check_window(inspection: Inspection, trial: Trial) -> None:
    """Worker and parent read one monotonic clock, so rows of another trial lie elsewhere."""
    first, last = trial.run.started_ns, trial.run.finished_ns
    begin, end = trial.row.started_ns, trial.row.started_ns + trial.row.wall_ns
    if first < begin - SLACK_NS or last > end + SLACK_NS:
        inspection.refuse_trial(
            trial,
            Flaw(
                f"its requests are of {first} to {last} ns, and the parent ran the trial from "
                f"{begin} to {end} ns: they are the rows of another trial"
            ),
            file="trials.csv",
        )


WALL = StudyRule(
    code="RUN014",
    name="wall-agrees",
    sentence="The requests lie inside of the wall that the parent saw, and nearly fill it.",
    rationale=(
        "Work done before the first stamp, or after the last, is free in the worker's figures and "
        "is not free for whoever waits; warm-ups are held to it too. The parent's wall may exceed "
        "the worker's by 50 ms and 2 % for handing over the trial and its answer. Both read one "
        "monotonic clock, so that rows of another trial or arm, which may have taken as long, "
        "stand outside of the parent's wall."
    ),
    remedy="Prepare at launch, and let the first stamp be the arrival of the first request.",
    check=_wall,
)
