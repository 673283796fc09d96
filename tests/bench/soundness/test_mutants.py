"""Every mutant is killed by the rule that is meant for it, and every clean control accepted."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from nanoserve_bench.soundness import RULES, RefusedCell, kills
from support import kill_table
from support.controls import CONTROLS, Control
from support.mutants import MUTANTS, Mutant
from support.mutants.pages import PAGE_MUTANTS

ALL_MUTANTS = (*MUTANTS, *PAGE_MUTANTS)


Judge = Callable[[Mutant | Control], kill_table.Judged]


@pytest.fixture(scope="module")
def judged() -> Judge:
    """Each mutant and control is judged once, for its own test and for the table."""
    return cache(kill_table.judge)


@pytest.fixture(scope="module")
def table(judged: Judge) -> kills.KillTable:
    return kill_table.tabulate(judged)


@pytest.fixture(scope="module")
def said() -> dict[str, list[tuple[str, ...]]]:
    """What is committed of what is said of each mutant."""
    with kill_table.FINDINGS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    found: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(tuple(row))
    return found


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}-{mutant.name}")
def test_a_mutant_is_refused_by_the_rule_meant_for_it(
    mutant: Mutant, judged: Judge, said: dict[str, list[tuple[str, ...]]]
) -> None:
    verdict = judged(mutant)
    assert not verdict.ok
    assert mutant.rule in verdict.codes
    crashed = [f for f in verdict.findings if "could not be applied" in f.message]
    assert not crashed, "a rule that crashes kills by accident"
    for finding in verdict.findings:
        assert finding.message
        assert finding.place
    now = kill_table.said(mutant, verdict)
    assert now == said[mutant.name], "run `nox -s kills` and look at the difference"


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_a_clean_control_is_accepted_whole(control: Control, judged: Judge) -> None:
    verdict = judged(control)
    assert [str(finding) for finding in verdict.findings] == []
    assert verdict.ok
    assert verdict.whole


def test_there_are_enough_of_both_and_none_is_there_twice() -> None:
    assert len(ALL_MUTANTS) >= 60
    assert len(CONTROLS) >= 12
    names = Counter(item.name for item in (*ALL_MUTANTS, *CONTROLS))
    assert names.most_common(1)[0][1] == 1


def test_nothing_is_committed_of_a_mutant_that_is_none(
    said: dict[str, list[tuple[str, ...]]],
) -> None:
    assert said.keys() == {mutant.name for mutant in MUTANTS}


def test_every_rule_has_a_mutant() -> None:
    assert {rule.code for rule in RULES} == {mutant.rule for mutant in ALL_MUTANTS}


def test_the_committed_kill_table_is_what_the_rules_do_now(table: kills.KillTable) -> None:
    """It names every rule that refuses a mutant: another one that does is seen here."""
    committed = kill_table.PATH.read_text(encoding="utf-8")
    assert committed == kills.render(table), "run `nox -s kills` and look at the difference"


def test_every_row_of_the_table_is_killed_or_accepted_as_meant(table: kills.KillTable) -> None:
    assert [m.name for m in table.mutants if m.rule not in m.refused_by] == []
    assert [c.name for c in table.controls if c.refused_by] == []
    assert len(table.mutants) == len(ALL_MUTANTS)
    assert table.of("REP014")[0].also == ()


def test_a_table_reads_back_as_it_was_written(table: kills.KillTable) -> None:
    assert kills.parse(kills.render(table)) == table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1"),
        ("kind,rule\n", "line 1"),
        (",".join(kills.COLUMNS) + "\nfriend,RUN001,a,b,RUN001\n", "line 2"),
        (",".join(kills.COLUMNS) + "\nmutant,RUN001,a,b\n", "line 2"),
    ],
)
def test_what_is_no_kill_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kills.parse(text)


def test_a_refusal_reaches_no_further_than_its_cell() -> None:
    verdict = kill_table.verdict_of(next(m for m in MUTANTS if m.name == "never-batched"))
    refused = {name for name, cell in verdict.cells.items() if isinstance(cell, RefusedCell)}
    assert refused == {"nanoserve/cpu/float32/4/day44"}
    sound = [c for c in verdict.comparisons if hasattr(c, "speedup")]
    assert len(sound) == len(verdict.comparisons) - 1
    assert [hasattr(m, "product") for m in verdict.marginals] == [True, False, False]


def control_named(name: str) -> Control:
    return next(control for control in CONTROLS if control.name == name)


def test_slots_of_another_kind_leave_holes_and_a_speedup() -> None:
    verdict = kill_table.verdict_of(control_named("slots-of-another-kind"))
    for pair in verdict.comparisons:
        assert pair.slots_alike == (pair.planned.kind == "self")
        assert (pair.slot_factor is None) == (pair.batch_factor is None) == (not pair.slots_alike)
        assert pair.speedup.point > 0
    assert all(marginal.slot_ratio is not None for marginal in verdict.marginals)


def test_declared_weights_are_accepted_and_not_called_proven() -> None:
    verdict = kill_table.verdict_of(control_named("converted-weights"))
    for pair in verdict.comparisons:
        assert pair.weights_proven == (pair.planned.kind == "self")
