"""The engine's door: what goes wrong stays with the request it belongs to, and all is delivered."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from nanoserve import Engine, EngineConfig, RequestOutput, SamplingParams
from nanoserve.model_runner import ModelRunner
from nanoserve.scheduler import SchedulerOutput

TINY = "synthetic:tiny-llama"


@pytest.fixture(scope="module")
def config() -> EngineConfig:
    return EngineConfig(model=TINY, max_slots=4, max_model_len=64, block_size=8)


@pytest.fixture(scope="module")
def runner(config: EngineConfig) -> ModelRunner:
    return ModelRunner(config)


@pytest.fixture
def engine(config: EngineConfig, runner: ModelRunner) -> Engine:
    return Engine(config, runner=runner)


def finish(engine: Engine) -> dict[str, RequestOutput]:
    outputs: dict[str, RequestOutput] = {}
    for _ in range(2000):
        if not engine.has_unfinished():
            return outputs
        step = engine.step()
        engine.check_integrity()
        for output in step.outputs:
            assert output.request_id not in outputs
            outputs[output.request_id] = output
    raise AssertionError("the engine does not come to an end")


def prompt_of(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 256) for _ in range(length)]


def greedy(engine: Engine, prompt: list[int], tokens: int) -> list[int]:
    engine.add_request("greedy", prompt, SamplingParams(max_tokens=tokens, ignore_eos=True))
    return finish(engine)["greedy"].token_ids


BAD_REQUESTS: dict[str, tuple[Any, Any, str]] = {
    "empty prompt": ([], SamplingParams(), "the prompt is empty"),
    "no new tokens": ([5], SamplingParams(max_tokens=0), "max_tokens must be .* not 0"),
    "id beyond the vocabulary": ([5, 256], SamplingParams(), "token 1 is 256, outside .* 256 ids"),
    "negative id": ([-1], SamplingParams(), "token 0 is -1, outside"),
    "an id that is no integer": ([5, 2.5], SamplingParams(), "token 1 is 2.5, a float"),
    "an id that is a bool": ([True], SamplingParams(), "token 0 is True, a bool"),
    "no prompt at all": (None, SamplingParams(), "a prompt is a string or .* not NoneType"),
    "bytes": (b"abc", SamplingParams(), "a prompt is a string or .* not bytes"),
    "a set": ({5}, SamplingParams(), "a prompt is a string or .* not set"),
    "a number": (7, SamplingParams(), "a prompt is a string or .* not int"),
    "text without a tokenizer": ("hello", SamplingParams(), "no tokenizer: give ids"),
    "as long as the model": ([5] * 64, SamplingParams(), "64 tokens and leaves no room"),
    "longer than the model": ([5] * 65, SamplingParams(), "65 tokens and leaves no room"),
    "bad sampling": ([5], SamplingParams(temperature=-1, top_p=2), "temperature .*; top_p"),
    "params of another kind": ([5], {"max_tokens": 3}, "params must be SamplingParams, not dict"),
}


@pytest.mark.parametrize("kind", BAD_REQUESTS)
def test_a_bad_request_ends_in_error_and_the_rest_goes_on(engine: Engine, kind: str):
    prompt, params, message = BAD_REQUESTS[kind]
    good = SamplingParams(max_tokens=6, ignore_eos=True)
    engine.add_request("before", prompt_of(5), good)
    engine.add_request("bad", prompt, params)
    engine.add_request("after", prompt_of(5), good)
    outputs = finish(engine)
    bad = outputs["bad"]
    assert bad.finish_reason == "error"
    assert bad.error is not None
    with pytest.raises(ValueError, match=message):
        raise ValueError(bad.error)
    assert (bad.token_ids, bad.prompt_token_ids, bad.text) == ([], [], None)
    assert bad.timings.holds == ()
    assert bad.timings.first_token_ns is None
    assert bad.timings.arrival_ns <= bad.timings.finished_ns
    for name in ("before", "after"):
        assert outputs[name].error is None
        assert outputs[name].finish_reason == "length"
        assert len(outputs[name].token_ids) == 6


def test_a_refusal_alone_is_delivered_by_a_step_that_takes_no_time(engine: Engine):
    engine.add_request("bad", [], SamplingParams())
    assert engine.has_unfinished()
    step = engine.step()
    assert [output.request_id for output in step.outputs] == ["bad"]
    assert (step.holders, step.prefill_rows, step.decode_rows) == (0, 0, 0)
    assert step.start_ns == step.end_ns
    assert not engine.has_unfinished()


def test_of_two_requests_with_one_id_the_first_goes_on(engine: Engine):
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    engine.add_request("a", prompt_of(4), params)
    engine.add_request("a", prompt_of(9), params)
    first_step = engine.step()
    (refused,) = first_step.outputs
    assert refused.error == "request id 'a' is already in use"
    outputs = finish(engine)
    assert outputs["a"].finish_reason == "length"
    assert outputs["a"].prompt_token_ids == prompt_of(4)
    engine.add_request("a", prompt_of(4), params)
    assert finish(engine)["a"].token_ids == outputs["a"].token_ids, "the id is free again"


def test_an_id_that_is_no_string_or_a_time_that_is_no_integer_is_raised(engine: Engine):
    with pytest.raises(TypeError, match="request_id must be a string, not 3"):
        engine.add_request(3, [5])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"arrival_ns must be an integer .* not 1\.5"):
        engine.add_request("a", [5], arrival_ns=1.5)  # type: ignore[arg-type]
    assert not engine.has_unfinished()


def test_output_ends_at_the_models_length(engine: Engine):
    engine.add_request("a", prompt_of(60), SamplingParams(max_tokens=50, ignore_eos=True))
    engine.add_request("b", prompt_of(63), SamplingParams(max_tokens=50, ignore_eos=True))
    outputs = finish(engine)
    assert [len(outputs[name].token_ids) for name in "ab"] == [4, 1]
    assert {output.finish_reason.value for output in outputs.values()} == {"length"}


def tiny_pool(tokens: int, **settings: Any) -> Engine:
    values = {"model": TINY, "max_slots": 4, "block_size": 4, "max_model_len": 64, **settings}
    return Engine(EngineConfig(kv_pool_tokens=tokens, **values))


def test_a_prompt_that_fills_the_pool_exactly_gives_its_one_token():
    engine = tiny_pool(16)
    engine.add_request("fits", prompt_of(16), SamplingParams(max_tokens=1))
    engine.add_request("never", prompt_of(16), SamplingParams(max_tokens=2))
    outputs = finish(engine)
    assert len(outputs["fits"].token_ids) == 1
    error = outputs["never"].error
    assert error is not None
    assert "can never fit: 16 prompt tokens and up to 2 new ones need 17 tokens" in error
    assert "holds 16: shorten it or raise kv_pool_tokens" in error


def test_a_prompt_of_exactly_whole_blocks_decodes_on(engine: Engine):
    """Its first new token needs a block of its own."""
    alone = greedy(engine, prompt_of(16), 10)
    small = tiny_pool(28, max_slots=1)
    assert greedy(small, prompt_of(16), 10) == alone


def test_an_output_that_fills_the_pool_to_the_last_token_is_complete(engine: Engine):
    """10 + 7 tokens, of which the last is never stored: 16 slots."""
    assert greedy(tiny_pool(16), prompt_of(10), 7) == greedy(engine, prompt_of(10), 7)


@pytest.mark.parametrize("block_size", [1, 3, 4, 8])
@pytest.mark.parametrize("pool", [24, 30, 48])
def test_recompute_in_a_tiny_pool_gives_complete_and_identical_outputs(
    engine: Engine, pool: int, block_size: int
):
    prompts = [prompt_of(length, seed=length) for length in (5, 9, 7, 11, 6, 8)]
    alone = [greedy(engine, prompt, 12) for prompt in prompts]
    small = tiny_pool(pool, block_size=block_size)
    for index, prompt in enumerate(prompts):
        params = SamplingParams(max_tokens=12, ignore_eos=True)
        small.add_request(str(index), prompt, params)
    outputs = finish(small)
    assert [outputs[str(i)].token_ids for i in range(6)] == alone
    if pool == 24:
        assert any(len(output.timings.holds) > 1 for output in outputs.values())


def test_sampled_outputs_survive_preemption_unchanged(engine: Engine):
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=5, ignore_eos=True)
    prompts = [prompt_of(8, seed=index) for index in range(4)]
    small = tiny_pool(28)
    for name, where in (("wide", engine), ("small", small)):
        for index, prompt in enumerate(prompts):
            where.add_request(f"{name}-{index}", prompt, params)
    wide, narrow = finish(engine), finish(small)
    assert any(len(output.timings.holds) > 1 for output in narrow.values())
    for index in range(4):
        assert wide[f"wide-{index}"].token_ids == narrow[f"small-{index}"].token_ids


def test_the_same_prompt_twice_in_one_step_gives_the_same_output(engine: Engine):
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    for name in "ab":
        engine.add_request(name, prompt_of(8), params)
    outputs = finish(engine)
    assert outputs["a"].token_ids == outputs["b"].token_ids == greedy(engine, prompt_of(8), 8)
    assert outputs["a"].timings.token_ns == outputs["b"].timings.token_ns


def test_a_seed_gives_the_same_output_in_any_company(engine: Engine):
    mine = SamplingParams(max_tokens=12, temperature=1.2, top_k=50, seed=42, ignore_eos=True)
    engine.add_request("mine", prompt_of(6), mine)
    alone = finish(engine)["mine"].token_ids
    engine.add_request("unseeded", prompt_of(9), SamplingParams(temperature=1.0, max_tokens=9))
    engine.add_request("greedy", prompt_of(2), SamplingParams(max_tokens=5, ignore_eos=True))
    engine.step()
    engine.add_request("mine", prompt_of(6), mine)
    engine.add_request("twin", prompt_of(6), mine)
    outputs = finish(engine)
    assert outputs["mine"].token_ids == outputs["twin"].token_ids == alone
    assert outputs["greedy"].token_ids == greedy(engine, prompt_of(2), 5)


def test_requests_without_a_seed_differ(engine: Engine):
    for index in range(8):
        params = SamplingParams(max_tokens=10, temperature=1.5, ignore_eos=True)
        engine.add_request(str(index), prompt_of(5), params)
    assert len({tuple(output.token_ids) for output in finish(engine).values()}) == 8


class ScriptedRunner(ModelRunner):
    """The tiny model with another set of end-of-sequence tokens, whose words are given."""

    def __init__(self, config: EngineConfig, eos: set[int], script: list[int]):
        super().__init__(config)
        self.model_config = dataclasses.replace(self.model_config, eos_token_ids=frozenset(eos))
        self._script = script

    def run(self, plan: SchedulerOutput) -> Tensor:
        logits = torch.zeros(len(plan.rows), 256)
        for row, line in zip(plan.rows, logits, strict=True):
            line[self._script[len(row.request.output_token_ids)]] = 1.0
        return logits


@pytest.mark.parametrize(
    ("params", "tokens", "reason"),
    [
        ({}, [7, 9], "stop"),
        ({"ignore_eos": True}, [7, 9, 5, 8, 6, 4], "length"),
        ({"ignore_eos": True, "stop_token_ids": (8,)}, [7, 9, 5, 8], "stop"),
        ({"stop_token_ids": (7,)}, [7], "stop"),
        ({"ignore_eos": True, "stop_token_ids": (9,)}, [7, 9], "stop"),
        ({"max_tokens": 2}, [7, 9], "stop"),
        ({"max_tokens": 1}, [7], "length"),
    ],
)
def test_any_token_of_the_eos_set_ends_the_output(
    config: EngineConfig, params: dict[str, Any], tokens: list[int], reason: str
):
    """The model says 7 9 5 8 6 4, and both 9 and 5 end a sequence."""
    runner = ScriptedRunner(config, {5, 9}, [7, 9, 5, 8, 6, 4])
    engine = Engine(config, runner=runner)
    engine.add_request("a", [1, 5, 9], SamplingParams(**{"max_tokens": 6, **params}))
    output = finish(engine)["a"]
    assert (output.token_ids, output.finish_reason.value) == (tokens, reason)
    assert output.prompt_token_ids == [1, 5, 9], "an EOS in the prompt ends nothing"


def test_abort_while_waiting_running_and_preempted():
    engine = tiny_pool(20, max_slots=2)
    params = SamplingParams(max_tokens=10, ignore_eos=True)
    for name in ("old", "young", "queued"):
        engine.add_request(name, prompt_of(7), params)
    engine.abort("queued")
    steps = [engine.step()]
    assert [output.request_id for output in steps[0].outputs] == ["queued"]
    while steps[-1].holders == 2:
        steps.append(engine.step())
    engine.abort("young")
    steps.append(engine.step())
    engine.check_integrity()
    (preempted,) = steps[-1].outputs
    assert (preempted.request_id, preempted.finish_reason) == ("young", "abort")
    assert len(preempted.token_ids) == len(steps) - 2
    assert preempted.timings.holds == ((steps[0].start_ns, steps[-2].start_ns),)
    engine.abort("old")
    (running,) = engine.step().outputs
    assert (running.request_id, running.finish_reason, running.error) == ("old", "abort", None)
    assert running.timings.holds[-1][1] == running.timings.finished_ns == steps[-1].end_ns
    assert not engine.has_unfinished()


def test_aborting_what_is_unknown_or_over_does_nothing(engine: Engine):
    engine.abort("nobody")
    assert not engine.has_unfinished()
    engine.add_request("a", prompt_of(3), SamplingParams(max_tokens=1))
    assert finish(engine)["a"].finish_reason == "length"
    engine.abort("a")
    assert not engine.has_unfinished()


def test_the_first_step_admits_up_to_the_slots_and_a_free_slot_is_filled_at_once(engine: Engine):
    for index in range(6):
        params = SamplingParams(max_tokens=2 + index, ignore_eos=True)
        engine.add_request(str(index), prompt_of(3), params)
    first, second, third = (engine.step() for _ in range(3))
    assert (first.prefill_rows, first.decode_rows, first.holders, first.waiting) == (4, 0, 4, 2)
    assert (second.prefill_rows, second.decode_rows, second.holders) == (0, 4, 4)
    assert (third.prefill_rows, third.decode_rows, third.waiting) == (1, 3, 1)
    assert third.start_ns == second.end_ns
    finish(engine)


def test_tokens_of_the_steps_are_the_tokens_of_the_outputs(engine: Engine):
    for index in range(5):
        engine.add_request(str(index), prompt_of(3 + index), SamplingParams(max_tokens=4 + index))
    tokens: dict[str, list[int]] = {}
    outputs: dict[str, RequestOutput] = {}
    while engine.has_unfinished():
        step = engine.step()
        for token in step.tokens:
            tokens.setdefault(token.request_id, []).append(token.token_id)
        outputs |= {output.request_id: output for output in step.outputs}
    assert {name: output.token_ids for name, output in outputs.items()} == tokens


def test_one_stamp_ends_a_step_its_tokens_and_the_holds_that_end_in_it(engine: Engine):
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    engine.add_request("a", prompt_of(4), params, arrival_ns=0)
    engine.add_request("b", prompt_of(9), params)
    steps = [engine.step() for _ in range(3)]
    outputs = {output.request_id: output for output in steps[-1].outputs}
    for output in outputs.values():
        stamps = output.timings
        assert stamps.token_ns == tuple(step.end_ns for step in steps)
        assert stamps.holds == ((steps[0].start_ns, steps[2].end_ns),)
        assert stamps.finished_ns == steps[2].end_ns
        assert stamps.prefill_ns == steps[0].end_ns - steps[0].start_ns
        assert stamps.submitted_ns <= steps[0].start_ns
    assert outputs["a"].timings.arrival_ns == 0
    assert outputs["b"].timings.arrival_ns == outputs["b"].timings.submitted_ns
    assert steps[0].end_ns == steps[1].start_ns
    assert steps[1].end_ns == steps[2].start_ns


@pytest.mark.parametrize("due_ns", [None, 0], ids=["now", "long ago"])
def test_a_newcomer_between_two_steps_is_admitted_by_a_boundary_not_before_it_came(
    due_ns: int | None, engine: Engine
):
    engine.add_request("old", prompt_of(4), SamplingParams(max_tokens=9, ignore_eos=True))
    before = engine.step()
    engine.add_request("new", prompt_of(4), SamplingParams(max_tokens=1), arrival_ns=due_ns)
    boundary, after = engine.step(), engine.step()
    assert boundary.start_ns == before.end_ns
    assert (boundary.holders, boundary.prefill_rows, boundary.decode_rows) == (1, 0, 0)
    assert (after.holders, after.prefill_rows, after.decode_rows) == (2, 1, 1)
    assert after.start_ns == boundary.end_ns
    new = after.outputs[0].timings
    assert new.arrival_ns <= new.submitted_ns <= new.holds[0][0] == after.start_ns
    finish(engine)


def test_a_request_due_later_waits_for_its_time(config: EngineConfig, runner: ModelRunner):
    now = [100]
    engine = Engine(config, runner=runner, clock=lambda: now[0])
    engine.add_request("a", prompt_of(3), SamplingParams(max_tokens=1), arrival_ns=200)
    early = engine.step()
    assert (early.holders, early.waiting, early.start_ns, early.end_ns) == (0, 1, 100, 100)
    now[0] = 250
    (output,) = engine.step().outputs
    assert output.timings.holds == ((250, 250),)
    assert (output.timings.arrival_ns, output.timings.submitted_ns) == (200, 100)


class FailingRunner(ModelRunner):
    """The tiny model, which fails when it is told to."""

    error: BaseException | None = None

    def run(self, plan: SchedulerOutput) -> Tensor:
        if self.error is not None:
            raise self.error
        return super().run(plan)


@pytest.mark.parametrize("error", [MemoryError("no more"), KeyboardInterrupt("no more")])
def test_a_step_that_fails_loses_nothing(error: BaseException, config: EngineConfig):
    runner = FailingRunner(config)
    engine = Engine(config, runner=runner)
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    for index in range(6):
        engine.add_request(str(index), prompt_of(4), params)
    done = engine.step()
    runner.error = error
    with pytest.raises(type(error), match="no more"):
        engine.step()
    engine.check_integrity()
    runner.error = None
    outputs = finish(engine)
    assert sorted(outputs) == ["0", "1", "2", "3", "4", "5"]
    for index in range(4):
        failed = outputs[str(index)]
        assert failed.finish_reason == "error"
        assert failed.error == f"the step failed: {error!r}"
        assert len(failed.token_ids) == 1
        assert failed.timings.holds == ((done.start_ns, done.end_ns),)
    assert all(len(outputs[name].token_ids) == 5 for name in ("4", "5"))


class NotFiniteRunner(ModelRunner):
    """The tiny model, with one request whose logits overflow."""

    def run(self, plan: SchedulerOutput) -> Tensor:
        logits = super().run(plan).clone()
        for row, line in zip(plan.rows, logits, strict=True):
            if row.request.request_id == "overflows" and not row.is_prefill:
                line.fill_(float("nan"))
        return logits


def test_logits_that_are_no_numbers_end_that_request_alone(config: EngineConfig):
    engine = Engine(config, runner=NotFiniteRunner(config))
    for name in ("good", "overflows", "fine"):
        engine.add_request(name, prompt_of(4), SamplingParams(max_tokens=4, ignore_eos=True))
    outputs = finish(engine)
    assert outputs["overflows"].finish_reason == "error"
    assert "not finite" in str(outputs["overflows"].error)
    assert len(outputs["overflows"].token_ids) == 1
    assert outputs["good"].token_ids == outputs["fine"].token_ids
    assert len(outputs["good"].token_ids) == 4


def test_an_engine_says_what_it_is(engine: Engine):
    about = engine.describe()
    assert about.kernel_path == engine.kernel_path
    assert about.kernel_path.partition(":")[0] in ("cpp", "torch")
    assert about.weights_digest == engine.weights_digest
    assert about.weights_digest.startswith("sha256:")
    assert (about.device, about.dtype, about.prefix_cache) == ("cpu", "float32", "off")
    assert about.matmul_precision == torch.get_float32_matmul_precision()
    assert about.threads == torch.get_num_threads()
    assert (about.max_slots, about.max_model_len) == (4, 64)
    assert (about.block_size, about.num_blocks) == (8, 32)
    assert about.torch_version == torch.__version__
    assert about.model == TINY
