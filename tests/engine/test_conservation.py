"""A hundred thousand random steps of scheduler, allocator and prefix cache, without a model.

Every step is held against the laws: no block is lost or has an owner that is not counted, what a
table leads to is what its sequence wrote or would have written, the budget is kept, everybody who
holds a slot advances, nobody is overtaken, the oldest is never preempted, nothing stands still.
Requests come late, early and backdated, are aborted in every state, and steps break off.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest

from nanoserve import FinishReason, SamplingParams
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.request import Request, RequestStatus
from nanoserve.scheduler import ScheduledRow, Scheduler, SchedulerOutput

WORLDS = 40
STEPS = 2500  # in each

_STEMS = [[random.Random(stem).randrange(3) for _ in range(30)] for stem in range(2)]


class World:
    """A scheduler under random use, and a pool that remembers what was written where.

    A token's mark is a hash of all tokens up to it: equal marks mean equal pasts.
    """

    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        self.size = rng.choice((1, 2, 3, 4, 8))
        blocks = -(-rng.randint(25, 70) // self.size)
        self.allocator = BlockAllocator(blocks, self.size)
        self.scheduler = Scheduler(
            self.allocator,
            max_slots=rng.choice((1, 2, 3, 5, 8)),
            max_batch_tokens=rng.choice((1, 2, 4, 9, 30, 1000)),
            prefix_cache=rng.random() < 0.7,
        )
        self.pool: list[list[int]] = [[] for _ in range(blocks)]
        self.live: dict[Request, list[int]] = {}  # with the marks of their tokens
        self.now = 0
        self.steps = self.added = self.ended = 0
        self.seen: Counter[str] = Counter()

    def add(self) -> None:
        rng = self.rng
        stem = rng.choice(_STEMS)[: rng.randrange(21)]
        prompt = stem + [rng.randrange(3) for _ in range(rng.choice((1, 1, 2, 6)))]
        length = min(len(prompt) + rng.choice((1, 1, 3, 8, 20)), len(self.pool) * self.size + 1)
        if len(prompt) >= length:
            return
        request = Request(
            request_id=str(self.added),
            prompt=prompt,
            params=SamplingParams(),
            table=BlockTable(self.allocator),
            order=(max(0, self.now + rng.choice((-50, -2, 0, 0, 0, 3, 20))), self.added),
            submitted_ns=self.now,
            max_length=length,
            stop_ids=frozenset(),
            seed=0,
        )
        self.added += 1
        self.live[request] = []
        self.scheduler.add(request)

    def abort(self) -> None:
        if self.live:
            request = self.rng.choice(list(self.live))
            if request.status is RequestStatus.RUNNING and request.is_prefilling:
                self.seen["aborted in the middle of a prompt"] += 1
            else:
                self.seen[f"aborted while {request.status.value}"] += 1
            self.scheduler.finish(request, FinishReason.ABORT, self.now)
            self._end(request)

    def _end(self, request: Request) -> None:
        del self.live[request]
        self.ended += 1

    def marks(self, request: Request) -> list[int]:
        marks = self.live[request]
        for token in request.token_ids[len(marks) :]:
            marks.append(hash((marks[-1] if marks else 0, token)))
        return marks

    def step(self) -> None:
        scheduler, now = self.scheduler, self.now
        before = list(scheduler.running)
        cut = [request for request in before if request.is_prefilling]
        ready = any(request.ready_ns <= now for request in scheduler.waiting)
        plan = scheduler.schedule(now)
        self.check_plan(plan, before)
        assert plan.rows or not (before or ready), "nothing moves"
        self.seen["preempted in the middle of a prompt"] += sum(
            request.status is RequestStatus.PREEMPTED for request in cut
        )
        for block in plan.new_blocks:
            self.pool[block] = []
        if self.rng.random() < 0.004:
            self.break_off(plan)
        else:
            for row in plan.rows:
                self.write(row)
            scheduler.computed(plan)
            for request in plan.sampled:
                request.append(self.marks(request)[-1] % 3, now)
                if request.reason_to_stop() is not None:
                    scheduler.finish(request, FinishReason.LENGTH, now)
                    self._end(request)
        scheduler.check_integrity(self.live)
        self.steps += 1
        self.now += self.rng.choice((0, 1, 1, 2))

    def break_off(self, plan: SchedulerOutput) -> None:
        """The model fails when some of the rows are written."""
        for row in plan.rows[: self.rng.randrange(len(plan.rows) + 1)]:
            self.write(row)
        if self.rng.random() < 0.5:
            self.allocator._references[0] += 1  # in the middle of the bookkeeping
        lost = self.scheduler.abandon(self.live)
        assert set(lost) == {row.request for row in plan.rows}
        for request in lost:
            request.finish(FinishReason.ERROR, self.now)
            self._end(request)
        self.seen["broken off"] += 1

    def check_plan(self, plan: SchedulerOutput, before: list[Request]) -> None:
        scheduler = self.scheduler
        assert sum(row.length for row in plan.rows) <= scheduler.max_batch_tokens
        assert {row.request for row in plan.rows} == set(scheduler.running)
        assert len(plan.rows) == plan.holders <= scheduler.max_running
        kinds = [row.is_prefill for row in plan.rows]
        assert kinds == sorted(kinds), "decode rows come first"
        assert sum(not row.samples for row in plan.rows) <= 1
        if before:
            assert before[0].status is RequestStatus.RUNNING, "the oldest was preempted"
        admitted = set(scheduler.running).difference(before)
        if admitted:
            assert all(request in scheduler.running for request in before)
            waits = [r.order for r in scheduler.waiting if r.ready_ns <= self.now]
            assert max(r.order for r in admitted) < min(waits, default=(self.now + 1, 0))
        for row in plan.rows:
            if row.request in admitted and row.request.prefill_end == row.request.num_prompt:
                assert row.start % self.size == 0
                assert row.request.cached_tokens is not None
                self.seen["cached tokens"] += row.start
            elif row.request in admitted:
                self.seen["found again after a preemption"] += row.start
            self.seen["pieces"] += not row.samples
            self.seen["wholly cached"] += (
                row.is_prefill and row.start > 0 and row.length == self.size and row.samples
            )

    def write(self, row: ScheduledRow) -> None:
        """Write a row's tokens, and read all that its sequence has."""
        table, marks = row.request.table.blocks, self.marks(row.request)
        stop = row.start + row.length
        for index in range(row.start, stop):
            block = self.pool[table[index // self.size]]
            assert len(block) == index % self.size, "a place is written once, in its turn"
            block.append(marks[index])
        for number, begin in enumerate(range(0, stop, self.size)):
            assert self.pool[table[number]] == marks[begin : min(begin + self.size, stop)]

    def run(self, steps: int) -> None:
        while self.steps < steps:
            kind = self.rng.random()
            if kind < 0.2 and len(self.live) < 12:
                self.add()
            elif kind < 0.22:
                self.abort()
            else:
                self.step()
        patience = 200 + 80 * len(self.live)
        while self.live:
            self.step()
            patience -= 1
            assert patience, "a request starves"


@cache
def world_of(seed: int) -> World:
    world = World(seed)
    world.run(STEPS)
    return world


@pytest.mark.parametrize("seed", range(WORLDS))
def test_no_block_is_lost_or_has_two_owners_and_no_request_is_lost_or_starves(seed: int):
    world = world_of(seed)
    assert world.ended == world.added
    assert world.allocator.num_free == len(world.pool)
    world.allocator.check_integrity([])


def test_the_worlds_are_hard_enough():
    worlds = [world_of(seed) for seed in range(WORLDS)]
    seen = sum((world.seen for world in worlds), Counter())
    assert sum(world.steps for world in worlds) >= 100_000
    assert sum(world.added for world in worlds) > 10_000
    for rare in (
        "aborted in the middle of a prompt",
        "preempted in the middle of a prompt",
        "aborted while waiting",
        "aborted while running",
        "aborted while preempted",
        "broken off",
        "pieces",
        "wholly cached",
    ):
        assert seen[rare] > 20, rare
    assert seen["cached tokens"] > 5000
    assert seen["found again after a preemption"] > 500
