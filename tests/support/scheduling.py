"""A scheduler and an allocator without a model: the test says when each step starts."""

from __future__ import annotations

from nanoserve import SamplingParams
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.request import Request, RequestStatus
from nanoserve.scheduler import Scheduler, SchedulerOutput


class Bench:
    """A scheduler, and requests to put into it."""

    def __init__(
        self,
        *,
        slots: int = 4,
        blocks: int = 100,
        size: int = 4,
        budget: int = 1000,
        prefix_cache: bool = False,
    ):
        self.allocator = BlockAllocator(blocks, size)
        self.scheduler = Scheduler(
            self.allocator,
            max_slots=slots,
            max_batch_tokens=budget,
            prefix_cache=prefix_cache,
        )
        self.requests: list[Request] = []

    def add(
        self,
        name: str,
        prompt: int | list[int],
        arrival: int = 0,
        submitted: int | None = None,
    ) -> Request:
        request = Request(
            request_id=name,
            prompt=[1] * prompt if isinstance(prompt, int) else prompt,
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
        assert sum(row.length for row in plan.rows) <= self.scheduler.max_batch_tokens
        self.scheduler.computed(plan)
        for request in plan.sampled:
            request.append(1, now)
        self.scheduler.check_integrity(
            r for r in self.requests if r.status is not RequestStatus.FINISHED
        )
        return plan


def rows(plan: SchedulerOutput) -> list[tuple[str, int, int, bool]]:
    return [(r.request.request_id, r.start, r.length, r.is_prefill) for r in plan.rows]
