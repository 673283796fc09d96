"""The judge fails closed, places what it finds, and lets no refused number through."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.plan import AcknowledgedRefusal
from nanoserve_bench.results import read
from nanoserve_bench.soundness import (
    RULES,
    Finding,
    RefusedCell,
    RefusedComparison,
    RefusedMarginal,
    SoundComparison,
    Verdict,
    judge,
    judge_path,
    rule_of,
)
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
from support.mutants import MUTANTS
from support.mutants.base import altered_token
from support.rebuild import BASE, engine, set_plan
from support.sound import study

TEXT = {"name": "n", "sentence": "s", "rationale": "w", "remedy": "r"}


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return Evidence.of(read(study().write(tmp_path_factory.mktemp("sound") / "run")))


def mutant(name: str, path: Path) -> Verdict:
    return judge_path(next(m for m in MUTANTS if m.name == name).write(path / "run"))


def test_a_run_rule_that_raises_refuses_the_cells_it_was_looking_at(evidence: Evidence) -> None:
    def check(run: object) -> list[Flaw]:
        raise ZeroDivisionError("by nothing")

    found = inspect(RunRule(code="RUN999", check=check, **TEXT), evidence).findings
    assert {finding.cell for finding in found} == {cell.id for cell in evidence.plan.cells}
    assert all("could not be applied: ZeroDivisionError: by nothing" in f.message for f in found)


def test_a_pair_rule_that_raises_refuses_the_pairs(evidence: Evidence) -> None:
    def check(one: object, other: object) -> list[Flaw]:
        raise KeyError("gone")

    found = inspect(PairRule(code="PAIR999", check=check, **TEXT), evidence).findings
    assert {(f.reference_cell, f.cell) for f in found} == {
        (pair.baseline.id, pair.candidate.id) for pair in evidence.pairs
    }


def test_a_study_rule_that_raises_refuses_everything(evidence: Evidence) -> None:
    def check(study: Evidence, inspection: Inspection) -> None:
        raise RuntimeError("no")

    (finding,) = inspect(StudyRule(code="STAT999", check=check, **TEXT), evidence).findings
    assert all(finding.refuses_cell(cell) for cell in evidence.plan.cells)


def test_a_rule_that_examines_nothing_refuses_the_study(evidence: Evidence) -> None:
    rule = StudyRule(code="STAT999", check=lambda study, inspection: None, **TEXT)
    (finding,) = inspect(rule, evidence).findings
    assert "examined nothing" in finding.message


def test_a_rule_that_does_not_apply_says_why_and_refuses_nothing(evidence: Evidence) -> None:
    def check(study: Evidence, inspection: Inspection) -> None:
        inspection.not_applicable = "there is none"

    assert not inspect(StudyRule(code="STAT999", check=check, **TEXT), evidence).findings


def test_findings_without_end_are_counted_and_not_kept(evidence: Evidence) -> None:
    def check(run: object) -> list[Flaw]:
        return [Flaw(f"number {number}") for number in range(1000)]

    inspection = inspect(RunRule(code="RUN999", check=check, **TEXT), evidence)
    of_one = [f for f in inspection.findings if f.cell == BASE]
    assert len(of_one) == MOST_FINDINGS + 1
    assert of_one[-1].message == f"{8 * 1000 - MOST_FINDINGS} more findings like these"
    assert of_one[-1].refuses_cell(evidence.plan.cells[0])


def test_what_cannot_be_read_has_findings_and_nothing_else(tmp_path: Path) -> None:
    verdict = mutant("renamed-column", tmp_path)
    assert not verdict.ok
    assert verdict.results is None
    assert (verdict.cells, verdict.comparisons, verdict.marginals) == ({}, (), ())
    finding = verdict.findings[0]
    assert (finding.rule, finding.file, finding.row) == ("REP003", "trials.csv", 1)
    silent = [o for o in verdict.outcomes if not o.findings]
    assert all(outcome.not_applicable for outcome in silent)


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_a_path_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    verdict = judge_path(tmp_path / name)
    assert [finding.rule for finding in verdict.findings] == ["REP001"]
    assert not verdict.ok


def test_an_altered_output_is_named_by_rule_arm_request_and_position(tmp_path: Path) -> None:
    verdict = judge_path(altered_token().write(tmp_path / "run"))
    finding = next(f for f in verdict.findings if f.reference_cell == BASE)
    assert finding.rule == "PAIR005"
    assert (finding.arm, finding.cell, finding.block) == ("nanoserve", engine(4), 1)
    assert (finding.request, finding.position) == ("r3", 5)
    assert finding.file == "requests.csv"
    assert verdict.results is not None
    row = next(
        r
        for r in verdict.results.requests
        if (r.block, r.cell, r.warmup, r.request) == (1, engine(4), False, "r3")
    )
    assert finding.row == verdict.results.line_of(row)
    assert "triage not recorded" in finding.message
    assert "token 7 instead of token" in finding.message


def test_a_recorded_triage_is_shown_and_refused_all_the_same(tmp_path: Path) -> None:
    verdict = mutant("near-tie", tmp_path)
    finding = next(f for f in verdict.findings if f.reference_cell == BASE)
    assert "triage: near-tie, logits 12.5 and 12.5, top-2 margin 1e-07" in finding.message
    assert not verdict.ok


def test_what_is_refused_has_no_number(tmp_path: Path) -> None:
    verdict = mutant("never-batched", tmp_path)
    for kind, items in (
        (RefusedCell, verdict.cells.values()),
        (RefusedComparison, verdict.comparisons),
        (RefusedMarginal, verdict.marginals),
    ):
        refused = [item for item in items if isinstance(item, kind)]
        assert refused
        for item in refused:
            values = [getattr(item, field.name) for field in dataclasses.fields(item)]
            assert not any(isinstance(value, int | float) for value in values)
            assert item.findings


def test_an_acknowledged_refusal_is_green_and_stays_a_hole(tmp_path: Path) -> None:
    broken = altered_token()
    refusal = AcknowledgedRefusal(cell=engine(4), rule="PAIR005", reason="a known near-tie")
    set_plan(broken, acknowledged=(refusal,))
    verdict = judge_path(broken.write(tmp_path / "run"))
    assert verdict.ok
    assert verdict.findings
    assert not verdict.unacknowledged
    (entry,) = verdict.acknowledged
    assert entry.refusal == refusal
    assert set(entry.findings) == set(verdict.findings)
    pair = next(c for c in verdict.comparisons if c.candidate.id == engine(4))
    assert isinstance(pair, RefusedComparison)


@pytest.mark.parametrize(
    ("cell", "rule"), [(engine(2), "PAIR005"), (engine(4), "PAIR004"), (BASE, "PAIR005")]
)
def test_an_acknowledgement_of_another_cell_or_rule_covers_nothing(
    tmp_path: Path, cell: str, rule: str
) -> None:
    broken = altered_token()
    set_plan(broken, acknowledged=(AcknowledgedRefusal(cell=cell, rule=rule, reason="x"),))
    verdict = judge_path(broken.write(tmp_path / "run"))
    assert not verdict.ok
    against = [f for f in verdict.unacknowledged if f.reference_cell == BASE]
    assert [finding.rule for finding in against] == ["PAIR005"]


def test_a_comparison_without_a_sound_a_a_pair_is_refused_with_its_reason(tmp_path: Path) -> None:
    verdict = mutant("another-library-in-a-a", tmp_path)
    assert all(isinstance(pair, RefusedComparison) for pair in verdict.comparisons)
    assert all(not isinstance(m, RefusedMarginal) for m in verdict.marginals)


def test_factors_of_a_sound_comparison_multiply_to_its_speedup(tmp_path: Path) -> None:
    verdict = judge_path(study().write(tmp_path / "run"))
    for pair in verdict.comparisons:
        assert isinstance(pair, SoundComparison)
        assert pair.batch_factor is not None
        assert pair.slot_factor is not None
        product = pair.batch_factor.point * pair.slot_factor.point
        assert product == pytest.approx(pair.speedup.point, rel=1e-12)
        for exact in pair.pairs.values():
            assert exact.batch_factor is not None
            assert exact.slot_factor is not None
            assert exact.batch_factor * exact.slot_factor == exact.speedup
        if pair.candidate.arm == "nanoserve":
            assert (pair.system_factor, pair.ttft_ratio, pair.e2el_ratio) == (None, None, None)
        else:
            assert pair.system_factor is not None
    at_eight = verdict.comparisons[-1]
    assert isinstance(at_eight, SoundComparison)
    assert at_eight.verdict == "faster"
    assert verdict.marginals[0].verdict == "worth it"  # type: ignore[union-attr]


def test_judging_twice_says_the_same(tmp_path: Path) -> None:
    results = read(altered_token().write(tmp_path / "run"))
    assert judge(results).findings == judge(results).findings


def test_codes_are_unique_and_every_rule_documents_itself() -> None:
    codes = [rule.code for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.family in {"run", "pair", "statistics", "report"}
        assert rule.sentence.endswith(".")
        assert len(rule.rationale) > 30
        assert rule.remedy.endswith(".")
    assert rule_of("run012") is not None
    assert rule_of("RUN000") is None


def test_the_place_of_a_finding_is_told_as_far_as_it_is_known() -> None:
    finding = Finding(
        rule="PAIR005",
        message="m",
        cell="a",
        reference_cell="b",
        block=3,
        request="r1",
        position=0,
        file="requests.csv",
        row=7,
        column="output_sha256",
    )
    assert finding.place == (
        "a against b, block 3, request r1, position 0, requests.csv:7 column output_sha256"
    )
    assert Finding(rule="X", message="m").place == "the study"
    assert Finding(rule="X", message="m", arm="a").place == "arm a"
