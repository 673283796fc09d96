"""Who runs in the next step: policy only, no tensors.

Continuous batching: the batch is put together anew at every step. A step holds one decode row of
every running sequence, then whole prompts of waiting ones, as long as a slot, blocks and the
step's token budget allow. Requests are served first come, first served, by (arrival, order of
submission); nobody overtakes.

Blocks are taken when tokens need them, so a pool can run dry in the middle of a decode. Then the
youngest running request is preempted: it loses its slot and blocks and goes back to the queue,
where its age puts it before all that came later. Its tokens are kept and computed again on
readmission. The oldest request can always have the whole pool, and no request is accepted that
needs more than that, so the oldest always moves: nobody starves.

A row says which tokens of its sequence to compute, ``[start, start + length)``, and samples only
if these are the last. Prompts come whole today; a chunk would be a shorter row.
"""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from nanoserve.block_allocator import BlockAllocator
from nanoserve.errors import IntegrityError
from nanoserve.request import FinishReason, Request, RequestStatus

_BY_AGE = attrgetter("order")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduledRow:
    """Tokens ``[start, start + length)`` of one sequence, to be computed in this step."""

    request: Request
    start: int
    length: int
    is_prefill: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerOutput:
    """One step's work.

    Attributes:
        rows: The sequences of the step, decode rows first.
        new_blocks: Blocks that changed hands; they must be clean before they are read.
        holders: Requests that own a slot during the step.
        waiting: Requests still waiting, after admission.
    """

    rows: tuple[ScheduledRow, ...]
    new_blocks: tuple[int, ...]
    holders: int
    waiting: int

    @property
    def prefill_rows(self) -> int:
        """Sequences whose prompt is computed."""
        return sum(row.is_prefill for row in self.rows)

    @property
    def decode_rows(self) -> int:
        """Sequences that advance by one token."""
        return len(self.rows) - self.prefill_rows


class Scheduler:
    """First come, first served, with preemption by recompute.

    Attributes:
        waiting: Requests without a slot, oldest first.
        running: Requests with a slot, oldest first.
    """

    def __init__(self, allocator: BlockAllocator, *, max_slots: int, max_batch_tokens: int) -> None:
        self.allocator = allocator
        self.max_slots = max_slots
        self.max_batch_tokens = max_batch_tokens
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """Put a request into the queue, at the place of its arrival."""
        insort(self.waiting, request, key=_BY_AGE)

    def newcomer_between(self, start_ns: int, now_ns: int) -> bool:
        """Whether a slot is free, and who is next got ready for it in ``(start_ns, now_ns]``."""
        return (
            bool(self.waiting)
            and len(self.running) < self.max_slots
            and start_ns < self.waiting[0].ready_ns <= now_ns
        )

    def schedule(self, start_ns: int) -> SchedulerOutput:
        """Decide the step that starts at ``start_ns``: preempt, grow, admit."""
        new_blocks: list[int] = []
        nobody_preempted = self._make_room(start_ns)
        rows = [self._row(request, new_blocks, is_prefill=False) for request in self.running]
        if nobody_preempted:
            rows += self._admit(start_ns, len(rows), new_blocks)
        return self._output(rows, new_blocks)

    def boundary(self) -> SchedulerOutput:
        """A step without rows: slots are held, nothing is computed."""
        return self._output([], [])

    def _output(self, rows: list[ScheduledRow], new_blocks: list[int]) -> SchedulerOutput:
        return SchedulerOutput(
            rows=tuple(rows),
            new_blocks=tuple(new_blocks),
            holders=len(self.running),
            waiting=len(self.waiting),
        )

    def _make_room(self, start_ns: int) -> bool:
        """Preempt the youngest until every running sequence can store one more token."""
        before = len(self.running)
        while (
            sum(request.table.missing(len(request.token_ids)) for request in self.running)
            > self.allocator.num_free
        ):
            youngest = self.running.pop()
            youngest.release_slot(start_ns)
            youngest.status = RequestStatus.PREEMPTED
            self.add(youngest)
        return len(self.running) == before

    def _row(self, request: Request, new_blocks: list[int], *, is_prefill: bool) -> ScheduledRow:
        """The tokens that are not in the cache yet, with blocks to put them in."""
        length = len(request.token_ids)
        new_blocks += request.table.grow_to(length)
        return ScheduledRow(
            request=request,
            start=request.num_computed,
            length=length - request.num_computed,
            is_prefill=is_prefill,
        )

    def _admit(self, start_ns: int, batch_tokens: int, new_blocks: list[int]) -> list[ScheduledRow]:
        """Give free slots to the oldest waiting requests, as far as blocks and budget go."""
        rows: list[ScheduledRow] = []
        while self.waiting and len(self.running) < self.max_slots:
            request = self.waiting[0]
            length = len(request.token_ids)
            over_budget = batch_tokens + length > self.max_batch_tokens
            if (
                request.ready_ns > start_ns
                or request.table.missing(length) > self.allocator.num_free
                or (over_budget and rows)
            ):
                break
            self.waiting.pop(0)
            insort(self.running, request, key=_BY_AGE)
            request.acquire_slot(start_ns)
            batch_tokens += length
            rows.append(self._row(request, new_blocks, is_prefill=True))
        return rows

    def finish(
        self, request: Request, reason: FinishReason, now_ns: int, error: str | None = None
    ) -> None:
        """Take a request out of the engine, from whatever state it is in."""
        queue = self.running if request.status is RequestStatus.RUNNING else self.waiting
        queue.remove(request)
        request.finish(reason, now_ns, error)

    def check_integrity(self, live: Iterable[Request]) -> None:
        """Check that every live request is queued or running, and every block free or owned.

        Args:
            live: The requests that have been added and have not ended.

        Raises:
            IntegrityError: When a request is lost, or a block leaked, doubled or miscounted.
        """
        held = [*self.waiting, *self.running]
        if len(held) != len(set(held)) or set(held) != set(live):
            raise IntegrityError("a request is lost, or in two places")
        if len(self.running) > self.max_slots:
            raise IntegrityError(f"{len(self.running)} requests hold {self.max_slots} slots")
        self.allocator.check_integrity(request.table for request in held)
