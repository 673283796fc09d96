"""Who runs in the next step: policy only, no tensors.

Continuous batching: the batch is put together anew at every step, within a budget of tokens. First
comes one token of every sequence that is decoding, then as much of a prompt as the budget has
left: of the one that is already in the making, then of waiting ones, as long as there are slots
and blocks. Requests are served first come, first served, by (arrival, order of submission); nobody
overtakes.

A prompt that exceeds what is left is cut, and goes on in the next step. Only its last piece gives
a token. So a step costs what its budget says, and those who decode wait no longer for a neighbour
with a long prompt than for one with a short one. As a cut prompt has used the budget up, there is
never more than one of them; and as no more requests run than the budget has tokens, every request
that owns a slot advances in every step.

Blocks are taken when tokens need them, so a pool can run dry in the middle of a decode. Then the
youngest running request is preempted: it loses its slot and blocks and goes back to the queue,
where its age puts it before all that came later. Its tokens are kept and computed again on
readmission. The oldest request can always have the whole pool, and no request is accepted that
needs more than that, so the oldest always moves: nobody starves.

With the prefix cache, whole blocks that have been computed can be found by whoever begins with the
same tokens, also after their owner has ended or was preempted (see ``prefix_cache``). The last
token of a sequence is always computed, because its logits are wanted, and so is all of its block.
"""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from nanoserve.block_allocator import BlockAllocator
from nanoserve.errors import IntegrityError
from nanoserve.prefix_cache import extend_keys
from nanoserve.request import FinishReason, Request, RequestStatus

_BY_AGE = attrgetter("order")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduledRow:
    """Tokens ``[start, start + length)`` of one sequence, to be computed in this step.

    Attributes:
        request: Whose they are.
        start: The first of them; those before are in the cache.
        length: How many; 1 in a decode row.
        is_prefill: Whether they are a prompt, or a piece of one.
        samples: Whether they are the last of the sequence, so that its next token is wanted.
    """

    request: Request
    start: int
    length: int
    is_prefill: bool
    samples: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerOutput:
    """One step's work.

    Attributes:
        rows: The sequences of the step, decode rows first.
        new_blocks: Blocks that changed hands; they must be clean before they are read. What was
            found in the prefix cache is not among them.
        holders: Requests that own a slot during the step.
        waiting: Requests still waiting, after admission.
    """

    rows: tuple[ScheduledRow, ...]
    new_blocks: tuple[int, ...]
    holders: int
    waiting: int

    @property
    def prefill_rows(self) -> int:
        """Sequences whose prompt is computed, or a piece of it."""
        return sum(row.is_prefill for row in self.rows)

    @property
    def decode_rows(self) -> int:
        """Sequences that advance by one token."""
        return len(self.rows) - self.prefill_rows

    @property
    def sampled(self) -> tuple[Request, ...]:
        """Whose next token is wanted, in the order of the rows."""
        return tuple(row.request for row in self.rows if row.samples)


