"""Refusals that the plan expects: they keep the light green and leave a hole, never a number."""

from __future__ import annotations

from collections.abc import Sequence

from nanoserve_bench.plan import AcknowledgedRefusal, Plan
from nanoserve_bench.soundness.evidence import doublings
from nanoserve_bench.soundness.findings import Finding
from nanoserve_bench.soundness.rule import Inspection, Rule
from nanoserve_bench.soundness.rules.report_form import READ_RULES
from nanoserve_bench.soundness.verdict import Acknowledged

ACKNOWLEDGED = Rule(
    code="REP013",
    name="acknowledged-refusal-occurs",
    sentence="Every refusal that the plan acknowledges still occurs, at its exact cell and rule.",
    rationale=(
        "An acknowledgement is an expected hole, not a licence: once the refusal is gone it would "
        "silently cover the next, different one. It must name a cell of the plan and the code of "
        "a rule about cells or pairs, and give a reason; a fault of the whole study cannot be "
        "acknowledged. For a pair rule the cell is the comparison's candidate, or either side of a "
        "doubling."
    ),
    remedy="Take the acknowledgement out of the next plan: the cell measures soundly now.",
)


STUDY_WIDE = frozenset(
    {rule.code for rule in READ_RULES}
    | {"STAT006", "STAT007", "REP011", "REP012", "REP013", "REP014", "REP015"}
)
"""Rules about the folder as a whole: what they refuse cannot be acknowledged."""


def match(
    plan: Plan, findings: Sequence[Finding]
) -> tuple[tuple[Acknowledged, ...], tuple[AcknowledgedRefusal, ...]]:
    """Findings by the acknowledgement that covers them, and acknowledgements that cover none."""
    doubled = {(lower.id, upper.id) for lower, upper in doublings(plan)}
    covered = []
    obsolete = []
    for refusal in plan.acknowledged:
        found = tuple(finding for finding in findings if _covers(refusal, finding, doubled))
        if found and refusal.reason.strip():
            covered.append(Acknowledged(refusal=refusal, findings=found))
        else:
            obsolete.append(refusal)
    return tuple(covered), tuple(obsolete)


def report(plan: Plan, obsolete: Sequence[AcknowledgedRefusal], inspection: Inspection) -> None:
    """Refuse every acknowledgement that covers nothing."""
    inspection.saw(len(plan.acknowledged))
    if not plan.acknowledged:
        inspection.not_applicable = "the plan acknowledges no refusal"
    for refusal in obsolete:
        inspection.refuse_study(
            f"the plan acknowledges {refusal.rule} at {refusal.cell} "
            f"({refusal.reason or 'without a reason'}), and it does not occur",
            file="plan.json",
            column=f"acknowledged[{plan.acknowledged.index(refusal)}]",
        )


def _covers(refusal: AcknowledgedRefusal, finding: Finding, doubled: set[tuple[str, str]]) -> bool:
    if finding.rule != refusal.rule:
        return False
    if finding.cell == refusal.cell:
        return True
    pair = (finding.reference_cell or "", finding.cell or "")
    return pair in doubled and finding.reference_cell == refusal.cell
