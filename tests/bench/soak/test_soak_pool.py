"""The KV pool of the soak's tight cases: preemption is certain, whatever the number of prompts."""

from __future__ import annotations

import pytest

from nanoserve_bench.soak.cases import CASES, FULL, QUICK, Case, Mix, Proof, draw
from nanoserve_bench.systems.soak_pool import Asked, Policy, preemptions, tight_pool
from nanoserve_bench.workload import Vocabulary

VOCABULARY = Vocabulary(size=49_152, special=frozenset({0, 1}))
TIGHT = [case for case in CASES if case.tight_pool]


def asked(mix: Mix, count: int, seed: int = 44) -> list[Asked]:
    return [(r.prompt, r.max_tokens) for r in draw(mix, VOCABULARY, seed)[:count]]


def policy_of(case: Case) -> Policy:
    return Policy(
        max_slots=case.slots,
        max_batch_tokens=case.max_batch_tokens or 512,
        block_size=case.block_size,
        prefix_cache=case.prefix_cache,
    )


def test_the_cases_that_are_there_for_preemptions_are_the_tight_ones() -> None:
    assert {case.name for case in TIGHT} == {
        case.name for case in CASES if Proof.PREEMPTED in case.proofs
    }
    assert len({policy_of(case) for case in TIGHT}) == 2


@pytest.mark.parametrize("case", TIGHT[:2], ids=lambda case: case.name)
@pytest.mark.parametrize(
    ("mix", "count"), [(FULL, 3), (FULL, 8), (FULL, 40), (FULL, 200), (QUICK, 2), (QUICK, 24)]
)
def test_somebody_is_preempted_and_everybody_finds_room(case: Case, mix: Mix, count: int) -> None:
    requests = asked(mix, count)
    pool = tight_pool(requests, policy_of(case))
    assert preemptions(requests, policy_of(case), blocks=pool // case.block_size) > 0
    assert pool % case.block_size == 0
    assert pool >= max(len(prompt) + max_tokens for prompt, max_tokens in requests)


def test_of_all_pools_it_is_one_with_the_most_preemptions() -> None:
    requests = asked(QUICK, 24)
    policy = policy_of(TIGHT[0])
    counts = {blocks: preemptions(requests, policy, blocks=blocks) for blocks in range(36, 109)}
    chosen = counts[tight_pool(requests, policy) // 4]
    assert chosen >= 0.8 * max(counts.values())
    assert min(counts.values()) < chosen


def test_one_request_alone_is_never_preempted() -> None:
    policy = policy_of(TIGHT[0])
    assert tight_pool([((1, 2, 3), 6)], policy) == 12
    assert preemptions([((1, 2, 3), 6)], policy, blocks=3) == 0


def test_two_that_grow_out_of_a_pool_of_five_blocks() -> None:
    """Both begin with two blocks. The older takes the last one, then the younger must go."""
    policy = Policy(max_slots=2, max_batch_tokens=64, block_size=4, prefix_cache=False)
    two = [((1,) * 7, 8), ((2,) * 7, 8)]
    assert preemptions(two, policy, blocks=5) == 1
    assert preemptions(two, policy, blocks=8) == 0
