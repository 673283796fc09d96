"""Every mutant is killed by the rule that is meant for it, and every clean control accepted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nanoserve_bench.soundness import RULES, RefusedCell, SoundCell, judge_path
from support.controls import CONTROLS, Control
from support.mutants import MUTANTS, Mutant

ELSEWHERE = {"REP014": "the report applies it to its pages"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}-{mutant.name}")
def test_a_mutant_is_refused_by_the_rule_meant_for_it(mutant: Mutant, tmp_path: Path) -> None:
    verdict = judge_path(mutant.write(tmp_path / "run"))
    assert not verdict.ok
    assert mutant.rule in {finding.rule for finding in verdict.findings}
    crashed = [f for f in verdict.findings if "could not be applied" in f.message]
    assert not crashed, "a rule that crashes kills by accident"
    for finding in verdict.findings:
        assert finding.message
        assert finding.place


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_a_clean_control_is_accepted_whole(control: Control, tmp_path: Path) -> None:
    verdict = judge_path(control.write(tmp_path / "run"))
    assert [str(finding) for finding in verdict.findings] == []
    assert verdict.ok
    assert all(isinstance(cell, SoundCell) for cell in verdict.cells.values())


def test_there_are_enough_of_both_and_none_is_there_twice() -> None:
    assert len(MUTANTS) >= 60
    assert len(CONTROLS) >= 12
    names = Counter(item.name for item in (*MUTANTS, *CONTROLS))
    assert names.most_common(1)[0][1] == 1


def test_every_rule_has_a_mutant() -> None:
    killed = {mutant.rule for mutant in MUTANTS}
    assert {rule.code for rule in RULES} - killed == set(ELSEWHERE)


def test_a_refusal_reaches_no_further_than_its_cell(tmp_path: Path) -> None:
    mutant = next(m for m in MUTANTS if m.name == "never-batched")
    verdict = judge_path(mutant.write(tmp_path / "run"))
    refused = {name for name, cell in verdict.cells.items() if isinstance(cell, RefusedCell)}
    assert refused == {"nanoserve/cpu/float32/4/day44"}
    sound = [c for c in verdict.comparisons if hasattr(c, "speedup")]
    assert len(sound) == len(verdict.comparisons) - 1
    assert [hasattr(m, "product") for m in verdict.marginals] == [True, False, False]
