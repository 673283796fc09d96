"""Percentiles, goodput and saturation, on a ruler."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

import pytest

from nanoserve_bench.latency import LoadFigures, Percentiles, mean_queue, still_growing
from nanoserve_bench.plan import Arrivals, WorkloadPlan
from nanoserve_bench.records import Hold, RunRecord, Shape, SystemRun
from support.ruler import SETTINGS

MS = 1_000_000


def loop(arrivals_ms: Sequence[float], *, slots: int = 1, holds: bool = True) -> SystemRun:
    """First come, first served, 100 ms a request: first token after 40 ms, four tokens."""
    free = [0.0] * slots
    records = []
    for index, arrival in enumerate(arrivals_ms):
        start = max(arrival, min(free))
        free[free.index(min(free))] = start + 100
        stamps = tuple(round((start + t) * MS) for t in (40, 60, 80, 100))
        records.append(
            RunRecord(
                request=str(index),
                prompt_ids=(index,),
                output_ids=(1, 2, 3, 4),
                max_tokens=4,
                arrival_ns=round(arrival * MS),
                submitted_ns=round(arrival * MS),
                holds=(Hold(round(start * MS), stamps[-1]),) if holds else None,
                first_token_ns=stamps[0],
                finished_ns=stamps[-1],
                token_ns=stamps,
            )
        )
    return SystemRun(
        system="s", shape=Shape.CONCURRENT, slots=slots, records=tuple(records), settings=SETTINGS
    )


def workload(**objective: float) -> WorkloadPlan:
    return WorkloadPlan(
        name="w",
        requests=4,
        prompt_tokens=1,
        new_tokens=4,
        slots=(1,),
        arrivals=Arrivals(process="constant", rate_per_s=20.0, **objective),
    )


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [Fraction(n) for n in range(1, 201)]
    found = Percentiles.of(reversed(values))
    assert found == Percentiles(n=200, p50=Fraction(100), p90=Fraction(180), p99=Fraction(198))


@pytest.mark.parametrize(
    ("count", "known"),
    [(1, (False, False, False)), (2, (True, False, False)), (9, (True, False, False)),
     (10, (True, True, False)), (99, (True, True, False)), (100, (True, True, True))],
)  # fmt: skip
def test_a_percentile_of_too_few_values_does_not_exist(count: int, known: tuple[bool, ...]) -> None:
    found = Percentiles.of([Fraction(7)] * count)
    assert found is not None
    assert (found.p50 is not None, found.p90 is not None, found.p99 is not None) == known
    assert Percentiles.of([]) is None


def test_the_figures_of_a_loop_are_those_of_its_stamps() -> None:
    """Due every 50 ms, served every 100: waits of 0, 50, 100 and 150 ms."""
    run = loop([0, 50, 100, 150])
    figures = LoadFigures.of({0: run, 1: run}, workload(objective_ttft_ms=90.0))
    assert figures.completed_per_s == Fraction(8, 2) / Fraction(4, 10)
    assert figures.e2el is not None
    assert (figures.e2el.n, figures.e2el.p50) == (8, Fraction(150, 1000))
    assert figures.ttft is not None
    assert figures.ttft.p50 == Fraction(90, 1000)
    assert figures.tpot is not None
    assert figures.tpot.p50 == Fraction(20, 1000)
    assert figures.itl is not None
    assert (figures.itl.n, figures.itl.p90) == (24, Fraction(20, 1000))
    assert figures.goodput is not None
    assert (figures.goodput.good, figures.goodput.requests) == (4, 8)
    assert figures.goodput.per_s == Fraction(4) / Fraction(8, 10)
    assert figures.offered_per_s == 20.0


def test_an_objective_holds_for_both_of_its_parts_to_the_edge() -> None:
    run = loop([0, 50, 100, 150])
    for tpot, good in ((20.0, 2), (19.9, 0)):
        figures = LoadFigures.of({0: run}, workload(objective_ttft_ms=90.0, objective_tpot_ms=tpot))
        assert figures.goodput is not None
        assert figures.goodput.good == good
    only = LoadFigures.of({0: run}, workload(objective_tpot_ms=20.0)).goodput
    assert only is not None
    assert only.good == 4
    assert LoadFigures.of({0: run}, workload()).goodput is None


def test_what_is_not_stamped_is_a_hole() -> None:
    run = loop([0, 50])
    blind = dataclasses.replace(
        run,
        records=tuple(
            dataclasses.replace(r, first_token_ns=None, token_ns=None) for r in run.records
        ),
    )
    figures = LoadFigures.of({0: blind}, workload(objective_ttft_ms=90.0))
    assert (figures.ttft, figures.tpot, figures.itl, figures.goodput) == (None,) * 4
    assert figures.e2el is not None


def test_the_mean_queue_is_who_waits_and_not_who_is_served() -> None:
    """From 50 ms on one waits, from 100 on still one, from 150 to 200 two."""
    for holds in (True, False):
        run = loop([0, 50, 100, 150], holds=holds)
        assert mean_queue(run, Fraction(0), Fraction(50 * MS)) == 0
        assert mean_queue(run, Fraction(50 * MS), Fraction(150 * MS)) == 1
        assert mean_queue(run, Fraction(100 * MS), Fraction(200 * MS)) == Fraction(3, 2)


def test_a_queue_that_grows_to_the_end_is_told_from_one_that_does_not() -> None:
    assert still_growing(loop([50 * n for n in range(16)]))
    assert not still_growing(loop([110 * n for n in range(16)]))
    # A burst in the middle that has drained before the end.
    assert not still_growing(loop([0, 200, 210, 220, 230, 900, 1100, 1300, 1500]))
    # All at once: there is no end of the arrivals to look at.
    assert not still_growing(loop([0, 0, 0, 0]))


def test_a_cell_is_saturated_where_half_of_its_blocks_are() -> None:
    fast, slow = loop([110 * n for n in range(16)]), loop([50 * n for n in range(16)])
    assert LoadFigures.of({0: fast, 1: slow}, workload()).saturated
    assert not LoadFigures.of({0: fast, 1: slow, 2: fast}, workload()).saturated


def test_only_an_open_loop_that_ran_has_figures() -> None:
    closed = dataclasses.replace(workload(), arrivals=None)
    with pytest.raises(ValueError, match="no open loop"):
        LoadFigures.of({0: loop([0])}, closed)
    with pytest.raises(ValueError, match="no open loop"):
        LoadFigures.of({}, workload())
