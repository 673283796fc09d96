"""Reproduced, refuted, or not tried: the word follows from the sweeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_report import spread
from nanoserve_report.study import Study, load
from support.report_studies import BASELINES_MS, STEP_MS, step_ms, sweep, write


def test_one_sweep_tries_nothing(one: Study) -> None:
    found = spread.verdict(one.sections[0])
    assert found.word == "not tried"
    assert "there is 1 such sweep" in found.sentence


def test_what_is_lacking_is_counted_and_not_the_sweeps(three: Study) -> None:
    first, *others = three.folders
    verdict = dataclasses.replace(first.verdict, comparisons=())
    study = Study(folders=(dataclasses.replace(first, verdict=verdict), *others))
    found = spread.verdict(study.sections[0])
    assert found.word == "not tried"
    assert "it takes 3 sweeps" in found.sentence
    assert "there are 2 such sweeps" in found.sentence


def test_sweeps_of_other_code_are_not_set_side_by_side(tmp_path: Path) -> None:
    other = sweep(2)
    other.plan = dataclasses.replace(other.plan, revision="f" * 40)
    study = load(write(tmp_path, sweep(0), sweep(1), other))
    assert [spread.verdict(section).word for section in study.sections] == ["not tried"] * 2


def test_a_wandering_baseline_and_steady_doublings_reproduce_the_claim(three: Study) -> None:
    section = three.sections[0]
    found = spread.verdict(section)
    assert found.word == "reproduced"
    expected = max(BASELINES_MS) / min(BASELINES_MS)
    widest = max(line.spread for line in spread.headline(section) if line.spread)
    assert widest == pytest.approx(expected, rel=0.02)
    assert f"{widest:.2f}" in found.sentence


def test_wandering_doublings_under_a_steady_baseline_refute_it(tmp_path: Path) -> None:
    def engine(index: int):
        # Two slots get slower and four get faster: the doubling moves by both, a ratio by one.
        factors = {2: 1 + 0.2 * index, 4: 1 / (1 + 0.2 * index)}
        return lambda system, rows: (
            62.0 if system != "nanoserve" else STEP_MS.get(rows, 60) * factors.get(rows, 1.0)
        )

    studies = [sweep(index, step_ms=engine(index)) for index in range(3)]
    found = spread.verdict(load(write(tmp_path, *studies)).sections[0])
    assert found.word == "refuted"


def test_a_changed_verdict_reproduces_only_in_part(tmp_path: Path) -> None:
    def engine(index: int):
        base = step_ms(BASELINES_MS[index])
        return lambda system, rows: (
            base(system, rows) if rows != 8 or system != "nanoserve" else (88.0, 91.0, 97.0)[index]
        )

    studies = [sweep(index, step_ms=engine(index)) for index in range(3)]
    found = spread.verdict(load(write(tmp_path, *studies)).sections[0])
    assert found.word == "reproduced in part"
    assert "the verdict changed on 4 to 8 slots" in found.sentence


def test_a_headline_that_wanders_hardly_more_decides_nothing(tmp_path: Path) -> None:
    def engine(index: int):
        # At eight slots both move: the doubling by 1.20, a ratio by 1.20 x 1.06.
        base = 62.0 * (1.0, 1.03, 1.06)[index]
        slower = {8: 1.2 ** (1 - index / 2)}
        return lambda system, rows: (
            base if system != "nanoserve" else STEP_MS.get(rows, 60) * slower.get(rows, 1.0)
        )

    studies = [sweep(index, step_ms=engine(index)) for index in range(3)]
    found = spread.verdict(load(write(tmp_path, *studies)).sections[0])
    assert found.word == "undecided", found.sentence
