"""Prompts: distinct, fresh in every block, the same for the same seed."""

from __future__ import annotations

import hashlib

import pytest

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.workload import FULL, WORKLOADS, PromptBook, Vocabulary

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
    text = repr(_book().block(2)["day44"])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "5ea2edef6bce4c92"


def test_a_vocabulary_too_small_for_distinct_prompts_is_refused() -> None:
    with pytest.raises(PlanError, match="too few prompts"):
        _book(vocabulary=Vocabulary(size=8, special=frozenset({0})))
