"""What rules about blocks, their order and their noise say, and where, at their borders."""

from __future__ import annotations

from typing import Any

import pytest

from nanoserve_bench.plan import Blocks
from nanoserve_bench.results import ResultSet
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rules.stat_blocks import headline_half_width
from support.asking import findings, of, of_blocks, rows
from support.rebuild import BASE, replace

# STAT001: how many blocks there are.


def test_a_cell_that_lacks_a_block_is_named_with_its_arm(results: ResultSet) -> None:
    found = findings(results, "STAT001", **of_blocks(results, 7))
    places = [(cell.arm, cell.id, None, None) for cell in results.plan.cells]
    assert [(f.arm, f.cell, f.reference_cell, f.block) for f in found] == places


# STAT007: when a study may stop, and what it may run again.


def once(block: int, old: int) -> str:
    return f"block {block} replaces block {old}, which does not come before it once"


def quiet(block: int, old: int) -> str:
    return (
        f"block {old} was replaced by block {block}, and nothing disturbed it: a block that did "
        "not please is part of the study"
    )


@pytest.mark.parametrize(
    ("replaces", "disturbed", "expected"),
    [
        ({7: 7}, (), [once(7, 7)]),
        ({6: 7}, (), [once(6, 7)]),
        ({7: 99}, (), [once(7, 99)]),
        ({6: 0, 7: 0}, (0,), [once(6, 0), once(7, 0)]),
        ({7: 0}, (), [quiet(7, 0)]),
        ({6: 0, 7: 1}, (0, 1), []),
        ({6: 0, 7: 1}, (1,), [quiet(6, 0)]),
        (
            {5: 0, 6: 1, 7: 2},
            (0, 1, 2),
            ["3 blocks were run again, and the plan allows 2"],
        ),
    ],
)
def test_what_a_block_may_replace(
    results: ResultSet, replaces: dict[int, int], disturbed: tuple[int, ...], expected: list[str]
) -> None:
    trials = tuple(replace(t, replaces=replaces.get(t.block)) for t in results.trials)
    for block in disturbed:
        trials = rows(trials, of(BASE, block), other_cpu_ns=10**12)
    found = findings(results, "STAT007", trials=trials)
    assert [finding.message for finding in found] == expected
    assert {(f.file, f.row, f.column) for f in found} <= {("trials.csv", None, "replaces")}


def test_a_warm_up_that_was_disturbed_is_no_reason_to_run_again(results: ResultSet) -> None:
    trials = rows(results.trials, lambda row: row.block == 7, replaces=0)
    trials = rows(trials, lambda row: row.warmup, other_cpu_ns=10**12)
    assert [f.message for f in findings(results, "STAT007", trials=trials)] == [quiet(7, 0)]


def test_a_block_replaces_the_same_block_in_all_of_its_rows(results: ResultSet) -> None:
    trials = (*results.trials[:-1], replace(results.trials[-1], replaces=0))
    (finding,) = findings(results, "STAT007", trials=trials)
    assert finding.message == "block 7 replaces block None in one row and 0 in another"
    place = (finding.file, finding.row, finding.column)
    assert place == ("trials.csv", len(trials) + 1, "replaces")


def stopped(results: ResultSet, blocks: Blocks, **changes: Any) -> list[str]:
    plan = replace(results.plan, blocks=blocks, **changes)
    return [finding.message for finding in findings(results, "STAT007", plan=plan)]


def test_a_study_may_end_early_only_at_its_target(results: ResultSet) -> None:
    """Its eight blocks are the least that a plan promises, or more."""
    width = headline_half_width(Evidence.of(results).pairs)
    assert width is not None
    for least in (5, 8):
        for target, refused in ((None, True), (width, False), (width - 1e-9, True)):
            blocks = Blocks(least=least, most=9, target_half_width=target, most_reruns=2)
            message = (
                "the study stopped after 8 of 9 blocks, and its widest relative half-width is "
                f"{width:.4f} (the target is {target})"
            )
            assert stopped(results, blocks) == [message] * refused
    for most, message in ((8, None), (7, "8 blocks are measured, and the plan stops at 7")):
        blocks = Blocks(least=5, most=most, target_half_width=None, most_reruns=2)
        assert stopped(results, blocks) == ([] if message is None else [message])


def test_a_study_of_no_speedup_has_no_width_to_stop_at(results: ResultSet) -> None:
    blocks = Blocks(least=5, most=9, target_half_width=0.5, most_reruns=2)
    (message,) = stopped(results, blocks, comparisons=results.plan.comparisons[:1])
    assert message == (
        "the study stopped after 8 of 9 blocks, and its widest relative half-width is unknown "
        "(the target is 0.5)"
    )
