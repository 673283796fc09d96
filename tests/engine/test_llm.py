"""The offline door: outputs in the order of the prompts, whatever ends when."""

from __future__ import annotations

import time
from typing import Any

import pytest

from nanoserve import LLM, SamplingParams
from nanoserve.outputs import StepOutput


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("synthetic:tiny-llama", max_slots=2, max_model_len=64)


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM):
    prompts = [[5, 6], [], [7] * 20, [8], [300]]
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (9, 5, 3, 1, 5)]
    outputs = llm.generate(prompts, params)
    assert [len(output.token_ids) for output in outputs] == [9, 0, 3, 1, 0]
    assert [output.finish_reason.value for output in outputs] == [
        "length",
        "error",
        "length",
        "length",
        "error",
    ]
    alone = llm.generate([[7] * 20], params[2])
    assert outputs[2].token_ids == alone[0].token_ids


def test_one_setting_serves_all_prompts_and_greedy_is_the_default(llm: LLM):
    default = llm.generate([[5], [6]])
    asked = llm.generate([[5], [6]], SamplingParams(max_tokens=16, temperature=0.0))
    assert [o.token_ids for o in default] == [o.token_ids for o in asked]


def test_no_prompts_give_no_outputs(llm: LLM):
    assert llm.generate([]) == []
    assert llm.generate([], []) == []


def test_settings_must_be_as_many_as_prompts(llm: LLM):
    with pytest.raises(ValueError, match="2 params for 1 prompts"):
        llm.generate([[5]], [SamplingParams(), SamplingParams()])


def test_a_single_text_is_not_a_list_of_prompts(llm: LLM):
    with pytest.raises(TypeError, match=r"wrap the text in one, \[text\]"):
        llm.generate("hello")


@pytest.mark.parametrize("prompts", [None, 5, {1: [5]}, b"hello", iter([[5]])])
def test_what_is_no_list_of_prompts_is_named(prompts: Any, llm: LLM):
    with pytest.raises(TypeError, match="must be a list of prompts, not "):
        llm.generate(prompts)


@pytest.mark.parametrize("params", [5, {"max_tokens": 5}, "greedy"])
def test_what_is_no_params_is_named(params: Any, llm: LLM):
    with pytest.raises(TypeError, match="must be SamplingParams or a list of them, not "):
        llm.generate([[5]], params)


def test_ids_that_were_not_wrapped_are_errors_and_not_prompts(llm: LLM):
    outputs: list[Any] = llm.generate([5, 6])  # type: ignore[list-item]
    assert all("a prompt is a string or a list" in output.error for output in outputs)


@pytest.mark.parametrize("error", [RuntimeError("it is gone"), KeyboardInterrupt("it is gone")])
def test_a_step_that_raises_leaves_nothing_behind(
    error: BaseException, llm: LLM, monkeypatch: pytest.MonkeyPatch
):
    def run(plan: object) -> object:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine._runner, "run", run)
        with pytest.raises(type(error), match="it is gone"):
            llm.generate([[5], [6], [7], [8]])
    llm.engine.check_integrity()
    left_over = llm.engine.step()
    assert (left_over.holders, left_over.waiting) == (0, 0)
    reasons = sorted(output.finish_reason.value for output in left_over.outputs)
    assert reasons == ["abort", "abort", "error", "error"]
    for stamps in (output.timings for output in left_over.outputs):
        for acquired, released in stamps.holds:
            assert stamps.submitted_ns <= acquired <= released <= stamps.finished_ns
    assert [len(o.token_ids) for o in llm.generate([[5]], SamplingParams(max_tokens=1))] == [1]
    assert not llm.engine.has_unfinished()


def test_requests_of_the_engine_run_along_and_their_outputs_come_with_its_next_step(llm: LLM):
    engine = llm.engine
    engine.add_request("short", [5, 6], SamplingParams(max_tokens=2, ignore_eos=True))
    engine.add_request("refused", [])
    (own,) = llm.generate([[7]], SamplingParams(max_tokens=9, ignore_eos=True))
    assert len(own.token_ids) == 9
    assert engine.has_unfinished()
    ended = {output.request_id: len(output.token_ids) for output in engine.step().outputs}
    assert ended == {"short": 2, "refused": 0}
    assert not engine.has_unfinished()


def test_outputs_of_others_survive_a_step_that_raises(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    run = llm.engine._runner.run

    def once(plan: Any) -> Any:
        if plan.decode_rows:
            raise RuntimeError("it is gone")
        return run(plan)

    llm.engine.add_request("refused", [])
    with monkeypatch.context() as patch:
        patch.setattr(llm.engine._runner, "run", once)
        with pytest.raises(RuntimeError, match="it is gone"):
            llm.generate([[5]], SamplingParams(ignore_eos=True))
    ended = [output.request_id for output in llm.engine.step().outputs]
    assert "refused" in ended
    assert len(ended) == 2
    assert not llm.engine.has_unfinished()


def test_nobody_waits_for_a_request_that_is_due_later(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    engine, step, steps = llm.engine, llm.engine.step, []

    def few_steps() -> StepOutput:
        steps.append(step())
        assert len(steps) < 20, "it waits"
        return steps[-1]

    engine.add_request("later", [5], arrival_ns=time.monotonic_ns() + 10**15)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "step", few_steps)
        (own,) = llm.generate([[7]], SamplingParams(max_tokens=4, ignore_eos=True))
    assert len(own.token_ids) == 4
    engine.abort("later")
    assert [output.request_id for output in engine.step().outputs] == ["later"]
    assert not engine.has_unfinished()
