"""The two runners, with generators and engines whose every stamp is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import pytest

from nanoserve_bench import check_concurrent, check_serial
from nanoserve_bench.records import Hold, Settings, Shape, StepRecord
from nanoserve_bench.runners import Generated, run_concurrent, run_serial, step_log
from support.fake_systems import Params, StepOutput, SteppedFake, answer

SETTINGS = Settings(
    machine="m",
    device="cpu",
    dtype="float32",
    matmul_precision="ieee",
    threads=1,
    weights="declared:none",
    tokenizer="none",
    decoding="greedy",
    cache="off",
)
PROMPTS = tuple((n, n + 1) for n in range(8))


class Ruler:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 1000

    def __call__(self) -> int:
        return self.now_ns


def generator(clock: Ruler, *, timed: bool = True) -> Callable[[Sequence[int], int], Generated]:
    """20 ns to the first token, 10 ns to each other, 5 ns to return."""

    def generate(prompt: Sequence[int], max_tokens: int) -> Generated:
        stamps = tuple(clock.now_ns + 20 + 10 * n for n in range(max_tokens))
        clock.now_ns = stamps[-1] + 5
        return Generated(answer(prompt, max_tokens), stamps if timed else None)

    return generate


def test_requests_may_each_ask_for_their_own_number_of_tokens() -> None:
    clock = Ruler()
    run = run_serial(
        PROMPTS[:3],
        generator(clock),
        max_tokens=(1, 4, 2),
        system="s",
        settings=SETTINGS,
        clock=clock,
    )
    assert [len(r.output_ids) for r in run.records] == [1, 4, 2]
    assert [r.max_tokens for r in run.records] == [1, 4, 2]
    assert {r.finish_reason for r in run.records} == {"length"}
    many = run_concurrent(
        SteppedFake(2),
        PROMPTS[:3],
        [Params(max_tokens=n) for n in (1, 4, 2)],
        slots=2,
        system="s",
        settings=SETTINGS,
    )
    assert [(r.max_tokens, len(r.output_ids)) for r in many.records] == [(1, 1), (4, 4), (2, 2)]


def test_a_serial_run_hands_over_the_next_when_the_last_is_done() -> None:
    clock = Ruler()
    run = run_serial(
        PROMPTS[:3], generator(clock), max_tokens=4, system="s", settings=SETTINGS, clock=clock
    )
    assert [(r.arrival_ns, r.finished_ns) for r in run.records] == [
        (1000, 1055),
        (1055, 1110),
        (1110, 1165),
    ]
    assert [r.request for r in run.records] == ["0", "1", "2"]
    assert run.records[1].output_ids == answer(PROMPTS[1], 4)
    assert run.records[1].token_ns == (1075, 1085, 1095, 1105)
    assert (run.shape, run.slots, run.steps) == (Shape.SERIAL, 1, None)
    check_serial(run)


def test_the_time_to_the_first_token_of_a_serial_run_is_its_prefill() -> None:
    clock = Ruler()
    run = run_serial(
        PROMPTS, generator(clock), max_tokens=4, system="s", settings=SETTINGS, clock=clock
    )
    for record in run.records:
        assert record.prefill_ns == record.ttft_ns == 20
        assert record.queued_ns == 0
    assert run.batch_occupancy == run.system_occupancy == 1


def test_a_generator_without_stamps_gives_a_run_without_them() -> None:
    clock = Ruler()
    run = run_serial(
        PROMPTS[:1],
        generator(clock, timed=False),
        max_tokens=4,
        system="s",
        settings=SETTINGS,
        clock=clock,
    )
    record = run.records[0]
    assert record.first_token_ns is None
    assert record.token_ns is None
    assert record.holds == (Hold(1000, 1055),)
    assert record.cached_tokens is None


def test_an_output_that_ends_early_says_that_it_stopped() -> None:
    clock = Ruler()
    run = run_serial(
        PROMPTS[:2],
        lambda prompt, n: generator(clock)(prompt, n - 1 if prompt[0] else n),
        max_tokens=4,
        system="s",
        settings=SETTINGS,
        clock=clock,
    )
    assert [r.finish_reason for r in run.records] == ["length", "stop"]


def test_a_concurrent_run_hands_over_everything_at_once_and_reads_the_stamps_back() -> None:
    run = run_concurrent(
        SteppedFake(slots=2),
        PROMPTS,
        Params(max_tokens=5),
        slots=2,
        system="s",
        settings=SETTINGS,
        cached_tokens=0,
    )
    assert [r.output_ids for r in run.records] == [answer(p, 5) for p in PROMPTS]
    assert [r.prompt_ids for r in run.records] == list(PROMPTS)
    arrivals = [r.arrival_ns for r in run.records]
    assert max(arrivals) < min(r.first_token_ns or 0 for r in run.records)
    assert all(r.token_ns is not None and r.finished_ns == r.token_ns[-1] for r in run.records)
    assert run.records[0].cached_tokens == 0
    check_concurrent(run)


def test_the_step_log_and_the_holds_add_up_to_the_same() -> None:
    run = run_concurrent(
        SteppedFake(slots=3), PROMPTS, Params(max_tokens=5), slots=3, system="s", settings=SETTINGS
    )
    assert run.steps is not None
    assert (
        sum(
            step.holders * (after.start_ns - step.start_ns)
            for step, after in zip(run.steps, run.steps[1:], strict=False)
        )
        == run.served_ns
    )
    assert run.steps[-1].holders == 0


def test_occupancy_is_not_batch_size() -> None:
    """The bug of the source document: one slot, a queue of seven, and an occupancy of 4.83."""
    clock = Ruler()

    def step() -> int:
        clock.now_ns += 10
        return clock.now_ns

    run = run_concurrent(
        SteppedFake(1, clock=clock, work=step),
        PROMPTS,
        Params(max_tokens=5),
        slots=1,
        system="s",
        settings=SETTINGS,
    )
    assert run.system_occupancy == Fraction(9, 2)
    assert run.batch_occupancy == 1
    assert run.identity_gaps() == (0, 0)


def test_a_failed_request_keeps_its_error() -> None:
    class Failing(SteppedFake):
        def step(self) -> StepOutput:
            step = super().step()
            failed = tuple(_failed(output) for output in step.outputs)
            return StepOutput(**{**step.__dict__, "outputs": failed})

    @dataclass(frozen=True, kw_only=True)
    class Failed:
        request_id: str
        token_ids: list[int]
        finish_reason: str
        error: str | None
        timings: object

    def _failed(output: object) -> Failed:
        return Failed(**{**output.__dict__, "finish_reason": "error", "error": "too long"})

    run = run_concurrent(
        Failing(slots=8), PROMPTS, Params(max_tokens=2), slots=8, system="s", settings=SETTINGS
    )
    assert {(r.finish_reason, r.error) for r in run.records} == {("error", "too long")}


def _step(start_ns: int, end_ns: int, holders: int) -> StepOutput:
    return StepOutput(
        start_ns=start_ns,
        end_ns=end_ns,
        prefill_rows=0,
        decode_rows=holders,
        holders=holders,
        waiting=1,
        outputs=(),
    )


@pytest.mark.parametrize(
    ("steps", "log"),
    [
        ((), ()),
        (((10, 20, 1),), ((10, 1), (20, 0))),
        (((10, 20, 1), (20, 30, 2)), ((10, 1), (20, 2), (30, 0))),
        (((10, 20, 1), (25, 30, 2)), ((10, 1), (20, 0), (25, 2), (30, 0))),
        (((10, 10, 0), (12, 20, 1)), ((10, 0), (12, 1), (20, 0))),
        (((10, 20, 1), (20, 20, 0)), ((10, 1), (20, 0))),
    ],
)
def test_a_step_log_is_a_step_function(
    steps: tuple[tuple[int, int, int], ...], log: tuple[tuple[int, int], ...]
) -> None:
    records = step_log([_step(*step) for step in steps])
    assert tuple((record.start_ns, record.holders) for record in records) == log
    starts = [record.start_ns for record in records]
    assert starts == sorted(set(starts))
    assert all(record == StepRecord(record.start_ns, 0, 0, 0, 0) for record in records[-1:])