class Scheduler:
    """First come, first served, with preemption by recompute.

    Args:
        allocator: The pool's blocks.
        max_slots: Most requests that run at a time.
        max_batch_tokens: Most tokens of a step; where there are fewer of them than slots, the
            other slots stay empty.
        prefix_cache: Whether requests may read blocks that others have computed.

    Attributes:
        waiting: Requests without a slot, oldest first.
        running: Requests with a slot, oldest first.
    """

    def __init__(
        self,
        allocator: BlockAllocator,
        *,
        max_slots: int,
        max_batch_tokens: int,
        prefix_cache: bool = False,
    ) -> None:
        self.allocator = allocator
        self.max_running = min(max_slots, max_batch_tokens)
        self.max_batch_tokens = max_batch_tokens
        self.prefix_cache = prefix_cache
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """Put a request into the queue, at the place of its arrival."""
        insort(self.waiting, request, key=_BY_AGE)

    def newcomer_between(self, start_ns: int, now_ns: int) -> bool:
        """Whether a slot is free, and who is next got ready for it in ``(start_ns, now_ns]``."""
        return (
            bool(self.waiting)
            and len(self.running) < self.max_running
            and start_ns < self.waiting[0].ready_ns <= now_ns
        )

    def schedule(self, start_ns: int) -> SchedulerOutput:
        """Decide the step that starts at ``start_ns``: preempt, decode, prefill, admit."""
        new_blocks: list[int] = []
        nobody_preempted = self._make_room(start_ns)
        decoding = [request for request in self.running if not request.is_prefilling]
        rows = [self._decode_row(request, new_blocks) for request in decoding]
        budget = self.max_batch_tokens - len(rows)
        for request in self.running:
            if request.is_prefilling:
                rows.append(self._prefill_row(request, budget))
                budget -= rows[-1].length
        if nobody_preempted:
            rows += self._admit(start_ns, budget, new_blocks)
        return self._output(rows, new_blocks)

    def computed(self, plan: SchedulerOutput) -> None:
        """The step has been run: its tokens are in the cache."""
        size = self.allocator.block_size
        for row in plan.rows:
            request = row.request
            request.num_computed += row.length
            if self.prefix_cache:
                whole = request.num_computed // size
                keys = self._keys(request, whole)
                for index in range(row.start // size, whole):
                    self.allocator.prefixes.add(keys[index], request.table.blocks[index])

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

    def _decode_row(self, request: Request, new_blocks: list[int]) -> ScheduledRow:
        """The token that is not in the cache yet, with a block to put it in."""
        length = len(request.token_ids)
        new_blocks += request.table.grow_to(length)
        return ScheduledRow(
            request=request, start=length - 1, length=1, is_prefill=False, samples=True
        )

    def _prefill_row(self, request: Request, budget: int) -> ScheduledRow:
        """As much as the budget allows of what is not in the cache yet."""
        left = request.prefill_end - request.num_computed
        return ScheduledRow(
            request=request,
            start=request.num_computed,
            length=min(left, budget),
            is_prefill=True,
            samples=left <= budget,
        )

    def _admit(self, start_ns: int, budget: int, new_blocks: list[int]) -> list[ScheduledRow]:
        """Give free slots to the oldest waiting requests, as far as blocks and budget go.

        Whoever gets a slot gets all blocks for what it has, so that nothing but an older request
        can come between the pieces of its prompt.
        """
        rows: list[ScheduledRow] = []
        while budget and self.waiting and len(self.running) < self.max_running:
            request = self.waiting[0]
            length = len(request.token_ids)
            if request.ready_ns > start_ns:
                break
            cached = self._find(request)
            shared = sum(map(self.allocator.is_owned, cached))
            if request.table.missing(length) - shared > self.allocator.num_free:
                break
            self.waiting.pop(0)
            insort(self.running, request, key=_BY_AGE)
            request.acquire_slot(start_ns, cached)
            new_blocks += request.table.grow_to(length)
            rows.append(self._prefill_row(request, budget))
            budget -= rows[-1].length
        return rows

    def _find(self, request: Request) -> list[int]:
        """Cached blocks that the request can begin with; its last token is in none of them."""
        if not self.prefix_cache:
            return []
        num_blocks = (len(request.token_ids) - 1) // self.allocator.block_size
        return self.allocator.prefixes.find(self._keys(request, num_blocks)[:num_blocks])

    def _keys(self, request: Request, num_blocks: int) -> list[bytes]:
        """The keys of a request's whole blocks, at least of the first ``num_blocks``."""
        extend_keys(
            request.block_keys,
            request.token_ids,
            block_size=self.allocator.block_size,
            num_blocks=num_blocks,
        )
        return request.block_keys

    def finish(
        self, request: Request, reason: FinishReason, now_ns: int, error: str | None = None
    ) -> None:
        """Take a request out of the engine, from whatever state it is in."""
        queue = self.running if request.status is RequestStatus.RUNNING else self.waiting
        queue.remove(request)
        request.finish(reason, now_ns, error)

    def abandon(self, live: Iterable[Request]) -> list[Request]:
        """Start over, wherever a step broke off: nobody owns a slot or a block, nothing is cached.

        Args:
            live: The requests that have been added and have not ended.

        Returns:
            Those that cannot go on, in any state; the others are waiting.
        """
        lost: list[Request] = []
        queued: list[Request] = []
        for request in live:
            request.table.blocks.clear()
            waits = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
            (queued if waits else lost).append(request)
        self.allocator.reset()
        self.running.clear()
        self.waiting = sorted(queued, key=_BY_AGE)
        return lost

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
        if len(self.running) > self.max_running:
            raise IntegrityError(f"{len(self.running)} requests hold {self.max_running} slots")
        if any(request.table.blocks for request in self.waiting):
            raise IntegrityError("a request owns blocks while it waits")
        if sum(request.is_prefilling for request in self.running) > 1:
            raise IntegrityError("more than one prompt is cut")
        self.allocator.check_integrity(request.table for request in held)
