"""Driving a stepped engine that does not tell its slots: no more than n requests are ever in it.

Some engines ignore their own limit of running requests, and none of them tells when a request got
and lost its row. So the driver keeps the queue itself and hands a request over only when fewer
than n are inside. A hold is then known from outside: from the step before which the request was
handed over, to the end of the step that brought its last token.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nanoserve_bench.records import Hold, RunRecord, Settings, Shape, SystemRun


class Progress(NamedTuple):
    """What a step did for a request: its new tokens, and whether the engine is done with it."""

    request: int
    token_ids: Sequence[int]
    finished: bool


class AdmittingEngine(Protocol):
    """An engine that takes requests one by one and is stepped from outside."""

    def admit(self, request: int, prompt: Sequence[int], max_tokens: int) -> None:
        """Hand a request over; its tokens come from the steps that follow."""

    def step(self) -> Iterable[Progress]:
        """Advance what is inside, and say what came out; raise when nothing ever will."""


@dataclass
class _Inside:
    """A request that was handed over."""

    acquired_ns: int
    token_ids: list[int] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)


def run_admitted(
    engine: AdmittingEngine,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: Sequence[int],
    slots: int,
    system: str,
    settings: Settings,
    clock: Callable[[], int] = time.monotonic_ns,
) -> SystemRun:
    """Run prompts through an engine, with at most `slots` of them inside at any time.

    All requests arrive at once; a request's place in the driver's queue is queueing like any other.

    Args:
        engine: An engine with nothing inside.
        prompts: Token ids of each request.
        max_tokens: Tokens to ask for, per request.
        slots: Most requests inside.
        system: Name of the system.
        settings: What it runs under.
        clock: Monotonic time, ns.
    """
    arrival_ns = boundary_ns = clock()
    waiting = deque(range(len(prompts)))
    inside: dict[int, _Inside] = {}
    records: dict[int, RunRecord] = {}
    while waiting or inside:
        while waiting and len(inside) < slots:
            request = waiting.popleft()
            inside[request] = _Inside(acquired_ns=boundary_ns)
            engine.admit(request, prompts[request], max_tokens[request])
        progress = list(engine.step())
        # One stamp a boundary: the step that ends and the one that begins share it.
        boundary_ns = clock()
        for request, token_ids, finished in progress:
            state = inside[request]
            state.token_ids += token_ids
            state.token_ns += [boundary_ns] * len(token_ids)
            if finished:
                del inside[request]
                records[request] = _record(
                    request,
                    prompts[request],
                    max_tokens[request],
                    state,
                    arrival_ns=arrival_ns,
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
    request: int,
    prompt: Sequence[int],
    max_tokens: int,
    state: _Inside,
    *,
    arrival_ns: int,
    finished_ns: int,
) -> RunRecord:
    return RunRecord(
        request=str(request),
        prompt_ids=tuple(prompt),
        output_ids=tuple(state.token_ids),
        max_tokens=max_tokens,
        arrival_ns=arrival_ns,
        submitted_ns=arrival_ns,
        holds=(Hold(state.acquired_ns, finished_ns),),
        first_token_ns=state.token_ns[0] if state.token_ns else None,
        finished_ns=finished_ns,
        token_ns=tuple(state.token_ns),
        cached_tokens=0,
        finish_reason="length" if len(state.token_ids) == max_tokens else "stop",
    )
