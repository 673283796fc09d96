"""Who runs: first come first served, whole prompts, the youngest preempted, nobody overtaken."""

from __future__ import annotations

import pytest

from nanoserve import FinishReason, SamplingParams
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.errors import IntegrityError
from nanoserve.request import Request, RequestStatus
from nanoserve.scheduler import Scheduler, SchedulerOutput


class Bench:
    """A scheduler, and requests to put into it."""

    def __init__(self, *, slots: int = 4, blocks: int = 100, size: int = 4, budget: int = 1000):
        self.allocator = BlockAllocator(blocks, size)
        self.scheduler = Scheduler(self.allocator, max_slots=slots, max_batch_tokens=budget)
        self.requests: list[Request] = []

    def add(
        self, name: str, prompt: int, arrival: int = 0, submitted: int | None = None
    ) -> Request:
        request = Request(
            request_id=name,
            prompt=[1] * prompt,
            params=SamplingParams(),
            table=BlockTable(self.allocator),
            order=(arrival, len(self.requests)),
            submitted_ns=arrival if submitted is None else submitted,
            max_length=10_000,
            stop_ids=frozenset(),
            seed=0,
        )
        self.requests.append(request)
        self.scheduler.add(request)
        return request

    def step(self, now: int) -> SchedulerOutput:
        plan = self.scheduler.schedule(now)
        for row in plan.rows:
            row.request.num_computed += row.length
            row.request.append(1, now)
        self.scheduler.check_integrity(
            r for r in self.requests if r.status is not RequestStatus.FINISHED
        )
        return plan


def rows(plan: SchedulerOutput) -> list[tuple[str, int, int, bool]]:
    return [(r.request.request_id, r.start, r.length, r.is_prefill) for r in plan.rows]


def test_prompts_come_whole_and_then_one_token_at_a_time():
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


def test_the_token_budget_counts_decode_rows_and_holds_back_further_prompts():
    bench = Bench(budget=10)
    for name in "abc":
        bench.add(name, 4)
    assert [name for name, *_ in rows(bench.step(1))] == ["a", "b"]
    bench.add("d", 5)
    assert [name for name, *_ in rows(bench.step(2))] == ["a", "b", "c"], (
        "2 + 4, and 5 are too many"
    )
    bench.add("e", 7)
    bench.add("f", 1)
    assert [name for name, *_ in rows(bench.step(3))] == ["a", "b", "c", "d"]


def test_a_prompt_beyond_the_budget_is_the_only_prompt_of_its_step():
    bench = Bench(budget=10)
    for name, prompt in (("a", 3), ("long", 25), ("b", 1)):
        bench.add(name, prompt)
    assert [name for name, *_ in rows(bench.step(1))] == ["a"]
    assert [name for name, *_ in rows(bench.step(2))] == ["a", "long"]
    assert [name for name, *_ in rows(bench.step(3))] == ["a", "long", "b"]


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


@pytest.mark.parametrize("state", ["waiting", "running", "preempted"])
def test_a_request_can_end_in_any_state(state: str):
    bench = Bench(blocks=4, size=2)
    bench.add("old", 3, arrival=1)
    request = bench.add("x", 3, arrival=2)
    if state != "waiting":
        bench.step(6)
    if state == "preempted":
        bench.step(7)
        bench.step(8)
    assert request.status.value == state
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
