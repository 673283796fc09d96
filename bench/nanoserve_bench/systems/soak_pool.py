"""How large a KV pool must be for its requests to get in each other's way, from dry runs.

Who runs in a step follows from the lengths of the requests and from what their prompts share, not
from any logit. So the scheduler alone, without a model, tells in a moment what a pool of a given
size will do to given requests. No rule of thumb does: a pool may be so small that requests wait for
it one after the other, and nobody is ever preempted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanoserve import SamplingParams
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.request import Request
from nanoserve.scheduler import Scheduler

_LARGEST = 300
_STEP = 10
"""Pools that are tried, in hundredths of the longest request: from one on, in steps."""
_ANY_TOKEN = 0

Asked = tuple[Sequence[int], int]
"""A prompt, and how many tokens are asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What decides who runs; the attributes are those of the engine's settings."""

    max_slots: int
    max_batch_tokens: int
    block_size: int
    prefix_cache: bool


def tight_pool(requests: Sequence[Asked], policy: Policy) -> int:
    """The pool, in tokens, in which these requests are preempted most; the smallest such one.

    Every request finds room in it, so none is refused.
    """
    longest = max(len(prompt) + max_tokens for prompt, max_tokens in requests)
    least = -(-longest // policy.block_size)
    pools = sorted({least * percent // 100 for percent in range(100, _LARGEST + 1, _STEP)})
    most = max(pools, key=lambda blocks: preemptions(requests, policy, blocks=blocks))
    return most * policy.block_size


def preemptions(requests: Sequence[Asked], policy: Policy, *, blocks: int) -> int:
    """How often a request loses its slot, if all of them are there from the start.

    Args:
        requests: In the order of their arrival.
        policy: How they are served.
        blocks: Of the pool, which has room for every request alone.
    """
    allocator = BlockAllocator(blocks, policy.block_size)
    scheduler = Scheduler(
        allocator,
        max_slots=policy.max_slots,
        max_batch_tokens=policy.max_batch_tokens,
        prefix_cache=policy.prefix_cache,
    )
    everyone = [
        Request(
            request_id=str(index),
            prompt=list(prompt),
            params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
            table=BlockTable(allocator),
            order=(0, index),
            submitted_ns=0,
            max_length=len(prompt) + max_tokens,
            stop_ids=frozenset(),
            seed=0,
        )
        for index, (prompt, max_tokens) in enumerate(requests)
    ]
    for request in everyone:
        scheduler.add(request)
    now_ns = 0
    while scheduler.waiting or scheduler.running:
        plan = scheduler.schedule(now_ns)
        now_ns += 1
        scheduler.computed(plan)
        for request in plan.sampled:
            request.append(_ANY_TOKEN, now_ns)
            if (reason := request.reason_to_stop()) is not None:
                scheduler.finish(request, reason, now_ns)
    return sum(len(request.timings().holds) - 1 for request in everyone)
