"""Who runs: first come first served, within a budget, the youngest preempted, nobody overtaken."""

from __future__ import annotations

import pytest

from nanoserve import FinishReason
from nanoserve.errors import IntegrityError
from nanoserve.request import RequestStatus
from support.scheduling import Bench, rows


def test_prompts_come_first_and_then_one_token_at_a_time():
    bench = Bench()
    bench.add("a", 3)
    assert rows(bench.step(1)) == [("a", 0, 3, True)]
    bench.add("b", 2)
    assert rows(bench.step(2)) == [("a", 3, 1, False), ("b", 0, 2, True)]
    plan = bench.step(3)
    assert rows(plan) == [("a", 4, 1, False), ("b", 2, 1, False)]
    assert (plan.prefill_rows, plan.decode_rows, plan.holders, plan.waiting) == (0, 2, 2, 0)


def test_a_prompt_of_one_token_is_a_prefill():
    bench = Bench()
    bench.add("a", 1)
    assert rows(bench.step(1)) == [("a", 0, 1, True)]


def test_slots_go_to_the_earliest_arrival_whatever_the_order_of_submission():
    bench = Bench(slots=2)
    for name, arrival in (("c", 30), ("a", 10), ("b", 20), ("a2", 10)):
        bench.add(name, 1, arrival)
    assert [name for name, *_ in rows(bench.step(50))] == ["a", "a2"]


def test_a_free_slot_is_filled_in_the_very_next_step():
    bench = Bench(slots=1)
    first = bench.add("a", 1)
    bench.add("b", 1)
    assert bench.step(1).waiting == 1
    bench.scheduler.finish(first, FinishReason.LENGTH, 1)
    assert rows(bench.step(2)) == [("b", 0, 1, True)]


def test_nobody_is_admitted_before_it_arrived():
    bench = Bench()
    bench.add("a", 1, arrival=10)
    assert rows(bench.step(9)) == []
    assert rows(bench.step(10)) == [("a", 0, 1, True)]


def test_nobody_is_admitted_before_it_was_handed_over_however_long_it_has_been_due():
    bench = Bench()
    bench.add("old", 1, arrival=1)
    bench.step(5)
    bench.add("late", 1, arrival=2, submitted=7)
    newcomer = bench.scheduler.newcomer_between
    assert newcomer(5, 9)
    assert not newcomer(7, 9), "it can be admitted at 7"
    assert not newcomer(5, 6), "it is not there at 6"
    assert rows(bench.step(6)) == [("old", 1, 1, False)]
    assert rows(bench.step(7)) == [("old", 2, 1, False), ("late", 0, 1, True)]


def test_a_prompt_beyond_the_budget_is_cut_and_only_its_last_piece_samples():
    bench = Bench(budget=10)
    request = bench.add("long", 25)
    plans = [bench.step(now) for now in (1, 2, 3, 4)]
    assert [rows(plan) for plan in plans] == [
        [("long", 0, 10, True)],
        [("long", 10, 10, True)],
        [("long", 20, 5, True)],
        [("long", 25, 1, False)],
    ]
    assert [plan.sampled for plan in plans] == [(), (), (request,), (request,)]


def test_decode_rows_come_first_and_a_long_prompt_gets_what_they_leave():
    bench = Bench(budget=10)
    bench.add("a", 3)
    bench.add("b", 2)
    bench.step(1)
    bench.add("long", 12)
    assert rows(bench.step(2)) == [("a", 3, 1, False), ("b", 2, 1, False), ("long", 0, 8, True)]
    assert rows(bench.step(3)) == [("a", 4, 1, False), ("b", 3, 1, False), ("long", 8, 4, True)]


def test_what_a_prompt_leaves_of_the_budget_goes_to_the_next_and_nobody_else():
    bench = Bench(budget=10)
    for name, prompt in (("a", 4), ("b", 4), ("c", 4), ("d", 1)):
        bench.add(name, prompt)
    assert rows(bench.step(1)) == [("a", 0, 4, True), ("b", 0, 4, True), ("c", 0, 2, True)]
    assert [name for name, *_ in rows(bench.step(2))] == ["a", "b", "c", "d"]


