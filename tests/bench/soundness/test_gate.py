"""Where findings come to lie, and what the gate says when it cannot judge."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from nanoserve_bench.errors import RunUnsound, UnfairComparison
from nanoserve_bench.faults import Fault, ResultsError
from nanoserve_bench.records import SystemRun
from nanoserve_bench.results import ResultSet
from nanoserve_bench.schema import ROW_TYPES
from nanoserve_bench.soundness import RULES, Finding, Verdict, direct, judge, judge_path, rule_of
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.judge import inspect
from nanoserve_bench.soundness.rule import (
    MOST_FINDINGS,
    Flaw,
    Inspection,
    PairRule,
    RunRule,
    StudyRule,
)
from nanoserve_bench.soundness.rules.report_form import READ_RULES
from support.rebuild import AGAIN, BASE, replace
from support.ruler import concurrent, edited, serial

JUDGING = importlib.import_module("nanoserve_bench.soundness.judge")  # its name is the function's
TEXT = {"name": "n", "sentence": "s", "rationale": "w", "remedy": "r"}
FLAW = Flaw("m", request="r3", position=5, evidence="e")


@pytest.fixture(scope="module")
def evidence(results: ResultSet) -> Evidence:
    return Evidence.of(results)


def inspection() -> Inspection:
    return Inspection(rule=RunRule(code="RUN999", check=lambda run: (), **TEXT))


def raising(*_: object) -> Any:
    raise ZeroDivisionError("by nothing")


BY_NOTHING = "the rule could not be applied: ZeroDivisionError: by nothing"
SAID = {"rule": "RUN999", "hint": "r"}


# Where findings come to lie.


def test_a_finding_about_a_trial_has_its_line(evidence: Evidence) -> None:
    trial = next(t for t in evidence.measured if t.cell.id == AGAIN and t.block == 2)
    rest: dict[str, Any] = {**SAID, "arm": trial.cell.arm, "cell": AGAIN, "block": 2}
    found = inspection()
    found.refuse_trial(trial, FLAW)
    found.refuse_trial(trial, Flaw("m"), file="trials.csv")
    found.refuse_trial(trial, Flaw("m", file="systems.csv"), file="trials.csv")
    found.refuse_trial(trial, Flaw("m", file="steps.csv"))
    lines = [trial.line(*place) for place in (("requests.csv", "r3"), ("trials.csv",))]
    lines.append(trial.line("systems.csv"))
    assert None not in lines
    assert found.findings == [
        Finding(
            message="m", evidence="e", request="r3", position=5, file="requests.csv",
            row=lines[0], **rest,
        ),
        Finding(message="m", file="trials.csv", row=lines[1], **rest),
        Finding(message="m", file="systems.csv", row=lines[2], **rest),
        Finding(message="m", file="steps.csv", **rest),
    ]  # fmt: skip


def test_a_finding_about_a_pair_has_the_line_of_its_candidate(evidence: Evidence) -> None:
    pair = evidence.pairs[0]
    rest: dict[str, Any] = {
        **SAID, "arm": pair.candidate.arm, "cell": AGAIN, "reference_cell": BASE,
    }  # fmt: skip
    found = inspection()
    found.refuse_pair(pair, FLAW, block=2, file="requests.csv")
    found.refuse_pair(pair, Flaw("m", file="systems.csv"), block=2, file="trials.csv")
    found.refuse_pair(pair, Flaw("m"), block=2)
    found.refuse_pair(pair, Flaw("m"), block=None, file="trials.csv")
    trial = pair.candidate_trials[2]
    row = trial.line("requests.csv", "r3")
    assert found.findings == [
        Finding(
            message="m", evidence="e", request="r3", position=5, block=2, file="requests.csv",
            row=row, **rest,
        ),
        Finding(message="m", block=2, file="systems.csv", row=trial.line("systems.csv"), **rest),
        Finding(message="m", block=2, **rest),
        Finding(message="m", file="trials.csv", **rest),
    ]  # fmt: skip


def test_findings_about_a_cell_and_the_study(evidence: Evidence) -> None:
    trial = evidence.measured[-1]
    found = inspection()
    found.refuse_cell(trial, BASE, "a", "m", "e")
    found.refuse_cell(None, BASE, "a", "m")
    found.refuse_study("m", evidence="e", file="f", row=3, column="c")
    found.refuse_study("m")
    assert found.findings == [
        Finding(message="m", evidence="e", arm="a", cell=BASE, block=trial.block, **SAID),
        Finding(message="m", arm="a", cell=BASE, **SAID),
        Finding(message="m", evidence="e", file="f", row=3, column="c", **SAID),
        Finding(message="m", **SAID),
    ]


@pytest.mark.parametrize("more", [0, 1, 7])
def test_so_many_findings_of_a_pair_are_kept(evidence: Evidence, more: int) -> None:
    found = inspection()
    for _ in range(MOST_FINDINGS + more):
        found.refuse_pair(evidence.pairs[0], Flaw("m"), block=None)
    found.refuse_cell(None, AGAIN, "a", "of another kind")
    found.close()
    assert len(found.findings) == MOST_FINDINGS + 1 + (more > 0)
    assert found.findings[MOST_FINDINGS].message == "of another kind"
    rest = [
        Finding(
            rule="RUN999", message=f"{more} more findings like these", cell=AGAIN,
            reference_cell=BASE,
        )
    ]  # fmt: skip
    assert found.findings[MOST_FINDINGS + 1 :] == rest * (more > 0)


@pytest.mark.parametrize(
    ("examined", "reason", "refused"), [(0, None, 1), (1, None, 0), (0, "there is none", 0)]
)
def test_a_rule_looks_at_something_or_says_why_not(
    examined: int, reason: str | None, refused: int
) -> None:
    found = inspection()
    found.saw(examined)
    found.not_applicable = reason
    found.close()
    message = "the rule examined nothing, and nothing proves nothing"
    assert found.findings == [Finding(message=message, **SAID)] * refused


def test_what_was_seen_adds_up() -> None:
    found = inspection()
    found.saw()
    found.saw(3)
    assert found.examined == 4


# Rules that raise, or that do not apply.


def test_a_rule_that_raises_is_said_to_where_it_raised(evidence: Evidence) -> None:
    run = inspect(RunRule(code="RUN999", check=raising, file="trials.csv", **TEXT), evidence)
    assert run.examined == len(evidence.measured) == len(run.findings)
    for finding, trial in zip(run.findings, evidence.measured, strict=True):
        assert (finding.message, finding.cell, finding.block) == (
            BY_NOTHING, trial.cell.id, trial.block,
        )  # fmt: skip
        assert (finding.file, finding.row) == ("trials.csv", trial.line("trials.csv"))
    pair = inspect(PairRule(code="PAIR999", check=raising, file="systems.csv", **TEXT), evidence)
    assert [(f.message, f.block, f.file) for f in pair.findings] == [
        (BY_NOTHING, block, "systems.csv") for _ in evidence.pairs for block in evidence.blocks
    ]
    study = inspect(StudyRule(code="STAT999", check=raising, **TEXT), evidence)
    assert [finding.message for finding in study.findings] == [BY_NOTHING]


def test_what_a_rule_finds_lies_where_it_looked(evidence: Evidence) -> None:
    run = RunRule(code="RUN999", check=lambda run: [Flaw("m")], file="trials.csv", **TEXT)
    found = inspect(run, evidence).findings
    assert [(f.message, f.cell, f.block, f.file, f.row) for f in found] == [
        ("m", trial.cell.id, trial.block, "trials.csv", trial.line("trials.csv"))
        for trial in evidence.measured
    ]
    rule = PairRule(code="PAIR999", check=lambda one, two: [Flaw("m")], file="systems.csv", **TEXT)
    found = inspect(rule, evidence).findings
    assert [(f.message, f.cell, f.reference_cell, f.block, f.file) for f in found] == [
        ("m", pair.candidate.id, pair.baseline.id, block, "systems.csv")
        for pair in evidence.pairs
        for block in evidence.blocks
    ]


def test_a_rule_of_pairs_says_that_there_are_none(evidence: Evidence) -> None:
    rule = PairRule(code="PAIR999", check=raising, **TEXT)
    assert inspect(rule, evidence).not_applicable is None
    alone = inspect(rule, dataclasses.replace(evidence, pairs=()))
    assert (alone.not_applicable, alone.findings) == ("the plan states no ratio", [])


def test_a_rule_of_runs_is_exempt_where_all_of_them_are(evidence: Evidence) -> None:
    def exempt(run: SystemRun) -> str | None:
        return f"{run.system} is"

    none = inspect(RunRule(code="RUN999", check=raising, exempt=exempt, **TEXT), evidence)
    first = evidence.measured[0].launch.system
    assert (none.examined, none.not_applicable, none.findings) == (0, f"{first} is", [])

    some = RunRule(
        code="RUN999",
        check=lambda run: [Flaw(run.system)],
        exempt=lambda run: "it is" if run.system == first else None,
        **TEXT,
    )
    found = inspect(some, evidence)
    others = [t for t in evidence.measured if t.launch.system != first]
    assert (found.examined, found.not_applicable) == (len(others), None)
    assert len(found.findings) == len(others) > 0


def test_what_is_clear_is_not_checked_and_counted_all_the_same(evidence: Evidence) -> None:
    def cleared(clear: Any) -> Inspection:
        rule = RunRule(code="RUN999", check=lambda run: [Flaw("m")], clear=clear, **TEXT)
        return inspect(rule, evidence)

    every = len(evidence.measured)
    for clear, checked in (
        (lambda profile: [True] * len(evidence.trials), 0),
        (lambda profile: [False] * len(evidence.trials), every),
        (lambda profile: [t.block == 0 for t in evidence.trials], every - every // 8),
        (lambda profile: [profile is evidence.profile] * len(evidence.trials), 0),
        (raising, every),
        (None, every),
    ):
        found = cleared(clear)
        assert (found.examined, len(found.findings)) == (every, checked)


def test_rules_about_work_skip_what_surely_is_the_same(evidence: Evidence) -> None:
    blocks = len(evidence.pairs) * len(evidence.blocks)
    for about_work, count in ((False, blocks), (True, 0)):
        rule = PairRule(
            code="PAIR999", check=lambda one, two: [Flaw("m")], about_work=about_work, **TEXT
        )
        found = inspect(rule, evidence)
        assert (found.examined, len(found.findings)) == (blocks, count)


# What cannot be judged.


def empty(verdict: Verdict) -> bool:
    return (verdict.cells, verdict.comparisons, verdict.marginals, verdict.acknowledged) == (
        {}, (), (), (),
    )  # fmt: skip


OPEN = "another of the reader's rules refused the folder, which leaves this one open"


def test_every_fault_of_the_reader_is_a_finding_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = (
        Fault(rule="REP004", file="f", row=3, column="c", value="x", message="m", hint="h"),
        Fault(rule="REP002", file="g", message="n", hint="i"),
    )

    def read(path: Path) -> ResultSet:
        raise ResultsError(path, faults)

    monkeypatch.setattr(JUDGING, "read", read)
    verdict = judge_path(Path("there"))
    assert (verdict.path, verdict.run_id, verdict.results) == (Path("there"), None, None)
    assert empty(verdict)
    assert verdict.findings == (
        Finding(rule="REP004", message="m (value 'x')", hint="h", file="f", row=3, column="c"),
        Finding(rule="REP002", message="n", hint="i", file="g"),
    )
    assert [(o.code, o.name) for o in verdict.outcomes] == [(r.code, r.name) for r in READ_RULES]
    for outcome in verdict.outcomes:
        own = tuple(finding for finding in verdict.findings if finding.rule == outcome.code)
        assert outcome.findings == own
        assert outcome.not_applicable == (None if own else OPEN)
        assert outcome.examined == len(ROW_TYPES) + 2


def test_whatever_breaks_the_reader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JUDGING, "read", raising)
    verdict = judge_path(Path("there"))
    assert empty(verdict)
    message = "the folder cannot be read: ZeroDivisionError: by nothing"
    assert verdict.findings == (Finding(rule="REP001", message=message, file="there"),)


def test_rows_that_form_no_runs_are_refused_as_such(
    results: ResultSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "of", raising)
    verdict = judge(results)
    assert empty(verdict)
    assert (verdict.path, verdict.run_id) == (results.path, results.plan.run_id)
    assert verdict.results is results
    message = "the rows do not form runs: ZeroDivisionError: by nothing"
    rule = rule_of("REP015")
    assert rule is not None
    assert verdict.findings == (Finding(rule="REP015", message=message, hint=rule.remedy),)
    assert [o.code for o in verdict.outcomes] == [*(r.code for r in READ_RULES), "REP015"]
    assert [o.not_applicable for o in verdict.outcomes] == [None] * len(verdict.outcomes)
    assert verdict.outcomes[-1].findings == verdict.findings


def test_a_verdict_tells_of_every_rule_in_its_order(results: ResultSet) -> None:
    verdict = judge(results)
    assert (verdict.path, verdict.run_id) == (results.path, results.plan.run_id)
    assert verdict.results is results
    assert [(o.code, o.name) for o in verdict.outcomes] == [(r.code, r.name) for r in RULES]
    outcomes = {outcome.code: outcome for outcome in verdict.outcomes}
    assert outcomes["REP014"].not_applicable == "the report applies it"
    assert outcomes["REP013"].not_applicable == "the plan acknowledges no refusal"
    assert outcomes["REP015"].examined == len(results.trials)
    assert outcomes["REP001"].not_applicable is None


def test_findings_stand_once_in_the_verdict_and_once_with_their_rule(results: ResultSet) -> None:
    trials = tuple(replace(row, cpu_ns=-1) for row in results.trials)
    verdict = judge(replace(results, trials=trials, sweep=results.sweep[1:]))
    assert {finding.rule for finding in verdict.findings} == {"STAT004", "REP012"}
    for outcome in verdict.outcomes:
        own = tuple(finding for finding in verdict.findings if finding.rule == outcome.code)
        assert outcome.findings == own


# Runs at hand.


def refused(check: Any, *arguments: Any) -> list[str]:
    with pytest.raises((RunUnsound, UnfairComparison)) as caught:
        check(*arguments)
    return str(caught.value).splitlines()


UNFINISHED = "RUN003 stamps-present: request r1 has no finish stamp"


def test_a_shape_is_refused_with_everything_that_is_wrong() -> None:
    broken = edited(serial(), 1, finished_ns=None)
    assert refused(direct.check_concurrent, broken) == [
        "serial: the run is serial, not concurrent",
        f"serial: {UNFINISHED}",
    ]
    load = edited(edited(concurrent(), 1, finished_ns=None), 0, arrival_ns=-1)
    assert refused(direct.check_offered_load, load)[:2] == [
        f"concurrent: {UNFINISHED}",
        "concurrent: RUN005 stamps-in-order: request r0: the arrival is negative (-1)",
    ]


def test_a_comparison_is_refused_with_everything_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = "PAIR008 same-threads: the threads differs: 1 in the candidate, 2 in the baseline"
    weights = "PAIR006 same-weights: the weights of the candidate is unknown, and what is unknown "
    assert refused(direct.compare, serial(), concurrent(threads=1, weights=None)) == [
        f"{weights}cannot be verified",
        threads,
    ]
    monkeypatch.setattr(direct, "RUN_RULES", (RunRule(code="RUN999", check=raising, **TEXT),))
    applied = "RUN999 n: could not be applied: ZeroDivisionError: by nothing"
    lines = [f"baseline {applied}", f"candidate {applied}"]
    assert refused(direct.compare, serial(), concurrent(threads=1)) == [*lines, threads]
    without_tokens = dataclasses.replace(serial(), records=())
    assert refused(direct.compare, without_tokens, serial())[:2] == lines
