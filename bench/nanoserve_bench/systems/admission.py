"""Driving a stepped engine that does not tell its slots: no more than n requests are ever in it.

Some engines ignore their own limit of running requests, and none of them tells when a request got
and lost its row. So the driver keeps the queue itself and hands a request over only when fewer
than n are inside. A hold is then known from outside: from the step before which the request was
handed over, to the end of the step that brought its last token.

In an open loop the queue is fed by a thread of its own (`feeding.py`), so that a request is
submitted when it is due, and waits in the queue for the end of a step like one that found no slot.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nanoserve_bench.feeding import Feed, Submitted
from nanoserve_bench.records import Hold, RunRecord, Settings, Shape, SystemRun


class Progress(NamedTuple):
    """What a step did for a request: its new tokens, and whether the engine is done with it.

    `cached_tokens` are those of its prompt that a prefix cache served; None is unknown.
    """

    request: int
    token_ids: Sequence[int]
    finished: bool
    cached_tokens: int | None = 0


class AdmittingEngine(Protocol):
    """An engine that takes requests one by one and is stepped from outside."""

    def admit(self, request: int, prompt: Sequence[int], max_tokens: int) -> None:
        """Hand a request over; its tokens come from the steps that follow."""

    def step(self) -> Iterable[Progress]:
        """Advance what is inside, and say what came out; raise when nothing ever will."""


@dataclass
class _Inside:
    """A request that was handed over to the engine."""

    come: Submitted
    acquired_ns: int
    token_ids: list[int] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)


def run_admitted(
    engine: AdmittingEngine,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: Sequence[int],
    slots: int,
    feed: Feed,
    system: str,
    settings: Settings,
    clock: Callable[[], int] = time.monotonic_ns,
) -> SystemRun:
    """Run prompts through an engine, with at most `slots` of them inside at any time.

    A request's place in the driver's queue is queueing like any other.

    Args:
        engine: An engine with nothing inside.
        prompts: Token ids of each request.
        max_tokens: Tokens to ask for, per request.
        slots: Most requests inside.
        feed: Brings each of them.
        system: Name of the system.
        settings: What it runs under.
        clock: Monotonic time, ns.
    """
    boundary_ns = 0
    waiting: deque[Submitted] = deque()
    inside: dict[int, _Inside] = {}
    records: dict[int, RunRecord] = {}
    while len(records) < len(prompts):
        waiting += feed.take(wait=not waiting and not inside)
        while waiting and len(inside) < slots:
            come = waiting.popleft()
            # It may have come after the last step, or when no step ran.
            acquired_ns = max(boundary_ns, come.submitted_ns)
            inside[come.request] = _Inside(come=come, acquired_ns=acquired_ns)
            engine.admit(come.request, prompts[come.request], max_tokens[come.request])
        progress = list(engine.step())
        # One stamp a boundary: the step that ends and the one that begins share it.
        boundary_ns = clock()
        for request, token_ids, finished, cached_tokens in progress:
            state = inside[request]
            state.token_ids += token_ids
            state.token_ns += [boundary_ns] * len(token_ids)
            if finished:
                del inside[request]
                records[request] = _record(
                    prompts[request],
                    max_tokens[request],
                    state,
                    cached_tokens=cached_tokens,
                    finished_ns=boundary_ns,
                )
    return SystemRun(
        system=system,
        shape=Shape.CONCURRENT,
        slots=slots,
        records=tuple(records[request] for request in range(len(prompts))),
        settings=settings,
    )


def _record(
    prompt: Sequence[int],
    max_tokens: int,
    state: _Inside,
    *,
    cached_tokens: int | None,
    finished_ns: int,
) -> RunRecord:
    return RunRecord(
        request=str(state.come.request),
        prompt_ids=tuple(prompt),
        output_ids=tuple(state.token_ids),
        max_tokens=max_tokens,
        arrival_ns=state.come.arrival_ns,
        submitted_ns=state.come.submitted_ns,
        holds=(Hold(state.acquired_ns, finished_ns),),
        first_token_ns=state.token_ns[0] if state.token_ns else None,
        finished_ns=finished_ns,
        token_ns=tuple(state.token_ns),
        cached_tokens=cached_tokens,
        finish_reason="length" if len(state.token_ids) == max_tokens else "stop",
    )