def test_who_has_no_budget_gets_no_slot():
    bench = Bench(budget=5)
    bench.add("a", 5)
    bench.add("b", 5)
    plan = bench.step(1)
    assert (rows(plan), plan.holders, plan.waiting) == ([("a", 0, 5, True)], 1, 1)


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_everybody_who_holds_a_slot_advances_in_every_step(budget: int):
    """Of eight slots no more are given away than the budget has tokens."""
    bench = Bench(slots=8, budget=budget)
    wanted = [bench.add(str(index), 1 + 3 * index) for index in range(9)]
    for now in range(1, 200):
        plan = bench.step(now)
        assert plan.holders == len(plan.rows) == len({row.request for row in plan.rows}) <= budget
        for request in list(bench.scheduler.running):
            if len(request.token_ids) - request.num_prompt == 4:
                bench.scheduler.finish(request, FinishReason.LENGTH, now)
    assert all(request.status is RequestStatus.FINISHED for request in wanted)


def test_an_older_newcomer_waits_for_the_prompt_that_is_in_the_making():
    """Only one prompt is cut at a time."""
    bench = Bench(budget=4)
    bench.add("long", 10, arrival=5)
    bench.step(6)
    bench.add("backdated", 3, arrival=1)
    assert rows(bench.step(7)) == [("long", 4, 4, True)]
    assert rows(bench.step(8)) == [("long", 8, 2, True), ("backdated", 0, 2, True)]
    assert rows(bench.step(9)) == [("long", 10, 1, False), ("backdated", 2, 1, True)]


def test_preempted_in_the_middle_of_its_prompt_it_begins_anew():
    bench = Bench(blocks=7, size=2, budget=4)
    old = bench.add("old", 3, arrival=1)
    bench.step(10)
    young = bench.add("young", 10, arrival=2)
    assert rows(bench.step(20)) == [("old", 3, 1, False), ("young", 0, 3, True)]
    assert rows(bench.step(30)) == [("old", 4, 1, False)], "it needs a third block, and gets it"
    assert (young.status, young.num_computed) == (RequestStatus.PREEMPTED, 0)
    bench.scheduler.finish(old, FinishReason.LENGTH, 40)
    again = [rows(bench.step(now)) for now in (40, 50, 60)]
    assert again == [[("young", 0, 4, True)], [("young", 4, 4, True)], [("young", 8, 2, True)]]
    bench.scheduler.finish(young, FinishReason.LENGTH, 70)
    assert young.timings().holds == ((20, 30), (40, 70))


def test_a_large_request_at_the_head_is_not_overtaken_by_a_small_one():
    bench = Bench(blocks=4)
    bench.add("a", 12)
    bench.add("large", 8)
    bench.add("small", 1)
    assert [name for name, *_ in rows(bench.step(1))] == ["a"]


def test_a_dry_pool_preempts_the_youngest_who_returns_before_newcomers():
    bench = Bench(blocks=4, size=2)
    old = bench.add("old", 3, arrival=1)
    young = bench.add("young", 3, arrival=2)
    bench.add("new", 1, arrival=3)
    bench.step(10)
    bench.step(20)
    assert (len(old.token_ids), len(young.token_ids)) == (5, 5)
    assert rows(bench.step(30)) == [("old", 4, 1, False)]
    assert young.status is RequestStatus.PREEMPTED
    assert [r.request_id for r in bench.scheduler.waiting] == ["young", "new"]
    bench.scheduler.finish(old, FinishReason.LENGTH, 40)
    again, newcomer = rows(bench.step(40))
    assert again == ("young", 0, 5, True), "computed anew, with what it had"
    assert newcomer == ("new", 0, 1, True)
    assert young.table.blocks
    bench.scheduler.finish(young, FinishReason.LENGTH, 50)
    assert young.timings().holds == ((10, 30), (40, 50))


def test_age_decides_who_is_preempted_not_the_order_of_admission():
    bench = Bench(blocks=4, size=2)
    young = bench.add("young", 3, arrival=5)
    bench.step(6)
    bench.add("backdated", 3, arrival=1)
    assert [name for name, *_ in rows(bench.step(7))] == ["young", "backdated"]
    assert [name for name, *_ in rows(bench.step(8))] == ["backdated"]
    assert young.status is RequestStatus.PREEMPTED


