"""The arithmetic, on stamps placed by hand: exact, and a hole where nothing is told."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoserve_bench.errors import RunUnsound
from nanoserve_bench.figures import Figures
from nanoserve_bench.records import NS_PER_S, Hold, RunRecord, Shape, SystemRun, Totals, undeclared
from support.ruler import MS, SETTINGS, concurrent, edited, ns, record, serial


def test_a_request_that_waited_was_resident_longer_than_served() -> None:
    one = record(0, arrival=0, holds=((30, 100),), first=50)
    assert one.served_ns == 70 * MS
    assert one.resident_ns == 100 * MS
    assert one.queued_ns == 30 * MS
    assert one.ttft_ns == 50 * MS
    assert one.prefill_ns == 20 * MS


def test_preempted_time_is_queued_and_not_served() -> None:
    one = record(0, holds=((10, 40), (70, 100)), first=20)
    assert one.served_ns == 60 * MS
    assert one.queued_ns == 40 * MS


def test_a_prefill_interrupted_by_preemption_counts_the_held_part_alone() -> None:
    one = record(0, holds=((10, 40), (70, 100)), first=80)
    assert one.prefill_ns == 40 * MS
    assert one.ttft_ns == 80 * MS


def test_the_prefill_of_a_system_without_a_queue_is_its_ttft() -> None:
    for one in serial().records:
        assert one.prefill_ns == one.ttft_ns


def test_tpot_spreads_the_time_after_the_first_token_over_the_tokens_after_it() -> None:
    one = record(0, holds=((0, 100),), first=40, tokens=4)
    assert one.tpot_s == Fraction(60 * MS, 3 * NS_PER_S)
    assert one.itl_ns == (20 * MS, 20 * MS, 20 * MS)
    assert record(0, tokens=1).tpot_s is None
    assert record(0, tokens=1).itl_ns == ()


@pytest.mark.parametrize(
    ("missing", "holes"),
    [
        ("holds", ("served_ns", "queued_ns", "prefill_ns")),
        ("first_token_ns", ("ttft_ns", "prefill_ns", "tpot_s")),
        ("finished_ns", ("resident_ns", "queued_ns", "tpot_s")),
    ],
)
def test_what_is_not_stamped_is_a_hole_and_never_zero(missing: str, holes: tuple[str, ...]) -> None:
    one = dataclasses.replace(record(0), **{missing: None})
    for name in ("served_ns", "queued_ns", "prefill_ns", "ttft_ns", "tpot_s", "resident_ns"):
        assert (getattr(one, name) is None) == (name in holes)


def test_no_token_stamps_means_no_gaps() -> None:
    assert dataclasses.replace(record(0), token_ns=None).itl_ns == ()


def test_a_batch_of_two_reads_two_rows() -> None:
    run = concurrent(4, slots=2)
    assert run.wall_ns == 200 * MS
    assert run.batch_occupancy == 2
    assert run.served_ns == 400 * MS
    assert run.resident_ns == (100 + 100 + 200 + 200) * MS
    assert run.system_occupancy == 3
    assert run.throughput == 80
    assert run.tokens_per_slot_second == 40
    assert run.tokens_per_request_second == Fraction(80, 3)
    assert run.queue_share == Fraction(1, 3)


def test_one_slot_is_one_row_whatever_the_queue() -> None:
    run = concurrent(8, slots=1)
    assert run.batch_occupancy == 1
    assert run.system_occupancy == Fraction(9, 2)
    assert run.queue_share == Fraction(7, 9)


def test_a_serial_run_has_no_queue() -> None:
    run = serial()
    assert run.batch_occupancy == run.system_occupancy == 1
    assert run.queue_share == 0


def test_tokens_are_the_ids_that_are_there() -> None:
    run = edited(serial(), 0, output_ids=(1, 2), max_tokens=100)
    assert run.output_tokens == 2 + 3 * 4


def test_without_holds_the_slot_figures_are_holes_and_the_others_stand() -> None:
    run = edited(concurrent(), 1, holds=None)
    assert run.served_ns is None
    assert run.batch_occupancy is None
    assert run.tokens_per_slot_second is None
    assert run.queue_share is None
    assert run.throughput == 80
    assert run.identity_gaps() == (None, 0)


@pytest.mark.parametrize(
    "figure", ["wall_ns", "throughput", "resident_ns", "system_occupancy", "batch_occupancy"]
)
def test_an_empty_run_has_no_figure(figure: str) -> None:
    run = SystemRun(system="none", shape=Shape.SERIAL, slots=1, records=(), settings=SETTINGS)
    if figure == "batch_occupancy":
        assert run.batch_occupancy is None
        return
    with pytest.raises(RunUnsound, match="none"):
        getattr(run, figure)


def test_a_request_that_never_finished_is_named() -> None:
    run = edited(serial(), 2, finished_ns=None)
    with pytest.raises(RunUnsound, match=r"no finish stamp on request\(s\) r2"):
        _ = run.wall_ns
    with pytest.raises(RunUnsound):
        Figures.of(run)


def test_a_wall_of_zero_carries_no_rate() -> None:
    run = edited(serial(1), 0, finished_ns=ns(0))
    with pytest.raises(RunUnsound, match="wall time is 0"):
        _ = run.throughput


def test_residence_of_zero_carries_no_rate() -> None:
    one = edited(serial(2), 0, finished_ns=ns(0))
    both = edited(one, 1, arrival_ns=ns(200))
    with pytest.raises(RunUnsound, match="time in the system is zero"):
        _ = both.tokens_per_request_second
    assert both.queue_share is None


@st.composite
def runs(draw: st.DrawFn) -> SystemRun:
    """Any run with stamps in order: holds may be cut, requests may wait, lengths differ."""
    records = []
    for number in range(draw(st.integers(1, 6))):
        stamps = draw(
            st.lists(st.integers(0, 10**15), min_size=5, max_size=5, unique=True).map(sorted)
        )
        arrival, *holds = stamps
        length = draw(st.integers(1, 40))
        records.append(
            RunRecord(
                request=str(number),
                prompt_ids=(number,),
                output_ids=tuple(range(length)),
                max_tokens=length,
                arrival_ns=arrival,
                submitted_ns=arrival,
                holds=(Hold(holds[0], holds[1]), Hold(holds[2], holds[3])),
                first_token_ns=holds[1],
                finished_ns=holds[3],
            )
        )
    return SystemRun(
        system="any",
        shape=Shape.CONCURRENT,
        slots=len(records),
        records=tuple(records),
        settings=SETTINGS,
    )


@given(runs())
def test_both_factorisations_close_exactly(run: SystemRun) -> None:
    assert run.identity_gaps() == (0, 0)
    assert run.batch_occupancy is not None
    assert run.batch_occupancy <= run.slots


@given(runs())
def test_figures_are_those_of_the_run(run: SystemRun) -> None:
    figures = Figures.of(run)
    for name in (
        "output_tokens",
        "wall_ns",
        "served_ns",
        "resident_ns",
        "throughput",
        "batch_occupancy",
        "tokens_per_slot_second",
        "system_occupancy",
        "tokens_per_request_second",
        "queue_share",
    ):
        assert getattr(figures, name) == getattr(run, name)
    count = len(run.records)
    for name, values in (
        ("prefill_s", [r.prefill_ns for r in run.records]),
        ("ttft_s", [r.ttft_ns for r in run.records]),
        ("e2el_s", [r.resident_ns for r in run.records]),
    ):
        assert getattr(figures, name) == Fraction(sum(v or 0 for v in values), count * NS_PER_S)
    paced = [r.tpot_s for r in run.records if r.tpot_s is not None]
    assert figures.tpot_s == (sum(paced, Fraction(0)) / len(paced) if paced else None)


@pytest.mark.parametrize("figure", ["prefill_s", "ttft_s", "tpot_s"])
def test_one_request_that_tells_nothing_makes_the_mean_a_hole(figure: str) -> None:
    assert getattr(Figures.of(edited(serial(), 1, first_token_ns=None)), figure) is None


def test_the_wait_of_a_system_with_a_queue_is_its_prefill() -> None:
    queued = Figures.of(concurrent(8, slots=1))
    assert queued.wait_s == queued.prefill_s != queued.ttft_s
    alone = Figures.of(serial())
    assert alone.wait_s == alone.ttft_s


def test_the_sums_of_nothing_and_of_the_unfinished() -> None:
    nothing = Totals.of(())
    assert (nothing.requests, nothing.unfinished, nothing.longest_output) == (0, 0, 0)
    assert (nothing.resident_ns, nothing.served_ns, nothing.finished_ns) == (0, None, None)
    half = Totals.of((record(0, tokens=3), record(1, finished_ns=None)))
    assert (half.requests, half.unfinished, half.longest_output) == (2, 1, 4)
    assert (half.resident_ns, half.finished_ns) == (0, None)


def test_what_an_empty_run_lacks_is_said() -> None:
    run = dataclasses.replace(serial(), records=())
    with pytest.raises(RunUnsound, match=r"^serial: the run has no requests, so it measured noth"):
        _ = run.started_ns
    with pytest.raises(RunUnsound, match=r"^serial: no finish stamp on request\(s\) \(none ran\)$"):
        _ = run.finished_ns
    open_ended = tuple(record(number, finished_ns=None) for number in range(2))
    with pytest.raises(RunUnsound, match=r"request\(s\) r0, r1$"):
        _ = dataclasses.replace(run, records=open_ended).finished_ns


def test_a_nanosecond_is_a_wall() -> None:
    one = record(0, holds=((0, 1e-6),), first=1e-6, tokens=1)
    run = dataclasses.replace(serial(), records=(one,))
    assert (run.wall_ns, run.resident_ns, run.queue_share) == (1, 1, 0)
    assert run.tokens_per_request_second == NS_PER_S


def test_slots_held_for_no_time_have_no_rate_and_no_gap() -> None:
    empty = dataclasses.replace(record(0), holds=())
    run = dataclasses.replace(serial(), records=(empty,))
    assert (run.served_ns, run.batch_occupancy, run.tokens_per_slot_second) == (0, 0, None)
    assert run.identity_gaps() == (None, 0)


def test_sums_that_the_records_know_are_taken_from_them() -> None:
    class Known(tuple[RunRecord, ...]):
        __slots__ = ()
        totals = Totals.of(serial(2).records)

    run = dataclasses.replace(serial(4), records=Known())
    assert run.totals is Known.totals
    assert run.output_tokens == 8


def test_the_mark_of_a_declaration_stands_in_front() -> None:
    assert undeclared("declared:off") == undeclared("off") == "off"
