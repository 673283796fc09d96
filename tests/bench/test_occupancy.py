"""The occupancy split: every slot-nanosecond has one name, and they add up."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoserve_bench.errors import RunUnsound
from nanoserve_bench.occupancy import OccupancySplit, split
from nanoserve_bench.records import RunRecord, SystemRun
from support.ruler import MS, concurrent, edited, record, serial


def run_of(slots: int, *records: RunRecord) -> SystemRun:
    return dataclasses.replace(concurrent(), slots=slots, records=records, steps=None)


def parts(run: SystemRun) -> dict[str, float]:
    found = split(run)
    assert found is not None
    total = found.held_ns + found.ramp_ns + found.starvation_ns + found.drain_ns + found.idle_ns
    assert total == found.slots * found.wall_ns
    return {
        name: getattr(found, f"{name}_ns") / MS
        for name in ("held", "ramp", "starvation", "drain", "idle")
        if getattr(found, f"{name}_ns")
    }


def test_a_full_house_is_held_all_the_time() -> None:
    assert parts(concurrent(4, slots=2)) == {"held": 400}
    assert parts(serial()) == {"held": 400}


def test_the_last_row_drains_alone() -> None:
    run = run_of(2, record(0, holds=((0, 100),)), record(1, holds=((0, 40),)))
    assert parts(run) == {"held": 140, "drain": 60}


def test_slots_that_fill_one_by_one_ramp() -> None:
    run = run_of(2, record(0, holds=((10, 100),)), record(1, holds=((30, 100),)))
    assert parts(run) == {"held": 160, "ramp": 10 * 2 + 20}


def test_an_empty_slot_beside_a_queue_starves_once_all_were_full() -> None:
    run = run_of(
        2,
        record(0, holds=((0, 50),)),
        record(1, holds=((0, 100),)),
        record(2, holds=((70, 100),)),
    )
    assert parts(run) == {"held": 180, "starvation": 20}


def test_an_empty_slot_beside_a_queue_starves_once_the_queue_was_empty() -> None:
    run = run_of(2, record(0, holds=((0, 100),)), record(1, arrival=40, holds=((60, 100),)))
    # From 0 to 40 nobody waits; from 40 to 60 somebody does.
    assert parts(run) == {"held": 140, "idle": 40, "starvation": 20}


def test_before_the_last_arrival_an_unwanted_slot_is_idle_and_afterwards_it_drains() -> None:
    run = run_of(1, record(0, holds=((0, 40),)), record(1, arrival=60, holds=((60, 100),)))
    assert parts(run) == {"held": 80, "idle": 20}


def test_a_preempted_request_waits() -> None:
    run = run_of(2, record(0, holds=((0, 100),)), record(1, holds=((0, 40), (60, 100)), first=20))
    assert parts(run) == {"held": 180, "starvation": 20}


def test_rows_are_means_over_the_wall() -> None:
    run = run_of(2, record(0, holds=((0, 100),)), record(1, holds=((0, 40),)))
    found = split(run)
    assert found is not None
    assert found.rows("held") == run.batch_occupancy == Fraction(14, 10)
    assert found.rows("drain") == Fraction(6, 10)


def test_without_holds_there_is_nothing_to_split() -> None:
    assert split(edited(concurrent(), 0, holds=None)) is None


@pytest.mark.parametrize(
    "run",
    [
        run_of(1, record(0), record(1)),
        run_of(2, record(0), record(1, arrival=50, holds=((0, 100),))),
        edited(concurrent(), 0, finished_ns=None),
        run_of(2, record(0), dataclasses.replace(record(1), finished_ns=1_050_000_000)),
    ],
    ids=["more-holders-than-slots", "held-before-arrival", "unfinished", "held-after-the-finish"],
)
def test_what_cannot_be_split_is_refused(run: SystemRun) -> None:
    with pytest.raises(RunUnsound):
        split(run)


@st.composite
def queues(draw: st.DrawFn) -> SystemRun:
    """First come, first served over some slots, with any arrivals and lengths."""
    slots = draw(st.integers(1, 4))
    free = [0] * slots
    records = []
    arrivals = sorted(draw(st.lists(st.integers(0, 500), min_size=1, max_size=8)))
    for number, arrival in enumerate(arrivals):
        slot = min(range(slots), key=lambda s: free[s])
        start = max(arrival, free[slot]) + draw(st.integers(0, 20))
        free[slot] = start + draw(st.integers(1, 200))
        records.append(record(number, arrival=arrival, holds=((start, free[slot]),), tokens=1))
    return run_of(slots, *records)


@given(queues())
def test_the_parts_add_up_to_the_slots_times_the_wall(run: SystemRun) -> None:
    found = split(run)
    assert isinstance(found, OccupancySplit)
    named = (found.held_ns, found.ramp_ns, found.starvation_ns, found.drain_ns, found.idle_ns)
    assert min(named) >= 0
    assert sum(named) == run.slots * run.wall_ns
    assert found.held_ns == run.served_ns
