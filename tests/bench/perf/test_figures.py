"""The speed table's arithmetic, by hand, and its verdicts."""

from __future__ import annotations

import dataclasses

import pytest

from nanoserve_bench.perf.arms import BASELINE, ENGINE, FULL, RIVALS, STATIC, TORCH
from nanoserve_bench.perf.figures import Interval, Standing, figure_row, figure_rows, standing
from nanoserve_bench.perf.goals import GOALS, Goal
from nanoserve_bench.perf.records import FigureRow, Hole, PerfRun, PrefixDigest, Refusal
from nanoserve_bench.soundness.rules.stat_blocks import LEAST_FOR_A_RATIO
from support.perf_runs import perf_run, trial, with_trials

BY_KEY = {goal.key: goal for goal in GOALS}


def rows(run: PerfRun) -> dict[str, FigureRow]:
    return {row.figure: row for row in figure_rows(run)}


def test_the_table_has_every_row_of_the_goals_with_its_number() -> None:
    asked = {goal.key: goal.goal for goal in GOALS}
    assert asked == {
        "speedup-1": 2.8,
        "speedup-8": 20,
        "speedup-16": 28,
        "speedup-32": 30,
        "decode-8": 23,
        "decode-16": 35,
        "decode-32": 38,
        "rivals-1": 1,
        "rivals-8": 1.15,
        "rivals-16": 1.15,
        "per-slot-8": 0.85,
        "bandwidth-1": 80,
        "static-8": 4,
        "prefill": 1.2,
        "outside-32": 1,
        "memory-32": 0.6,
        "torch-1": 1.7,
        "torch-8": 11,
        "torch-16": 15,
        "torch-32": 18,
    }


@pytest.mark.parametrize(
    ("key", "point"),
    [
        ("speedup-1", 3),
        ("speedup-8", 24),
        ("speedup-16", 32),
        ("speedup-32", 32),
        ("decode-8", 32),  # 8 tokens in 25 ms over one in 100
        ("decode-16", 40),
        ("decode-32", 40),
        ("rivals-1", 1.2),  # openvino's 25
        ("rivals-8", 1.2),  # vllm's 200
        ("rivals-16", 0.8),  # vllm's 400
        ("per-slot-8", 1),  # 240 / 8 over 30
        ("bandwidth-1", 100),  # 500 MB in 20 ms is 25 GB/s
        ("static-8", 4.8),
        ("prefill", 1.5),
        ("outside-32", 0.5),
        ("memory-32", 0.5),
        ("torch-1", 2),
        ("torch-32", 17),
    ],
)
def test_a_figure_is_the_ratio_of_its_two_sides(key: str, point: float) -> None:
    row = rows(perf_run())[key]
    assert row.point == pytest.approx(point)
    assert row.low == pytest.approx(point)
    assert row.high == pytest.approx(point)
    assert row.rounds == 5
    assert row.verdict == (Standing.MISSED if key in {"rivals-16", "torch-32"} else Standing.MET)


def test_the_absolutes_of_both_sides_stand_beside_the_ratio() -> None:
    table = rows(perf_run())
    row = table["speedup-8"]
    assert (row.candidate, row.reference) == (pytest.approx(240), pytest.approx(10))
    assert (row.candidate_unit, row.reference_arm) == ("tok/s", BASELINE)
    assert table["rivals-1"].reference_arm == "openvino"
    assert table["bandwidth-1"].reference == pytest.approx(25e9)
    assert table["outside-32"].reference is None


def test_the_floor_is_one_read_of_the_weights_or_their_arithmetic() -> None:
    table = rows(perf_run())
    # 500 MB at 25 GB/s is 20 ms: 50 tok/s a row. 125 M weights x 2 x 8 rows at 1e11 is 20 ms, too.
    assert table["speedup-1"].floor == pytest.approx(50)
    assert table["speedup-8"].floor == pytest.approx(400)
    assert table["speedup-32"].floor == pytest.approx(400)
    assert table["per-slot-8"].floor == pytest.approx(50)
    assert table["prefill"].floor is None


