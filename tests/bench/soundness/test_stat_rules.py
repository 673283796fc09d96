"""What rules about blocks, their order and their noise say, and where, at their borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nanoserve_bench.plan import Arrivals, Blocks, Fact
from nanoserve_bench.results import ResultSet
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rules.stat_blocks import headline_half_width
from nanoserve_bench.soundness.rules.stat_contention import CORES
from support.asking import asked, findings, line_of, of, of_blocks, rows, trial_of, without
from support.rebuild import AGAIN, BASE, replace
from support.sound import MS

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


def test_the_width_to_stop_at_is_known_of_every_speedup_or_of_none(results: ResultSet) -> None:
    """STAT007 reads it: a rival's, another revision's, of two blocks that all carry a ratio."""

    def width(kind: str, **changes: Any) -> float | None:
        pairs = Evidence.of(replace(results, **changes)).pairs
        return headline_half_width(
            replace(pair, kind=kind) if pair.kind == "rival" else pair for pair in pairs
        )

    assert width("revision") == width("rival") is not None
    assert width("self") is None
    assert width("rival", **of_blocks(results, 1)) is None
    assert width("rival", **of_blocks(results, 2)) is not None
    assert width("rival", requests=rows(results.requests, of(BASE), finished_ns=None)) is None


# STAT002: the order of a block, and of the blocks.


def leading(
    results: ResultSet, blocks: int, often: int, level: int | None = None
) -> list[tuple[str, int | None]]:
    """What is said of the A/A pair whose candidate runs first in so many of the first blocks.

    In the block `level` both have the same place.
    """
    kept = of_blocks(results, blocks)
    for block in range(blocks):
        places = [trial_of(results, cell, block).order for cell in (BASE, AGAIN)]
        places = places[:1] * 2 if block == level else places
        for cell, order in zip((BASE, AGAIN), sorted(places, reverse=block < often), strict=True):
            kept["trials"] = rows(kept["trials"], of(cell, block), order=order)
    found = findings(results, "STAT002", **kept)
    return [(f.message, f.block) for f in found if (f.reference_cell, f.cell) == (BASE, AGAIN)]


@pytest.mark.parametrize(
    ("blocks", "often", "message"),
    [
        (1, 1, None),
        (2, 1, None),
        (2, 2, f"{AGAIN} ran first in 2 of 2 blocks"),
        (2, 0, f"{BASE} ran first in 2 of 2 blocks"),
        (5, 4, None),
        (5, 1, None),
        (6, 5, f"{AGAIN} ran first in 5 of 6 blocks"),
        (6, 1, f"{BASE} ran first in 5 of 6 blocks"),
    ],
)
def test_a_side_may_be_first_in_four_of_five_blocks(
    results: ResultSet, blocks: int, often: int, message: str | None
) -> None:
    assert leading(results, blocks, often) == ([] if message is None else [(message, None)])


@pytest.mark.parametrize("late", [0, 1])
def test_a_block_starts_when_the_last_one_is_done(results: ResultSet, late: int) -> None:
    last = max((t for t in results.trials if t.block == 3), key=lambda trial: trial.started_ns)
    first = min((t for t in results.trials if t.block == 4), key=lambda trial: trial.started_ns)
    wall = first.started_ns + late - last.started_ns
    trials = rows(results.trials, lambda row: row is last, wall_ns=wall)
    message = (
        f"it started at {first.started_ns} ns, before block 3 was done at {first.started_ns + 1} "
        "ns: one start runs its blocks one after the other"
    )
    place = (message, first.cell, 4, "trials.csv", results.line_of(first))
    found = findings(results, "STAT002", trials=trials)
    assert [(f.message, f.cell, f.block, f.file, f.row) for f in found] == [place] * late


def test_two_trials_cannot_have_one_place_in_a_block(results: ResultSet) -> None:
    trials = (replace(results.trials[0], order=1), *results.trials[1:])
    (finding,) = findings(results, "STAT002", trials=trials)
    assert finding.message == "two trials of block 0 are number 1 in its order"
    assert (finding.cell, finding.file, finding.row) == (trials[1].cell, "trials.csv", 3)


def test_two_trials_in_one_place_are_no_lead_of_the_candidate(results: ResultSet) -> None:
    assert leading(results, 5, 5, level=0) == []


# STAT003: a first block, and a first request.


def paced(results: ResultSet, cell: str, ms: Callable[[int, int], int]) -> tuple[Any, ...]:
    """The requests of a serial cell, which take `ms(block, number)` one after the other."""

    def at(row: Any, ended: int) -> int:
        number = int(row.request[1:])
        return row.block * 10**12 + MS * sum(ms(row.block, n) for n in range(number + ended))

    return rows(
        results.requests,
        lambda row: row.cell == cell and not row.warmup,
        arrival_ns=lambda row: at(row, 0),
        finished_ns=lambda row: at(row, 1),
    )


BLOCK = "its first block was more than 5% slower than the others: the warm-up had not settled"
REQUEST = (
    "the first request of its trials takes longer per token than the others, which moves the cell "
    "by more than 3%: the warm-up had not settled"
)
CHANCE = "one-sided p 0, below 0.0017"


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (lambda block, number: 100, None),
        (lambda block, number: 100 + 4 * (block == 0), None),
        (lambda block, number: 100 + 6 * (block == 0), (BLOCK, 0)),
        (lambda block, number: 100 - 50 * (block == 0), None),
        (lambda block, number: 100 + 23 * (number == 0), None),
        (lambda block, number: 100 + 25 * (number == 0), (REQUEST, None)),
        (lambda block, number: 100 - 50 * (number == 0), None),
        (lambda block, number: 100 + 50 * (number == 7), None),
    ],
)
def test_how_much_slower_a_first_block_and_a_first_request_may_be(
    results: ResultSet,
    ms: Callable[[int, int], int],
    expected: tuple[str, int | None] | None,
) -> None:
    found = findings(results, "STAT003", requests=paced(results, AGAIN, ms))
    assert [(f.message, f.block) for f in found] == ([] if expected is None else [expected])
    for finding in found:
        assert (finding.arm, finding.cell) == ("hf-generate-again", AGAIN)
        assert finding.evidence == CHANCE


def cold(block: int, _number: int) -> int:
    return 120 if block == 0 else 100


def test_a_cell_that_cannot_be_judged_hides_no_other(results: ResultSet) -> None:
    """The first one lacks blocks, or runs an open loop, whose throughput is what was offered."""
    few = without(results, lambda row: row.cell == BASE and row.block > 2)
    asked_few = replace(results, **few)
    found = findings(asked_few, "STAT003", requests=paced(asked_few, AGAIN, cold))
    assert [(f.message, f.cell) for f in found] == [(BLOCK, AGAIN)]

    (workload,) = results.plan.workloads
    load = replace(workload, name="load", arrivals=Arrivals(process="constant", rate_per_s=1.0))
    cells = rows(results.plan.cells, lambda cell: cell.id == BASE, workload="load")
    plan = replace(results.plan, cells=cells, workloads=(workload, load))
    both = replace(results, requests=paced(results, BASE, cold))
    found = findings(both, "STAT003", plan=plan, requests=paced(both, AGAIN, cold))
    assert [(f.message, f.cell) for f in found] == [(BLOCK, AGAIN)]


@pytest.mark.parametrize("blocks", [3, 4])
def test_a_drift_is_told_from_four_blocks(results: ResultSet, blocks: int) -> None:
    inspection = asked(results, "STAT003", **of_blocks(results, blocks))
    reason = "no cell has the 4 blocks that a drift could be told from"
    assert inspection.not_applicable == (reason if blocks == 3 else None)
    assert (inspection.examined, inspection.findings) == (0 if blocks == 3 else 6, [])


# STAT004: cores.


@pytest.mark.parametrize(("cpu_ns", "refused"), [(40_050 * MS, 0), (40_050 * MS + 1, 1)])
def test_a_worker_uses_no_more_cores_than_there_are(
    results: ResultSet, cpu_ns: int, refused: int
) -> None:
    facts = (*results.manifest.facts, Fact(name=CORES, value=4))
    found = findings(
        results,
        "STAT004",
        manifest=replace(results.manifest, facts=facts),
        trials=rows(results.trials, of(BASE), cpu_ns=cpu_ns, wall_ns=10_000 * MS),
    )
    message = (
        "the worker used 4.01 cores while it ran, and the machine has 4: the trial took longer "
        "than it says"
    )
    place = (message, "trials.csv", line_of(results, BASE))
    assert [(f.message, f.file, f.row) for f in found] == [place] * refused


# STAT006: the time of day.


@pytest.mark.parametrize(
    ("started_at", "refused"),
    [("2026-01-02T03:16:50+00:00", 0), ("2026-01-02T03:16:50.000001+00:00", 1)],
)
def test_the_time_of_day_may_be_a_day_astray_of_the_clock(
    results: ResultSet, started_at: str, refused: int
) -> None:
    first = next(trial for trial in results.trials if trial.block == 3)
    clock = first.started_ns + 1_000_000 * MS
    trials = rows(results.trials, of(BASE), started_at=started_at, started_ns=clock)
    message = (
        f"it started at {started_at}, 1 day, 0:16:40.000001 from the first trial of its block "
        "(2026-01-01T03:00:10+00:00), and 1000 s from it by the stamps"
    )
    place = (message, "trials.csv", line_of(results, BASE))
    found = findings(results, "STAT006", trials=trials)
    assert [(f.message, f.file, f.row) for f in found] == [place] * refused


def test_what_is_no_time_is_before_every_start(results: ResultSet) -> None:
    found = findings(results, "STAT006", trials=rows(results.trials, of(BASE), started_at="soon"))
    began = "before start 0, which ran its block (2026-01-01T00:00:01+00:00)"
    assert found[0].message == f"it started at soon, {began}"