def test_nobody_is_admitted_in_a_step_that_preempts():
    """Otherwise the preempted one could take back what was just taken from it."""
    bench = Bench(blocks=4, size=2)
    bench.add("old", 3, arrival=1)
    bench.add("young", 3, arrival=2)
    bench.step(1)
    bench.step(2)
    bench.add("backdated", 1, arrival=0)
    assert rows(bench.step(3)) == [("old", 4, 1, False)]


def test_the_oldest_may_take_the_whole_pool():
    bench = Bench(blocks=3, size=2)
    old = bench.add("old", 2, arrival=1)
    bench.add("young", 2, arrival=2)
    for now in range(1, 6):
        bench.step(now)
    assert len(old.token_ids) == 7
    assert bench.allocator.num_free == 0 or len(old.table.blocks) == 3


def test_new_blocks_are_told_when_they_change_hands():
    bench = Bench(size=2)
    request = bench.add("a", 3)
    assert list(bench.step(1).new_blocks) == request.table.blocks == [0, 1]
    assert bench.step(2).new_blocks == ()
    assert bench.step(3).new_blocks == (2,)


@pytest.mark.parametrize("state", ["waiting", "running", "preempted", "prefilling"])
def test_a_request_can_end_in_any_state(state: str):
    bench = Bench(blocks=4, size=2, budget=4)
    bench.add("old", 3, arrival=1)
    request = bench.add("x", 3, arrival=2)
    if state != "waiting":
        bench.step(6)
        assert request.is_prefilling
    if state in ("running", "preempted"):
        bench.step(7)
        assert not request.is_prefilling
    if state == "preempted":
        bench.step(8)
    assert request.status.value == state.replace("prefilling", "running")
    bench.scheduler.finish(request, FinishReason.ABORT, 9)
    assert request.status is RequestStatus.FINISHED
    assert [name for name, *_ in rows(bench.step(10))] == ["old"]


def test_a_newcomer_is_the_next_in_line_with_a_slot_free_for_it():
    bench = Bench(slots=3)
    bench.add("a", 1, arrival=1)
    bench.step(5)
    newcomer = bench.scheduler.newcomer_between
    assert not newcomer(5, 9)
    bench.add("b", 1, arrival=7)
    assert newcomer(5, 9)
    assert newcomer(6, 7)
    assert not newcomer(7, 9), "it can be admitted at 7"
    assert not newcomer(5, 6), "it has not arrived at 6"
    bench.add("c", 1, arrival=8)
    assert not newcomer(7, 9), "b can be admitted, and c follows a step later"
    bench.step(8)
    bench.add("d", 1, arrival=9)
    assert not newcomer(8, 9), "no slot is free"


@pytest.mark.parametrize("fault", ["lost", "twice", "too many"])
def test_the_integrity_check_finds_requests_that_are(fault: str):
    bench = Bench(slots=1)
    first, second = bench.add("a", 1), bench.add("b", 1)
    bench.scheduler.schedule(1)
    match fault:
        case "lost":
            bench.scheduler.waiting.clear()
        case "twice":
            bench.scheduler.waiting.append(first)
        case "too many":
            bench.scheduler.running.append(second)
            bench.scheduler.waiting.clear()
    with pytest.raises(IntegrityError):
        bench.scheduler.check_integrity([first, second])


@pytest.mark.parametrize("state", ["running", "preempted", "waiting", "finished"])
def test_a_step_that_broke_off_leaves_nobody_with_a_slot_or_a_block(state: str):
    bench = Bench(blocks=4, size=2, prefix_cache=True)
    bench.add("old", 3, arrival=1)
    request = bench.add("x", 3, arrival=2)
    bench.step(3)
    match state:
        case "preempted":
            bench.step(4)
            bench.step(5)
            assert request.status is RequestStatus.PREEMPTED
        case "waiting":
            request = bench.add("late", 1, arrival=9)
        case "finished":
            request.finish(FinishReason.STOP, 4)
    bench.allocator._references[0] += 1  # half of what was being done
    lost = bench.scheduler.abandon(bench.requests)
    waits = state in ("preempted", "waiting")
    assert (request in lost, request in bench.scheduler.waiting) == (not waits, waits)
    assert bench.scheduler.running == []
    assert (bench.allocator.num_free, len(bench.allocator.prefixes)) == (4, 0)
    bench.scheduler.check_integrity(bench.scheduler.waiting)