def test_a_ratio_is_formed_inside_a_round_and_its_interval_over_the_rounds() -> None:
    """A machine that is twice as fast in one round moves both sides, and no ratio."""
    run = with_trials(
        perf_run(),
        lambda t: dataclasses.replace(t, wall_ns=t.wall_ns // 2) if t.round == 1 else t,
    )
    row = rows(run)["speedup-8"]
    assert row.low == row.high == pytest.approx(24)
    uneven = rows(perf_run(factors=(1, 4, 1, 4, 2)))["speedup-1"]
    assert uneven.point == pytest.approx(6)  # the geometric mean of 3, 12, 3, 12 and 6
    assert uneven.low is not None
    assert uneven.high is not None
    assert uneven.low < 2.8 < uneven.high
    assert uneven.verdict == Standing.UNDECIDED


def test_one_round_has_no_interval_and_decides_nothing() -> None:
    row = rows(perf_run(1))["speedup-8"]
    assert (row.point, row.low, row.high) == (pytest.approx(24), None, None)
    assert row.verdict == Standing.UNDECIDED


@pytest.mark.parametrize(
    ("key", "low", "high", "verdict"),
    [
        ("speedup-1", 2.8, 3.0, Standing.MET),
        ("speedup-1", 2.7, 2.9, Standing.UNDECIDED),
        ("speedup-1", 2.7, 2.79, Standing.MISSED),
        ("speedup-1", 2.7, 2.8, Standing.UNDECIDED),
        ("outside-32", 0.5, 1.0, Standing.MET),
        ("outside-32", 0.9, 1.1, Standing.UNDECIDED),
        ("outside-32", 1.01, 1.1, Standing.MISSED),
    ],
)
def test_a_verdict_needs_the_whole_interval(
    key: str, low: float, high: float, verdict: Standing
) -> None:
    assert standing(BY_KEY[key], Interval(point=(low + high) / 2, low=low, high=high)) is verdict


def test_the_last_attempt_counts_and_what_disturbed_it_is_told() -> None:
    run = perf_run()
    again = trial(ENGINE, 8, number=1, tok_per_s=480, attempt=2, disturbed="a neighbour")
    row = rows(dataclasses.replace(run, trials=(*run.trials, again)))["static-8"]
    assert row.candidate == pytest.approx(240 * 2 ** (1 / 5))
    assert row.disturbed == 1


def test_tokens_that_differ_from_the_baseline_are_a_refusal_and_no_number() -> None:
    other = (PrefixDigest(requests=6, sha256="another"), PrefixDigest(requests=64, sha256="all"))
    run = with_trials(
        perf_run(),
        lambda t: (
            dataclasses.replace(t, outputs=other)
            if (t.arm, t.slots, t.round) == (ENGINE, 8, 2)
            else t
        ),
    )
    table = rows(run)
    for key in ("speedup-8", "decode-8", "static-8", "per-slot-8"):
        assert table[key].verdict == Standing.REFUSED
        assert table[key].point is None
        assert "round 3" in str(table[key].note)
        assert "first 6 requests" in str(table[key].note)
    assert table["speedup-16"].verdict == Standing.MET


def test_a_rival_that_says_something_else_is_not_among_the_best() -> None:
    other = (PrefixDigest(requests=6, sha256="six"), PrefixDigest(requests=64, sha256="others"))
    run = with_trials(
        perf_run(),
        lambda t: dataclasses.replace(t, outputs=other) if (t.arm, t.slots) == ("vllm", 8) else t,
    )
    row = rows(run)["rivals-8"]
    assert row.reference_arm == "openvino"
    assert row.point == pytest.approx(1.5)
    assert "vllm" in str(row.note)
    assert "first 64 requests" in str(row.note)


def test_other_settings_are_a_refusal() -> None:
    run = perf_run()
    arms = tuple(
        dataclasses.replace(a, settings=dataclasses.replace(a.settings, threads=1))
        if a.arm == STATIC
        else a
        for a in run.arms
    )
    row = rows(dataclasses.replace(run, arms=arms))["static-8"]
    assert row.verdict == Standing.REFUSED
    assert "PAIR008" in str(row.note)


def test_a_trial_that_breaks_a_rule_is_a_refusal_with_the_rule() -> None:
    refusal = Refusal(
        round=0, arm=TORCH, workload="decode", slots=8, attempt=1, rule="RUN001", message="is bad"
    )
    table = rows(dataclasses.replace(perf_run(), refusals=(refusal,)))
    assert table["torch-8"].verdict == Standing.REFUSED
    assert "RUN001 is bad" in str(table["torch-8"].note)
    assert table["torch-16"].verdict == Standing.MET
    again = dataclasses.replace(refusal, attempt=2)  # of an attempt that does not count
    assert rows(dataclasses.replace(perf_run(), refusals=(again,)))["torch-8"].point is not None


def test_an_absent_rival_is_named_and_no_rival_at_all_is_a_hole() -> None:
    note = str(rows(perf_run())["rivals-8"].note)
    assert note.startswith("best of 2; ")
    assert "llamacpp: not installed: x" in note
    run = with_trials(perf_run(), lambda t: None if t.arm in {"vllm", "openvino"} else t)
    holes = tuple(
        Hole(round=None, arm=arm, reason="no environment")
        for arm in ("vllm", "openvino", "onnxruntime", "llamacpp")
    )
    row = rows(dataclasses.replace(run, holes=holes))["rivals-8"]
    assert row.verdict == Standing.HOLE
    assert row.point is None
    assert "vllm: no environment" in str(row.note)


def test_a_round_that_is_missing_is_left_out_and_said() -> None:
    run = with_trials(perf_run(), lambda t: None if (t.arm, t.round) == (STATIC, 1) else t)
    row = rows(run)["static-8"]
    assert (row.rounds, row.verdict) == (4, Standing.UNDECIDED)
    assert row.note == "4 of 5 rounds; a verdict needs 5"
    longer = with_trials(perf_run(6), lambda t: None if (t.arm, t.round) == (STATIC, 1) else t)
    row = rows(longer)["static-8"]
    assert (row.rounds, row.verdict, row.note) == (5, Standing.MET, "5 of 6 rounds")


def test_fewer_rounds_than_a_ratio_needs_have_a_point_and_no_verdict() -> None:
    few = rows(perf_run(factors=(1, 4, 2)))
    for key in ("speedup-1", "outside-32"):
        assert (few[key].low, few[key].high, few[key].verdict) == (None, None, "undecided")
        assert few[key].note == "3 rounds; a verdict needs 5"
    assert few["speedup-1"].point == pytest.approx(6)  # the geometric mean of 3, 12 and 6
    assert rows(perf_run(1))["speedup-1"].note == "1 round; a verdict needs 5"
    assert FULL.rounds >= LEAST_FOR_A_RATIO


def test_without_rivals_the_run_says_so_once() -> None:
    run = with_trials(perf_run(), lambda t: None if t.arm in RIVALS else t)
    orders = tuple(tuple(arm for arm in order if arm not in RIVALS) for order in run.orders)
    row = rows(dataclasses.replace(run, orders=orders, holes=()))["rivals-8"]
    assert (row.verdict, row.note) == (Standing.HOLE, "no rival took part in this run")


def test_what_a_system_does_not_tell_is_a_hole() -> None:
    run = with_trials(perf_run(), lambda t: dataclasses.replace(t, full_steps=None))
    row = figure_row(run, BY_KEY["decode-8"])
    assert row.verdict == Standing.HOLE
    assert "tells no full decode steps" in str(row.note)


def test_no_memory_reading_is_a_hole_and_not_zero() -> None:
    run = perf_run()
    probes = tuple(dataclasses.replace(p, peak_memory_bytes=None) for p in run.probes)
    goal: Goal = BY_KEY["memory-32"]
    assert figure_row(dataclasses.replace(run, probes=probes), goal).verdict == Standing.HOLE
