"""Whether the plan is the one of the first trial."""

from __future__ import annotations

from datetime import datetime

from nanoserve_bench.results import PLAN
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule


def _plan(evidence: Evidence, inspection: Inspection) -> None:
    manifest = evidence.results.manifest
    digest = next((file.sha256 for file in manifest.files if file.name == PLAN), None)
    for index, start in enumerate(manifest.ledger):
        inspection.saw()
        if not start.plan_sha256 or start.plan_sha256 != digest:
            inspection.refuse_study(
                f"start {index} began with a plan of digest {start.plan_sha256 or '(none)'}, and "
                f"plan.json has {digest}: the plan was changed afterwards",
                file="manifest.json",
                column=f"ledger[{index}].plan_sha256",
            )
    created = _time(inspection, evidence.plan.created_at, "plan.json", "created_at")
    if created is None:
        return
    for index, start in enumerate(manifest.ledger):
        column = f"ledger[{index}].started_at"
        started = _time(inspection, start.started_at, "manifest.json", column)
        if started is not None and started < created:
            inspection.refuse_study(
                f"start {index} is of {start.started_at}, and the plan of "
                f"{evidence.plan.created_at}: the plan was written afterwards",
                file="manifest.json",
                column=column,
            )
    for trial in evidence.trials:
        inspection.saw()
        started = _time(inspection, trial.row.started_at, "trials.csv", "started_at")
        if started is not None and started < created:
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"it started at {trial.row.started_at}, and the plan is of "
                    f"{evidence.plan.created_at}"
                ),
                file="trials.csv",
            )


def _time(inspection: Inspection, text: str, file: str, column: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        inspection.refuse_study(f"{text!r} is no ISO time with an offset", file=file, column=column)
        return None
    return time


PLAN_UNCHANGED = StudyRule(
    code="REP011",
    name="plan-unchanged",
    sentence="The plan is older than every trial, and has the digest that every start found.",
    rationale=(
        "A plan that is shrunk to the cells that worked, or in which a refusal is acknowledged "
        "after it was seen, promises what is already known. Every start enters the digest of the "
        "plan that it found into the ledger. Whoever rewrites the ledger as well cannot be caught "
        "from the folder alone; the history of the repository keeps it."
    ),
    remedy="Restore the plan; put the change into a new one and measure again.",
    check=_plan,
)
