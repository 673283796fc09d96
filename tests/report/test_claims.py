"""The source document's claims: quoted as they stand, judged by their rule, tried or not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.statistics import Outcome
from nanoserve_report import claims, source
from nanoserve_report.study import Study, load
from support.report_studies import sweep, write


def words(study: Study) -> dict[str, str]:
    return {claim.name: claim.word for claim in claims.judge(study)}


def test_the_documents_shape_is_reproduced_where_it_shows(three: Study) -> None:
    found = words(three)
    assert found["The knee is at four slots"] == "reproduced"
    assert found["The same tokens"] == "reproduced"
    assert found["Occupancy is not batch size"] == "reproduced"
    assert found["The mean batch is the slot count"] == "reproduced"
    assert found["Company costs the prefill"] == "reproduced"
    assert found["The doublings reproduce, the headline wanders"] == "reproduced"


def test_a_faster_single_slot_refutes_same_speed(one: Study) -> None:
    assert words(one)["Same speed at one slot"] == "refuted"


def test_an_equal_single_slot_reproduces_same_speed(tmp_path: Path) -> None:
    study = sweep(step_ms=lambda _, rows: 60.0 + 4.0 * (rows - 1))
    found = words(load(write(tmp_path, study)))
    assert found["Same speed at one slot"] == "reproduced"
    assert found["The knee is at four slots"] == "refuted"


def test_another_token_refutes_the_same_tokens(refused: Study) -> None:
    assert words(refused)["The same tokens"] == "refuted"


def test_a_card_that_was_not_measured_is_not_tried(one: Study) -> None:
    assert words(one)["On a card the second factor stays near 1"] == "not tried"


@pytest.mark.parametrize(("per_row", "word"), [(0.2, "reproduced"), (12.0, "refuted")])
def test_a_card_is_judged_by_its_second_factor(tmp_path: Path, per_row: float, word: str) -> None:
    study = sweep(
        device="cuda:0",
        step_ms=lambda system, rows: 40.0 if system != "nanoserve" else 24.0 + per_row * rows,
    )
    assert words(load(write(tmp_path, study)))["On a card the second factor stays near 1"] == word


def test_the_documents_own_values_stand_beside_the_finding(three: Study) -> None:
    found = {claim.name: claim.finding for claim in claims.judge(three)}
    for name, words in {
        "The doublings reproduce, the headline wanders": "from 1.41 to 2.02",
        "The mean batch is the slot count": "The document's: 1.0000 at 1, 2.0000 at 2, 4.0001 at 4",
        "Company costs the prefill": "0.74\N{MULTIPLICATION SIGN} at 8",
        "The baseline is the noisy half": "at 3.96, 4.01 and 3.88",
    }.items():
        assert words in found[name], name


def test_the_rule_names_every_word_that_can_be_said(three: Study) -> None:
    claim = next(c for c in claims.judge(three) if c.name.startswith("The doublings reproduce"))
    for word in ("reproduced if", "in part if", "refuted if"):
        assert word in claim.rule


def test_the_prefill_claim_reads_the_headline_baseline_alone(one: Study) -> None:
    """Another baseline's pairs are no further values at the same slots."""
    folder = one.folders[0]
    rivals = tuple(
        dataclasses.replace(pair, baseline=dataclasses.replace(pair.baseline, arm="another"))
        for pair in folder.verdict.comparisons
        if pair.planned.kind == "rival"
    )
    pairs = (*rivals, *folder.verdict.comparisons)
    verdict = dataclasses.replace(folder.verdict, comparisons=pairs)
    study = Study(folders=(dataclasses.replace(folder, verdict=verdict),))
    name = "Company costs the prefill"
    before, after = (
        next(c.finding for c in claims.judge(s) if c.name == name) for s in (one, study)
    )
    assert before == after


def test_the_first_row_more_is_judged_by_the_shares_of_both_ceilings(one: Study) -> None:
    """The word turns with the two shares, and is undecided where their intervals overlap."""
    name = "A row more is arithmetic, not a free ride"
    folder = one.folders[0]
    (key, cell) = next(
        (key, cell)
        for key, cell in folder.verdict.cells.items()
        if (cell.cell.arm, cell.cell.slots) == ("nanoserve", 2)
    )
    low, high = (
        dataclasses.replace(cell.throughput, point=p, low=p - 0.05, high=p + 0.05)
        for p in (0.2, 0.8)
    )
    for read, multiplied, word in (
        (low, high, "reproduced"), (high, low, "refuted"), (low, low, "undecided"),
        (None, low, "not tried"),
    ):  # fmt: skip
        changed = dataclasses.replace(cell, read_share=read, matrix_share=multiplied)
        cells = {**folder.verdict.cells, key: changed}
        verdict = dataclasses.replace(folder.verdict, cells=cells)
        study = Study(folders=(dataclasses.replace(folder, verdict=verdict),))
        claim = next(c for c in claims.judge(study) if c.name == name)
        assert claim.word == word
        if word == "refuted":
            assert (
                "80.0\N{NO-BREAK SPACE}% (75.0\N{EN DASH}85.0) of the read bandwidth"
                in claim.finding
            )


def test_an_engine_that_repeats_within_3_percent_is_seen_over_three_sweeps(
    one: Study, three: Study
) -> None:
    name = "The engine repeats within 3 %"
    assert words(one)[name] == "not tried"
    assert words(three)[name] == "reproduced"


def test_the_stamp_is_judged_by_generate_against_itself_without_it(one: Study) -> None:
    name = "A stamp from inside changes nothing"
    assert words(one)[name] == "not tried"
    folder = one.folders[0]
    (index, pair) = next(
        (i, p) for i, p in enumerate(folder.verdict.comparisons) if p.planned.kind == "self"
    )
    untimed = dataclasses.replace(pair.candidate, system="hf-generate-untimed")
    for verdict, word in (
        (Outcome.NO_DIFFERENCE, "reproduced"), (Outcome.FASTER, "refuted"),
        (Outcome.UNDECIDED, "undecided"),
    ):  # fmt: skip
        changed = dataclasses.replace(pair, candidate=untimed, verdict=verdict)
        pairs = (*folder.verdict.comparisons[:index], changed)
        study = Study(
            folders=(
                dataclasses.replace(
                    folder, verdict=dataclasses.replace(folder.verdict, comparisons=pairs)
                ),
            )
        )
        assert words(study)[name] == word


def test_claims_concern_a_study_in_which_the_engine_takes_part(one: Study) -> None:
    assert claims.concern(one)
    assert claims.concern(Study(folders=()))
    folder = one.folders[0]
    assert folder.verdict.results is not None
    plan = folder.verdict.results.plan
    arms = tuple(arm for arm in plan.arms if arm.system != "nanoserve")
    results = dataclasses.replace(folder.verdict.results, plan=dataclasses.replace(plan, arms=arms))
    verdict = dataclasses.replace(folder.verdict, results=results)
    assert not claims.concern(Study(folders=(dataclasses.replace(folder, verdict=verdict),)))


def test_nothing_measured_is_nothing_tried(tmp_path: Path) -> None:
    assert set(words(load(tmp_path)).values()) == {"not tried"}


def test_the_quoted_doublings_are_the_products_of_their_factors() -> None:
    for row in source.DOUBLINGS:
        assert row.product == pytest.approx(2 * row.slot_ratio, abs=0.015)


def test_the_quoted_speedups_are_the_products_of_their_factors() -> None:
    for row in source.SWEEP:
        assert row.speedup == pytest.approx(row.batch * row.per_slot_second, abs=0.05)
