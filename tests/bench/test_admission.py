"""Admission by the driver: slots are kept for an engine that would not keep them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from nanoserve_bench.feeding import Burst, Feed, Submitted
from nanoserve_bench.records import Hold, Settings, SystemRun
from nanoserve_bench.soundness.direct import check_concurrent, check_offered_load
from nanoserve_bench.systems.admission import Progress, run_admitted

SETTINGS = Settings(
    machine="m",
    device="cpu",
    dtype="float32",
    matmul_precision="ieee",
    threads=1,
    weights="sha256:0",
    tokenizer="none",
    decoding="greedy;ignore_eos",
    cache="off",
)


class Greedy:
    """An engine that would run everything at once; every step takes 10 ns."""

    def __init__(self, *, prefill_steps: int = 1, stops: dict[int, int] | None = None) -> None:
        self.now_ns = 100
        self.prefill_steps = prefill_steps
        self.stops = stops or {}
        self.inside: dict[int, list[int]] = {}
        self.most = 0

    def clock(self) -> int:
        return self.now_ns

    def admit(self, request: int, prompt: Sequence[int], max_tokens: int) -> None:
        self.inside[request] = [prompt[0], 0, self.stops.get(request, max_tokens)]
        self.most = max(self.most, len(self.inside))

    def step(self) -> Iterable[Progress]:
        self.now_ns += 10
        for request, state in list(self.inside.items()):
            state[1] += 1
            made = state[1] - self.prefill_steps
            if made < 0:
                continue
            finished = made + 1 == state[2]
            if finished:
                del self.inside[request]
            yield Progress(request, (state[0] + made,), finished)


class Due:
    """Requests that come by the engine's clock; waiting for one moves it on."""

    def __init__(self, engine: Greedy, *due_ns: int) -> None:
        self.engine = engine
        self.coming = [Submitted(index, due, due) for index, due in enumerate(due_ns)]

    def take(self, *, wait: bool) -> list[Submitted]:
        if wait:
            self.engine.now_ns = max(self.engine.now_ns, self.coming[0].arrival_ns)
        come = [each for each in self.coming if each.arrival_ns <= self.engine.now_ns]
        self.coming = self.coming[len(come) :]
        return come


def run(
    engine: Greedy, wanted: Sequence[int], *, slots: int, feed: Feed | None = None
) -> SystemRun:
    return run_admitted(
        engine,
        [(10 * (index + 1),) for index in range(len(wanted))],
        max_tokens=wanted,
        slots=slots,
        feed=feed or Burst(len(wanted), engine.clock),
        system="s",
        settings=SETTINGS,
        clock=engine.clock,
    )


def test_no_more_requests_are_inside_than_there_are_slots() -> None:
    engine = Greedy()
    made = run(engine, [2, 4, 2, 2], slots=2)
    assert engine.most == 2
    assert [r.holds for r in made.records] == [
        (Hold(100, 120),),
        (Hold(100, 140),),
        (Hold(120, 140),),
        (Hold(140, 160),),
    ]
    assert [r.output_ids for r in made.records] == [
        (10, 11),
        (20, 21, 22, 23),
        (30, 31),
        (40, 41),
    ]
    assert made.records[2].token_ns == (130, 140)
    assert made.records[2].queued_ns == 20
    assert {r.arrival_ns for r in made.records} == {100}
    check_concurrent(made)


def test_a_prompt_that_takes_several_steps_holds_its_slot_meanwhile() -> None:
    made = run(Greedy(prefill_steps=3), [2, 2], slots=2)
    assert made.records[0].first_token_ns == 130
    assert made.records[0].holds == (Hold(100, 140),)


def test_an_engine_that_ends_early_is_not_asked_again_and_says_stop() -> None:
    made = run(Greedy(stops={0: 1}), [3, 3], slots=1)
    assert made.records[0].output_ids == (10,)
    assert made.records[0].finish_reason == "stop"
    assert made.records[1].finish_reason == "length"


def test_a_request_waits_for_the_end_of_a_step_and_no_step_runs_without_one() -> None:
    """The second comes in the first's last step, the third with the slots full, the last alone."""
    engine = Greedy()
    made = run(engine, [2, 2, 1, 1], slots=1, feed=Due(engine, 100, 115, 117, 500))
    assert [(r.arrival_ns, r.holds) for r in made.records] == [
        (100, (Hold(100, 120),)),
        (115, (Hold(120, 140),)),
        (117, (Hold(140, 150),)),
        (500, (Hold(500, 510),)),
    ]
    assert [r.submitted_ns for r in made.records] == [100, 115, 117, 500]
    assert engine.now_ns == 510
    check_offered_load(made, (0, 15, 17, 400))


def test_what_an_engine_served_from_its_cache_is_recorded() -> None:
    class Caching(Greedy):
        def step(self) -> Iterable[Progress]:
            for made in super().step():
                yield made._replace(cached_tokens=None if made.request else 3)

    assert [r.cached_tokens for r in run(Caching(), [2, 2], slots=2).records] == [3, None]


def test_an_engine_that_fails_is_no_endless_loop() -> None:
    class Failing(Greedy):
        def step(self) -> Iterable[Progress]:
            raise RuntimeError("dropped requests [0]")

    with pytest.raises(RuntimeError, match="dropped"):
        run(Failing(), [1], slots=1)
