"""The judge: every rule over a folder, everything it finds, and what may be printed afterwards.

It fails closed. A folder that cannot be read has only findings; a rule that raises refuses what it
was looking at; a rule that looked at nothing refuses the study, unless it says why it has nothing
to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nanoserve_bench.faults import Fault, ResultsError
from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.schema import ROW_TYPES
from nanoserve_bench.soundness import acknowledgement
from nanoserve_bench.soundness.assess import assess
from nanoserve_bench.soundness.catalogue import CODES, RULES
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.findings import Finding
from nanoserve_bench.soundness.rule import Flaw, Inspection, PairRule, Rule, RunRule, StudyRule
from nanoserve_bench.soundness.rules.report_form import ASSEMBLES, PAGES, READ_RULES
from nanoserve_bench.soundness.verdict import RuleOutcome, Verdict


def judge_path(path: Path) -> Verdict:
    """Read a folder and judge it; what cannot be read becomes findings, never an exception."""
    try:
        results = read(path)
    except ResultsError as error:
        findings = tuple(_from_fault(fault) for fault in error.faults)
    except Exception as error:  # noqa: BLE001 - fail closed: whatever breaks the reader is refused
        findings = (
            Finding(
                rule="REP001",
                message=f"the folder cannot be read: {type(error).__name__}: {error}",
                file=str(path),
            ),
        )
    else:
        return judge(results)
    return Verdict(
        path=path,
        run_id=None,
        results=None,
        findings=findings,
        outcomes=_read_outcomes(findings),
        cells={},
        comparisons=(),
        marginals=(),
        acknowledged=(),
    )


def judge(results: ResultSet) -> Verdict:
    """Judge a folder that has been read."""
    outcomes = list(_read_outcomes(()))
    assembling = Inspection(rule=ASSEMBLES)
    try:
        evidence = Evidence.of(results)
        assembling.saw(len(evidence.trials))
    except Exception as error:  # noqa: BLE001 - rows that do not form runs are refused as such
        assembling.refuse_study(f"the rows do not form runs: {_describe(error)}")
        outcomes.append(_outcome(assembling))
        return Verdict(
            path=results.path,
            run_id=results.plan.run_id,
            results=results,
            findings=tuple(assembling.findings),
            outcomes=tuple(outcomes),
            cells={},
            comparisons=(),
            marginals=(),
            acknowledged=(),
        )
    outcomes.append(_outcome(assembling))
    outcomes += [_outcome(inspect(rule, evidence)) for rule in RULES if type(rule) is not Rule]
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    expected, obsolete = acknowledgement.match(results.plan, findings)
    last = Inspection(rule=acknowledgement.ACKNOWLEDGED)
    acknowledgement.report(results.plan, obsolete, last)
    outcomes.append(_outcome(last))
    outcomes.append(_outcome(Inspection(rule=PAGES, not_applicable="the report applies it")))
    findings += last.findings
    cells, comparisons, marginals = assess(evidence, findings)
    return Verdict(
        path=results.path,
        run_id=results.plan.run_id,
        results=results,
        findings=tuple(findings),
        outcomes=tuple(sorted(outcomes, key=lambda outcome: CODES.index(outcome.code))),
        cells=cells,
        comparisons=comparisons,
        marginals=marginals,
        acknowledged=expected,
    )


def inspect(rule: Rule, evidence: Evidence) -> Inspection:
    """Apply one rule to a study."""
    inspection = Inspection(rule=rule)
    if isinstance(rule, RunRule):
        _inspect_runs(rule, evidence, inspection)
    elif isinstance(rule, PairRule):
        _inspect_pairs(rule, evidence, inspection)
    elif isinstance(rule, StudyRule):
        try:
            rule.check(evidence, inspection)
        except Exception as error:  # noqa: BLE001 - fail closed
            inspection.refuse_study(f"the rule could not be applied: {_describe(error)}")
    inspection.close()
    return inspection


def _inspect_runs(rule: RunRule, evidence: Evidence, inspection: Inspection) -> None:
    reasons = []
    clear = _clear(rule, evidence)
    for trial in evidence.measured:
        try:
            reason = rule.exempt(trial.run)
            if reason is not None:
                reasons.append(reason)
                continue
            inspection.saw()
            if trial.number in clear:
                continue
            for flaw in rule.check(trial.run):
                inspection.refuse_trial(trial, flaw, file=rule.file)
        except Exception as error:  # noqa: BLE001 - fail closed
            flaw = Flaw(f"the rule could not be applied: {_describe(error)}")
            inspection.refuse_trial(trial, flaw, file=rule.file)
    if reasons and not inspection.examined:
        inspection.not_applicable = reasons[0]


def _clear(rule: RunRule, evidence: Evidence) -> frozenset[int]:
    """Numbers of the trials in which the rule surely finds nothing."""
    if rule.clear is None:
        return frozenset()
    try:
        return frozenset(np.flatnonzero(rule.clear(evidence.profile)).tolist())
    except Exception:  # noqa: BLE001 - whatever cannot be cleared is checked
        return frozenset()


def _inspect_pairs(rule: PairRule, evidence: Evidence, inspection: Inspection) -> None:
    if not evidence.pairs:
        inspection.not_applicable = "the plan states no ratio"
    for pair in evidence.pairs:
        for block, baseline, candidate in pair.blocks():
            inspection.saw()
            try:
                if rule.about_work and evidence.same_work(baseline, candidate):
                    continue
                for flaw in rule.check(baseline.run, candidate.run):
                    inspection.refuse_pair(pair, flaw, block=block, file=rule.file)
            except Exception as error:  # noqa: BLE001 - fail closed
                flaw = Flaw(f"the rule could not be applied: {_describe(error)}")
                inspection.refuse_pair(pair, flaw, block=block, file=rule.file)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _outcome(inspection: Inspection) -> RuleOutcome:
    return RuleOutcome(
        code=inspection.rule.code,
        name=inspection.rule.name,
        examined=inspection.examined,
        not_applicable=inspection.not_applicable,
        findings=tuple(inspection.findings),
    )


def _read_outcomes(findings: Sequence[Finding]) -> tuple[RuleOutcome, ...]:
    """What the reader's rules did: all of them passed, or some refused and the rest cannot say."""
    refused = {finding.rule for finding in findings}
    return tuple(
        RuleOutcome(
            code=rule.code,
            name=rule.name,
            examined=len(ROW_TYPES) + 2,
            not_applicable=(
                "another of the reader's rules refused the folder, which leaves this one open"
                if findings and rule.code not in refused
                else None
            ),
            findings=tuple(finding for finding in findings if finding.rule == rule.code),
        )
        for rule in READ_RULES
    )


def _from_fault(fault: Fault) -> Finding:
    value = "" if fault.value is None else f" (value {fault.value!r})"
    return Finding(
        rule=fault.rule,
        message=f"{fault.message}{value}",
        hint=fault.hint,
        file=fault.file,
        row=fault.row,
        column=fault.column,
    )
