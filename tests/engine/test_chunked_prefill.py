"""Prompts cut over several steps, and prompts found in the prefix cache: the same logits."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from nanoserve import Engine, EngineConfig, RequestOutput, SamplingParams, StepOutput
from nanoserve.model_runner import ModelRunner

TOLERANCE = 1e-4
FULL = SamplingParams(max_tokens=9, ignore_eos=True)


def prompts_of(lengths: list[int], seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(97) for _ in range(length)] for length in lengths]


def alike(lengths: list[int]) -> list[list[int]]:
    """Prompts that begin with the same 40 tokens."""
    stem = prompts_of([40], seed=5)[0]
    return [[*stem, *tail] for tail in prompts_of(lengths, seed=6)]


# ---- against transformers, on every path ------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 3, 16, 31])
@pytest.mark.usefixtures("every_path")
def test_logits_agree_with_transformers_at_any_budget(
    budget: int, reference: Any, run_requests: Any
):
    run = run_requests(
        reference.folder,
        prompts_of([1, 40, 17, 5, 33]),
        FULL,
        max_slots=3,
        block_size=5,
        max_batch_tokens=budget,
    )
    assert max(sum(row[2] for row in step) for step in run.runner.passes) <= budget
    assert any(row[1] > 0 and row[3] for step in run.runner.passes for row in step)
    assert all(len(output.token_ids) == 9 for output in run.outputs.values())
    assert run.worst_logit(reference) < TOLERANCE


@pytest.mark.usefixtures("every_path")
def test_logits_agree_at_far_positions_through_pieces(reference: Any, run_requests: Any):
    run = run_requests(
        reference.folder,
        prompts_of([240, 250]),
        SamplingParams(max_tokens=16),
        max_slots=2,
        block_size=7,
        max_batch_tokens=50,
    )
    longest = [len(o.prompt_token_ids) + len(o.token_ids) for o in run.outputs.values()]
    assert longest == [256, 256]
    assert run.worst_logit(reference) < TOLERANCE


@pytest.mark.parametrize("slots", [1, 3, 5])
@pytest.mark.usefixtures("every_path")
def test_logits_agree_with_a_prefix_from_the_cache(slots: int, reference: Any, run_requests: Any):
    run = run_requests(
        reference.folder,
        alike([3, 9, 1, 30, 3, 7]),
        FULL,
        max_slots=slots,
        block_size=4,
        max_batch_tokens=50,
        prefix_cache=True,
    )
    assert sum(output.cached_tokens for output in run.outputs.values()) >= 40
    assert run.worst_logit(reference) < TOLERANCE


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.usefixtures("every_path")
def test_logits_agree_when_preempted_in_a_tiny_cache_and_in_the_middle_of_a_prompt(
    prefix_cache: bool, reference: Any, run_requests: Any
):
    run = run_requests(
        reference.folder,
        prompts_of([8, 9, 30, 7, 8]),
        [SamplingParams(max_tokens=n, ignore_eos=True) for n in (20, 20, 4, 20, 20)],
        max_slots=5,
        block_size=4,
        kv_pool_tokens=64,
        max_batch_tokens=6,
        prefix_cache=prefix_cache,
    )
    assert any(len(output.timings.holds) > 1 for output in run.outputs.values())
    assert [len(run.outputs[str(i)].token_ids) for i in range(5)] == [20, 20, 4, 20, 20]
    assert run.worst_logit(reference) < TOLERANCE


# ---- to the bit, on the kernels ---------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"max_batch_tokens": 7}, {"prefix_cache": True}], ids=str)
@pytest.mark.usefixtures("on_kernels")
def test_on_the_kernels_cut_or_cached_logits_have_the_same_bits(
    settings: dict[str, Any], reference: Any, run_requests: Any
):
    prompts = alike([3, 9, 1, 30])
    common = {"max_slots": 2, "block_size": 4}
    plain = run_requests(reference.folder, prompts, FULL, **common)
    other = run_requests(reference.folder, prompts, FULL, **common, **settings)
    assert other.runner.seen.keys() == plain.runner.seen.keys()
    for key, logits in plain.runner.seen.items():
        assert torch.equal(other.runner.seen[key], logits)


# ---- the engine -------------------------------------------------------------------------------

TINY: dict[str, Any] = {
    "model": "synthetic:tiny-llama",
    "max_model_len": 128,
    "max_slots": 4,
    "block_size": 8,
}


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(EngineConfig(**TINY))


def engine_of(runner: ModelRunner, **settings: Any) -> Engine:
    return Engine(EngineConfig(**TINY, **settings), runner=runner)


def finish(engine: Engine) -> tuple[dict[str, RequestOutput], list[StepOutput]]:
    outputs: dict[str, RequestOutput] = {}
    steps = []
    for _ in range(2000):
        if not engine.has_unfinished():
            return outputs, steps
        steps.append(engine.step())
        engine.check_integrity()
        outputs |= {output.request_id: output for output in steps[-1].outputs}
    raise AssertionError("the engine does not come to an end")


def answer(engine: Engine, prompt: list[int], new: int = 6) -> RequestOutput:
    engine.add_request("x", prompt, SamplingParams(max_tokens=new, ignore_eos=True))
    return finish(engine)[0]["x"]


def test_who_decodes_gets_a_token_in_every_step_while_a_long_prompt_comes_in(runner: ModelRunner):
    engine = engine_of(runner, max_batch_tokens=10)
    engine.add_request("short", [5, 6, 7], SamplingParams(max_tokens=20, ignore_eos=True))
    engine.step()
    engine.add_request("long", [9] * 60, SamplingParams(max_tokens=2, ignore_eos=True))
    assert engine.step().holders == 1, "the boundary"
    steps = [engine.step() for _ in range(7)]
    told = [[token.request_id for token in step.tokens] for step in steps]
    assert told == [["short"]] * 6 + [["short", "long"]]
    assert {(step.prefill_rows, step.decode_rows, step.holders) for step in steps} == {(1, 1, 2)}
    outputs, _ = finish(engine)
    stamps = outputs["long"].timings
    assert stamps.holds[0][0] == steps[0].start_ns
    assert stamps.first_token_ns == steps[-1].end_ns
    assert stamps.prefill_ns == steps[-1].end_ns - steps[0].start_ns


def test_abort_in_the_middle_of_a_prompt(runner: ModelRunner):
    engine = engine_of(runner, max_batch_tokens=10)
    engine.add_request("long", [9] * 60, SamplingParams(max_tokens=2))
    first, second = engine.step(), engine.step()
    assert first.tokens == second.tokens == ()
    engine.abort("long")
    engine.check_integrity()
    (output,) = engine.step().outputs
    assert (output.finish_reason, output.token_ids) == ("abort", [])
    assert output.timings.holds == ((first.start_ns, second.end_ns),)
    assert output.timings.first_token_ns is output.timings.prefill_ns is None
    assert not engine.has_unfinished()


def test_a_budget_below_the_slots_leaves_slots_empty_and_nobody_without_a_step(
    runner: ModelRunner,
):
    engine = engine_of(runner, max_batch_tokens=2)
    for name in "abcde":
        engine.add_request(name, [5, 6, 7], SamplingParams(max_tokens=4, ignore_eos=True))
    outputs, steps = finish(engine)
    assert max(step.holders for step in steps) == 2
    assert all(step.prefill_rows + step.decode_rows == step.holders for step in steps)
    assert len({tuple(output.token_ids) for output in outputs.values()}) == 1


def test_sampled_outputs_are_the_same_at_any_budget_and_with_the_prefix_cache(runner: ModelRunner):
    params = SamplingParams(max_tokens=12, temperature=1.1, seed=5, ignore_eos=True)
    outputs = []
    for settings in ({}, {"max_batch_tokens": 5}, {"prefix_cache": True}):
        engine = engine_of(runner, **settings)
        for index in range(5):
            engine.add_request(str(index), [7] * 20 + [index], params)
        ended, _ = finish(engine)
        outputs.append({name: output.token_ids for name, output in ended.items()})
    assert outputs[0] == outputs[1] == outputs[2]


def test_a_prompt_of_exactly_whole_blocks_that_is_wholly_cached_gives_the_same_answer(
    runner: ModelRunner,
):
    engine = engine_of(runner, prefix_cache=True)
    prompt = list(range(10, 34))
    first, again = answer(engine, prompt), answer(engine, prompt)
    assert (first.cached_tokens, again.cached_tokens) == (0, 16), "the last block is computed again"
    assert first.token_ids == again.token_ids
    longer = answer(engine, [*prompt, 3])
    assert longer.cached_tokens == 24
    assert longer.token_ids == answer(engine_of(runner), [*prompt, 3]).token_ids


def test_an_answer_is_the_beginning_of_the_next_turn(runner: ModelRunner):
    engine = engine_of(runner, prefix_cache=True)
    question = list(range(10, 20))
    said = answer(engine, question, new=15)
    turn = [*question, *said.token_ids, 40, 41]
    second = answer(engine, turn)
    assert second.cached_tokens == 24
    assert second.token_ids == answer(engine_of(runner), turn).token_ids


def test_preempted_it_hits_its_own_prefix_and_its_output_is_complete():
    tight = {**TINY, "kv_pool_tokens": 48, "max_slots": 3}
    prompts = [[index + 5] * 9 for index in range(3)]
    params = SamplingParams(max_tokens=14, ignore_eos=True)
    outputs = []
    for settings in (tight, {**tight, "prefix_cache": True}, TINY):
        engine = Engine(EngineConfig(**settings))
        for index, prompt in enumerate(prompts):
            engine.add_request(str(index), prompt, params)
        outputs.append(finish(engine)[0])
    for ended in outputs[:2]:
        assert any(len(output.timings.holds) > 1 for output in ended.values())
    for name, output in outputs[2].items():
        assert outputs[0][name].token_ids == outputs[1][name].token_ids == output.token_ids
    own = [output.cached_tokens for output in outputs[1].values()]
    assert own == [0, 0, 0], "what it finds of its own does not count"


def test_an_engine_without_the_prefix_cache_caches_nothing_and_says_so(runner: ModelRunner):
    engine = engine_of(runner)
    assert engine.describe().prefix_cache == "off"
    assert [answer(engine, [5] * 40).cached_tokens for _ in range(2)] == [0, 0]
    engine.add_request("refused", [])
    assert engine.step().outputs[0].cached_tokens is None
    about = engine_of(runner, prefix_cache=True, max_batch_tokens=99).describe()
    assert (about.prefix_cache, about.max_batch_tokens) == ("on", 99)
    assert f"-> {about.num_blocks} blocks of 8 tokens x " in about.kv_pool
