"""Prompts: distinct, fresh in every block, the same for the same seed."""

from __future__ import annotations

import hashlib

import pytest

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import RequestLengths, WorkloadPlan
from nanoserve_bench.workload import FULL, WORKLOADS, PromptBook, Vocabulary, planned

VOCABULARY = Vocabulary(size=49_152, special=frozenset(range(17)))
BOTH = tuple(WORKLOADS[name] for name in FULL)


def _book(seed: int = 44, vocabulary: Vocabulary = VOCABULARY) -> PromptBook:
    return PromptBook(seed=seed, workloads=BOTH, vocabulary=vocabulary)


def _all(book: PromptBook, blocks: int) -> list[tuple[int, ...]]:
    return [
        prompt
        for block in range(blocks)
        for prompts in book.block(block).values()
        for prompt in (*prompts.measured, *prompts.warmup)
    ]


def test_the_workloads_of_the_source_document() -> None:
    day44, day44x32 = WORKLOADS["day44"], WORKLOADS["day44x32"]
    assert (day44.requests, day44.prompt_tokens, day44.new_tokens) == (8, 6, 16)
    assert day44.slots == (1, 2, 4, 8)
    assert (day44x32.requests, day44x32.slots) == (32, (1, 2, 4, 8, 16, 32))
    assert FULL == ("day44", "day44x32")


def test_the_workload_of_a_card_fills_64_slots_and_is_otherwise_the_same() -> None:
    small, large = WORKLOADS["day44"], WORKLOADS["day44x64"]
    assert (large.requests, large.slots) == (64, (1, 2, 4, 8, 16, 32, 64))
    assert (large.prompt_tokens, large.new_tokens) == (small.prompt_tokens, small.new_tokens)


def test_every_prompt_has_its_length_and_ordinary_ids() -> None:
    for prompt in _all(_book(), 3):
        assert len(prompt) == 6
        assert all(17 <= token < 49_152 for token in prompt)


def test_no_prompt_comes_twice_in_a_study() -> None:
    prompts = _all(_book(), 20)
    assert len(prompts) == len(set(prompts)) == 20 * 2 * (8 + 32)


def test_no_prompt_comes_twice_where_chance_would_repeat_them() -> None:
    workload = WorkloadPlan(name="w", requests=500, prompt_tokens=6, new_tokens=1, slots=(1,))
    book = PromptBook(
        seed=1, workloads=(workload,), vocabulary=Vocabulary(size=10, special=frozenset())
    )
    prompts = _all(book, 4)
    assert len(prompts) == len(set(prompts)) == 4000


def test_prompts_follow_from_the_seed_and_the_block_alone() -> None:
    late, early = _book(), _book()
    assert late.block(5) == [early.block(b) for b in range(6)][5]
    assert _book(seed=45).block(0) != early.block(0)
    assert early.block(0) != early.block(1)


def test_prompts_are_the_same_on_every_machine_for_ever() -> None:
    block = _book().block(2)["day44"]
    text = f"BlockPrompts(measured={block.measured!r}, warmup={block.warmup!r})"
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "5ea2edef6bce4c92"


def test_a_vocabulary_too_small_for_distinct_prompts_is_refused() -> None:
    with pytest.raises(PlanError, match="too few prompts"):
        _book(vocabulary=Vocabulary(size=8, special=frozenset({0})))


def _drawn(workload: WorkloadPlan, block: int = 0) -> tuple[list[tuple[int, ...]], ...]:
    prompts = PromptBook(seed=44, workloads=(workload,), vocabulary=VOCABULARY).block(block)
    return list(prompts[workload.name].measured), list(prompts[workload.name].warmup)


def test_ragged_prompts_have_the_lengths_of_the_plan_in_every_block() -> None:
    workload = planned("ragged", 44)
    lengths = [one.prompt_tokens for one in workload.lengths]
    assert len(set(lengths)) > 8
    for block in range(3):
        measured, warmup = _drawn(workload, block)
        assert [len(prompt) for prompt in measured] == lengths
        assert [len(prompt) for prompt in warmup] == lengths


def test_ragged_lengths_follow_from_the_seed_for_ever() -> None:
    assert planned("ragged", 44) == planned("ragged", 44)
    assert planned("ragged", 44).lengths != planned("ragged", 45).lengths
    assert planned("ragged", 44).lengths[:3] == (
        RequestLengths(prompt_tokens=14, new_tokens=23),
        RequestLengths(prompt_tokens=28, new_tokens=64),
        RequestLengths(prompt_tokens=65, new_tokens=54),
    )
    assert planned("ragged", 44).source.startswith("prompts log-normal, median 24, sigma 0.8")


def test_a_workload_is_as_long_as_its_longest_request() -> None:
    workload = planned("ragged", 44)
    assert workload.new_tokens == max(one.new_tokens for one in workload.lengths)
    sums = [one.prompt_tokens + one.new_tokens for one in workload.lengths]
    assert workload.longest == max(sums) < workload.prompt_tokens + workload.new_tokens
    assert planned("day44", 44).longest == 22


def test_prompts_of_a_block_share_their_prefix_and_nothing_else() -> None:
    workload = planned("shared-prefix", 44)
    measured, warmup = _drawn(workload)
    later, _ = _drawn(workload, 1)
    for prompts in (measured, warmup, later):
        assert len({prompt[:128] for prompt in prompts}) == 1
        assert len({prompt[128:] for prompt in prompts}) == workload.requests
    # A cache that a warm-up or an earlier block filled holds nothing of it.
    assert len({prompts[0][:128] for prompts in (measured, warmup, later)}) == 3


def test_prompts_that_are_given_are_dealt_out_block_after_block() -> None:
    lengths = tuple(RequestLengths(prompt_tokens=2, new_tokens=n) for n in range(1, 7))
    workload = WorkloadPlan(
        name="mine", requests=2, prompt_tokens=2, new_tokens=6, slots=(1,), lengths=lengths
    )
    given = [(20 + n, 30) for n in range(6)]
    book = PromptBook(seed=1, workloads=(workload,), vocabulary=VOCABULARY, given={"mine": given})
    blocks = [book.block(number)["mine"] for number in range(3)]
    assert [prompt for block in blocks for prompt in block.measured] == given
    assert [block.wanted for block in blocks] == [(1, 2), (3, 4), (5, 6)]
    assert not {p for block in blocks for p in block.warmup} & set(given)


def test_an_unknown_workload_is_told_what_there_is() -> None:
    with pytest.raises(PlanError, match=r"'day45'; there are: day44, .*files that end in .jsonl"):
        planned("day45", 44)
