"""Driving a system through a workload: one request at a time, all at once, or each when due.

No runner adds work between the stamps. `run_serial` and `run_queued` stamp around a generator that
knows nothing of it; `run_concurrent` times nothing itself and reads the engine's own stamps back.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from nanoserve_bench.feeding import Feed, Submitted
from nanoserve_bench.records import (
    NS_PER_S,
    Hold,
    RunRecord,
    Settings,
    Shape,
    StepRecord,
    SystemRun,
)


class Generated(NamedTuple):
    """What a one-at-a-time generator made of a prompt; stamps it cannot take are None."""

    token_ids: tuple[int, ...]
    token_ns: tuple[int, ...] | None


Generate = Callable[[Sequence[int], int], Generated]
"""A generator: prompt ids and the number of tokens wanted, to what was generated."""


def run_serial(
    prompts: Sequence[Sequence[int]],
    generate: Generate,
    *,
    max_tokens: int | Sequence[int],
    system: str,
    settings: Settings,
    cached_tokens: int | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> SystemRun:
    """Run prompts through a generator, each when the one before has finished.

    A request holds the only slot from its arrival to its finish, so the time to its first token is
    its prefill: a system without a queue has nothing else to wait for.

    Args:
        prompts: Token ids of each request.
        generate: The generator.
        max_tokens: Tokens to ask for, of every request or of each.
        system: Name of the system.
        settings: What it runs under.
        cached_tokens: Prompt tokens that a prefix cache serves; None is unknown.
        clock: The clock of the generator's stamps, ns.
    """
    wanted = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
    runs: list[tuple[Submitted, Hold, Generated]] = []
    for index, (prompt, tokens) in enumerate(zip(prompts, wanted, strict=True)):
        arrival_ns = clock()
        generated = generate(prompt, tokens)
        come = Submitted(index, arrival_ns, arrival_ns)
        runs.append((come, Hold(arrival_ns, clock()), generated))
    return SystemRun(
        system=system,
        shape=Shape.SERIAL,
        slots=1,
        records=_generated_records(runs, prompts, wanted, cached_tokens),
        settings=settings,
    )


def run_queued(
    prompts: Sequence[Sequence[int]],
    generate: Generate,
    *,
    feed: Feed,
    max_tokens: Sequence[int],
    system: str,
    settings: Settings,
    cached_tokens: int | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> SystemRun:
    """Run prompts through a generator with a queue in front of it: an open loop over one slot.

    A request holds the only slot while it is generated. Requests overlap in the system, so the run
    is concurrent, in one slot.

    Args:
        prompts: Token ids of each request.
        generate: The generator.
        feed: Brings each of them.
        max_tokens: Tokens to ask for, per request.
        system: Name of the system.
        settings: What it runs under.
        cached_tokens: Prompt tokens that a prefix cache serves; None is unknown.
        clock: The clock of the generator's stamps, ns.
    """
    waiting: deque[Submitted] = deque()
    runs: list[tuple[Submitted, Hold, Generated]] = []
    while len(runs) < len(prompts):
        waiting += feed.take(wait=not waiting)
        come = waiting.popleft()
        acquired_ns = clock()
        generated = generate(prompts[come.request], max_tokens[come.request])
        runs.append((come, Hold(acquired_ns, clock()), generated))
    return SystemRun(
        system=system,
        shape=Shape.CONCURRENT,
        slots=1,
        records=_generated_records(runs, prompts, max_tokens, cached_tokens),
        settings=settings,
    )


def _generated_records(
    runs: Sequence[tuple[Submitted, Hold, Generated]],
    prompts: Sequence[Sequence[int]],
    wanted: Sequence[int],
    cached_tokens: int | None,
) -> tuple[RunRecord, ...]:
    """What a one-at-a-time generator made, in the order of the prompts."""
    return tuple(
        RunRecord(
            request=str(come.request),
            prompt_ids=tuple(prompts[come.request]),
            output_ids=generated.token_ids,
            max_tokens=wanted[come.request],
            arrival_ns=come.arrival_ns,
            submitted_ns=come.submitted_ns,
            holds=(hold,),
            first_token_ns=generated.token_ns[0] if generated.token_ns else None,
            finished_ns=hold.released_ns,
            token_ns=generated.token_ns,
            cached_tokens=cached_tokens,
            finish_reason=(
                "length" if len(generated.token_ids) == wanted[come.request] else "stop"
            ),
        )
        for come, hold, generated in sorted(runs, key=lambda made: made[0].request)
    )


class Step(Protocol):
    """One step of an engine, as `nanoserve.Engine.step` returns it."""

    @property
    def start_ns(self) -> int:
        """When it began."""

    @property
    def end_ns(self) -> int:
        """When its tokens existed."""

    @property
    def prefill_rows(self) -> int:
        """Sequences whose prompt it computed."""

    @property
    def decode_rows(self) -> int:
        """Sequences it advanced by one token."""

    @property
    def holders(self) -> int:
        """Requests that owned a slot from its start to its end."""

    @property
    def waiting(self) -> int:
        """Requests that waited."""

    @property
    def outputs(self) -> Sequence[Any]:
        """The requests that ended in it."""


class SteppedEngine(Protocol):
    """An engine that is stepped from outside, such as `nanoserve.Engine`."""

    def add_request(
        self, request_id: str, prompt: list[int], params: Any, *, arrival_ns: int | None = None
    ) -> object:
        """Queue a request; `arrival_ns` is when it was due, now where it is None."""

    def has_unfinished(self) -> bool:
        """Whether a step has anything to do."""

    def step(self) -> Step:
        """Advance every running request."""


def run_concurrent(
    engine: SteppedEngine,
    prompts: Sequence[Sequence[int]],
    params: Any,
    *,
    slots: int,
    system: str,
    settings: Settings,
    cached_tokens: int | None = None,
    due_ns: Sequence[int] = (),
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> SystemRun:
    """Hand prompts to an engine, all at once or when due; step it, and read its stamps.

    A request that falls due during a step is handed over at the end of it, which is when the
    engine could admit it at the earliest; its arrival is stamped by when it was due all the same.

    Args:
        engine: An engine with nothing in flight.
        prompts: Token ids of each request.
        params: The engine's sampling parameters, of every request or a sequence of each one's;
            `max_tokens` in them is what is asked for.
        slots: The engine's slots.
        system: Name of the system.
        settings: What it runs under.
        cached_tokens: Prompt tokens that a prefix cache serves, where the engine's outputs do not
            tell it; None is unknown.
        due_ns: When each is due, ns after the first, ascending; empty hands all over at once.
        clock: The engine's clock, ns.
        sleep: Waits for so many seconds while nothing is due and nothing runs.
    """
    each = params if isinstance(params, Sequence) else [params] * len(prompts)
    steps: list[Step] = []
    if due_ns:
        steps = _step_open_loop(engine, prompts, each, due_ns, clock=clock, sleep=sleep)
    else:
        for index, (prompt, own) in enumerate(zip(prompts, each, strict=True)):
            engine.add_request(str(index), list(prompt), own)
        while engine.has_unfinished():
            steps.append(engine.step())
    outputs = {output.request_id: output for step in steps for output in step.outputs}
    records = tuple(
        _record(str(index), tuple(prompt), own.max_tokens, cached_tokens, outputs[str(index)])
        for index, (prompt, own) in enumerate(zip(prompts, each, strict=True))
    )
    return SystemRun(
        system=system,
        shape=Shape.CONCURRENT,
        slots=slots,
        records=records,
        settings=settings,
        steps=step_log(steps),
    )


def _step_open_loop(
    engine: SteppedEngine,
    prompts: Sequence[Sequence[int]],
    params: Sequence[Any],
    due_ns: Sequence[int],
    *,
    clock: Callable[[], int],
    sleep: Callable[[float], None],
) -> list[Step]:
    """Hand each request over as soon as it is due and no step runs, until all are done."""
    start_ns = clock()
    waiting = deque(enumerate(zip(prompts, params, due_ns, strict=True)))
    steps: list[Step] = []
    while waiting or engine.has_unfinished():
        now_ns = clock()
        while waiting and start_ns + waiting[0][1][2] <= now_ns:
            index, (prompt, own, due) = waiting.popleft()
            engine.add_request(str(index), list(prompt), own, arrival_ns=start_ns + due)
        if engine.has_unfinished():
            steps.append(engine.step())
        elif waiting:
            sleep(max(0, start_ns + waiting[0][1][2] - clock()) / NS_PER_S)
    return steps


def _record(
    request: str,
    prompt: tuple[int, ...],
    max_tokens: int,
    cached_tokens: int | None,
    output: Any,
) -> RunRecord:
    timings = output.timings
    told: int | None = getattr(output, "cached_tokens", None)
    return RunRecord(
        request=request,
        prompt_ids=prompt,
        output_ids=tuple(output.token_ids),
        max_tokens=max_tokens,
        arrival_ns=timings.arrival_ns,
        submitted_ns=timings.submitted_ns,
        holds=tuple(Hold(*hold) for hold in timings.holds),
        first_token_ns=timings.first_token_ns,
        finished_ns=timings.finished_ns,
        token_ns=tuple(timings.token_ns),
        cached_tokens=cached_tokens if told is None else told,
        finish_reason=str(output.finish_reason),
        error=output.error or "",
    )


def step_log(steps: Sequence[Step]) -> tuple[StepRecord, ...]:
    """Steps as a step function of the holders: gaps are rows, and the last row has no holder."""
    log: list[StepRecord] = []
    end_ns: int | None = None
    for step in steps:
        if end_ns is not None and step.start_ns > end_ns:
            log.append(StepRecord(end_ns, 0, 0, 0, 0))
        if step.end_ns > step.start_ns:
            log.append(
                StepRecord(
                    step.start_ns, step.prefill_rows, step.decode_rows, step.holders, step.waiting
                )
            )
        end_ns = step.end_ns
    if end_ns is not None:
        log.append(StepRecord(end_ns, 0, 0, 0, 0))
    return tuple(log)
