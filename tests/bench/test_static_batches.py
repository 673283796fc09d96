"""Static batches on a ruler: who waits, who is held, and what is thrown away."""

from __future__ import annotations

from collections.abc import Sequence

from nanoserve_bench.records import Hold, Settings, SystemRun
from nanoserve_bench.soundness.direct import check_concurrent
from nanoserve_bench.systems.static_batches import GeneratedBatch, run_static

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


class Ruler:
    """A batch takes 10 ns a step and counts upwards from its prompts' first ids."""

    def __init__(self, *, ends: dict[int, int] | None = None) -> None:
        self.now_ns = 100
        self.batches: list[list[int]] = []
        self.ends = ends or {}

    def clock(self) -> int:
        return self.now_ns

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> GeneratedBatch:
        self.batches.append([prompt[0] for prompt in prompts])
        stamps = tuple(self.now_ns + 10 * (step + 1) for step in range(max_tokens))
        self.now_ns = stamps[-1] + 1
        rows = tuple(
            tuple(prompt[0] + step for step in range(self.ends.get(prompt[0], max_tokens)))
            for prompt in prompts
        )
        return GeneratedBatch(rows, stamps)


def run(
    ruler: Ruler,
    prompts: Sequence[Sequence[int]],
    wanted: Sequence[int],
    *,
    slots: int = 2,
    by_length: bool = False,
) -> SystemRun:
    return run_static(
        prompts,
        ruler.generate,
        max_tokens=wanted,
        slots=slots,
        by_length=by_length,
        system="s",
        settings=SETTINGS,
        clock=ruler.clock,
    )


def test_a_row_is_held_until_its_batch_returns_and_the_next_begins_there() -> None:
    made = run(Ruler(), [[10], [20], [30]], [3, 3, 3])
    assert [r.holds for r in made.records] == [
        (Hold(100, 131),),
        (Hold(100, 131),),
        (Hold(131, 162),),
    ]
    assert [r.finished_ns for r in made.records] == [131, 131, 162]
    assert {r.arrival_ns for r in made.records} == {100}
    assert made.records[2].queued_ns == 31
    assert made.records[2].token_ns == (141, 151, 161)
    check_concurrent(made)


def test_what_lies_beyond_a_request_is_discarded_and_no_output() -> None:
    made = run(Ruler(), [[10], [20]], [1, 4])
    short, long = made.records
    assert short.output_ids == (10,)
    assert short.discarded_tokens == 3
    assert short.token_ns == (110,)
    assert short.first_token_ns == 110
    assert short.finished_ns == long.finished_ns == 141  # held, and unfinished, until all are done
    assert short.finish_reason == long.finish_reason == "length"
    assert long.discarded_tokens == 0
    assert made.output_tokens == 5


def test_a_batch_is_asked_for_its_own_longest() -> None:
    made = run(Ruler(), [[10], [20], [30], [40]], [1, 2, 5, 1])
    assert made.records[1].finished_ns == 121
    assert [r.discarded_tokens for r in made.records] == [1, 0, 0, 4]


def test_sorting_batches_alike_lengths_and_keeps_the_requests_in_their_places() -> None:
    ruler = Ruler()
    made = run(ruler, [[10, 1, 1], [20], [30, 1, 1], [40]], [2] * 4, by_length=True)
    assert ruler.batches == [[20, 40], [10, 30]]
    assert [r.request for r in made.records] == ["0", "1", "2", "3"]
    assert [r.output_ids[0] for r in made.records] == [10, 20, 30, 40]
    assert made.records[0].holds == (Hold(121, 142),)
    unsorted = Ruler()
    run(unsorted, [[10, 1, 1], [20], [30, 1, 1], [40]], [2] * 4)
    assert unsorted.batches == [[10, 20], [30, 40]]


def test_a_row_that_ends_early_says_so() -> None:
    made = run(Ruler(ends={20: 1}), [[10], [20]], [3, 3])
    assert made.records[1].output_ids == (20,)
    assert made.records[1].finish_reason == "stop"
    assert made.records[1].token_ns == (110,)
