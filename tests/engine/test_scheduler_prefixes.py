"""Which blocks a prompt may begin with, and what becomes of cached blocks that nobody owns."""

from __future__ import annotations

import pytest

from nanoserve import FinishReason
from nanoserve.request import RequestStatus
from support.scheduling import Bench, rows


def served(bench: Bench, name: str, prompt: list[int], now: int) -> tuple[int, int]:
    """Run one request to its first token: where its prompt began, and what it says was cached."""
    request = bench.add(name, prompt, arrival=now)
    (row,) = bench.step(now).rows
    bench.scheduler.finish(request, FinishReason.LENGTH, now)
    assert request.cached_tokens is not None
    return row.start, request.cached_tokens


LONG = list(range(100, 120))


@pytest.mark.parametrize(
    ("prompt", "cached"),
    [
        (LONG, 16),
        (LONG[:17], 16),
        (LONG[:16], 12),  # exactly four blocks, wholly cached: the last is computed again
        (LONG[:15], 12),
        (LONG[:4], 0),
        ([*LONG[:9], 5, *LONG[10:]], 8),
        ([5, *LONG[1:]], 0),
        ([*LONG, 7, 8, 9, 10, 11], 20),
    ],
    ids=str,
)
def test_whole_blocks_of_a_known_beginning_are_not_computed(prompt: list[int], cached: int):
    bench = Bench(prefix_cache=True)
    assert served(bench, "first", LONG, 1) == (0, 0)
    assert served(bench, "second", prompt, 2) == (cached, cached)
    assert bench.allocator.num_free == 100


def test_without_the_prefix_cache_everything_is_computed():
    bench = Bench()
    assert served(bench, "first", LONG, 1) == served(bench, "second", LONG, 2) == (0, 0)


def test_the_same_prompt_twice_in_one_step_is_computed_twice_and_cached_once():
    bench = Bench(prefix_cache=True)
    twins = [bench.add(name, LONG) for name in "ab"]
    assert rows(bench.step(1)) == [("a", 0, 20, True), ("b", 0, 20, True)]
    assert not set(twins[0].table.blocks) & set(twins[1].table.blocks)
    third = bench.add("c", LONG)
    assert rows(bench.step(2))[2] == ("c", 16, 4, True)
    assert third.table.blocks[:4] == twins[0].table.blocks[:4]
    for request in (*twins, third):
        bench.scheduler.finish(request, FinishReason.LENGTH, 3)
    assert (bench.allocator.num_free, len(bench.allocator.prefixes)) == (100, 5)


def test_what_a_piece_has_computed_is_there_for_others_while_the_rest_is_not():
    bench = Bench(budget=9, prefix_cache=True)
    long = bench.add("long", LONG)
    bench.step(1)
    bench.scheduler.finish(long, FinishReason.ABORT, 2)
    assert served(bench, "next", LONG[:12], 3) == (8, 8)


def test_an_answer_is_the_beginning_of_the_next_prompt():
    bench = Bench(prefix_cache=True)
    request = bench.add("question", LONG[:6])
    for now in range(1, 5):
        bench.step(now)
    said = list(request.token_ids)
    assert (len(said), request.num_computed) == (10, 9)
    bench.scheduler.finish(request, FinishReason.LENGTH, 4)
    assert served(bench, "next", [*said, 3, 4], 5) == (8, 8)


def test_preempted_it_hits_its_own_prefix_and_that_is_not_counted():
    bench = Bench(blocks=4, size=2, prefix_cache=True)
    old = bench.add("old", [1, 2, 3], arrival=1)
    young = bench.add("young", [4, 5, 6], arrival=2)
    bench.step(10)
    bench.step(20)
    assert rows(bench.step(30)) == [("old", 4, 1, False)]
    assert young.status is RequestStatus.PREEMPTED
    bench.scheduler.finish(old, FinishReason.LENGTH, 40)
    assert rows(bench.step(40)) == [("young", 2, 3, True)], "one of its blocks was still there"
    assert young.cached_tokens == 0


def test_idle_blocks_go_when_others_need_them_the_end_of_a_prefix_first():
    bench = Bench(blocks=6, prefix_cache=True)
    served(bench, "a", LONG, 1)
    served(bench, "b", [1] * 8, 2)
    assert served(bench, "again", LONG[:18], 3)[1] == 16, "one block was free, one was a's last"
    served(bench, "c", [2] * 21, 4)
    assert served(bench, "at last", LONG, 5)[1] == 0
    assert bench.allocator.num_free == 6


def test_cached_blocks_never_keep_a_request_out():
    """All blocks but one are idle, and part of them are its own prefix."""
    bench = Bench(blocks=5, prefix_cache=True)
    served(bench, "a", LONG, 1)
    request = bench.add("b", LONG, arrival=2)
    assert rows(bench.step(2)) == [("b", 16, 4, True)]
    assert len(request.table.blocks) == 5


def test_a_shared_block_is_not_taken_from_who_still_reads_it():
    bench = Bench(blocks=8, prefix_cache=True)
    first = bench.add("first", LONG)
    bench.step(1)
    second = bench.add("second", LONG)
    bench.step(2)
    assert first.table.blocks[:4] == second.table.blocks[:4]
    bench.scheduler.finish(first, FinishReason.LENGTH, 3)
    bench.add("third", [9] * 7)
    bench.step(3)
    assert set(second.table.blocks).isdisjoint(bench.scheduler.running[-1].table.blocks)
    assert bench.allocator.num_free == 0
