"""Ctrl-C, at every line of a step: nothing is lost, and the books are in order."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import nanoserve
from nanoserve import Engine, EngineConfig, RequestOutput, SamplingParams, StepOutput
from nanoserve.interrupts import interrupts_wait
from nanoserve.model_runner import ModelRunner

SOURCES = str(Path(nanoserve.__file__).parent)


@pytest.fixture(autouse=True)
def python_hears_ctrl_c() -> Iterator[None]:
    """A shell that starts the tests in the background has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_waits_for_the_end_of_the_block():
    done = []

    def block() -> None:
        with interrupts_wait():
            press()
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_waits_no_longer():
    def block() -> None:
        with interrupts_wait():
            press()
            with pytest.raises(KeyboardInterrupt):
                press()

    with pytest.raises(KeyboardInterrupt):
        block()


def test_without_ctrl_c_nothing_happens_and_errors_pass():
    with interrupts_wait():
        pass
    with pytest.raises(ValueError, match="mine"), interrupts_wait():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_program_is_called_in_the_end_and_once():
    calls: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    with interrupts_wait():
        press()
        assert calls == []
    assert calls == [signal.SIGINT]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_where_python_does_not_handle_ctrl_c_it_is_left_alone(handler: Any):
    signal.signal(signal.SIGINT, handler)
    with interrupts_wait():
        assert signal.getsignal(signal.SIGINT) is handler


def test_another_thread_handles_no_signals_and_changes_nothing():
    seen: list[Any] = []

    def work() -> None:
        with interrupts_wait():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


# ---- in a step --------------------------------------------------------------------------------

CONFIG = EngineConfig(
    model="synthetic:tiny-llama",
    max_slots=3,
    max_model_len=32,
    block_size=4,
    kv_pool_tokens=40,
    max_batch_tokens=12,
    prefix_cache=True,
    kernel="torch",
)
REQUESTS = {
    "a": ([5, 6, 7, 8, 9], 7),
    "b": ([5, 6, 7, 8, 3, 4], 9),
    "c": ([11] * 17, 3),
    "d": ([5, 6, 7, 8, 9, 1], 2),
    "e": ([3], 9),
}


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(CONFIG)


class Story:
    """Some requests, run to their end by a caller who goes on after every exception."""

    def __init__(self, runner: ModelRunner):
        self.now = 0
        self.engine = Engine(CONFIG, runner=runner, clock=self.tick)
        self.steps: list[StepOutput] = []
        self.outputs: dict[str, RequestOutput] = {}
        for name, (prompt, new) in REQUESTS.items():
            self.engine.add_request(name, prompt, SamplingParams(max_tokens=new, ignore_eos=True))

    def tick(self) -> int:
        self.now += 1
        return self.now

    def step(self) -> None:
        step = self.engine.step()
        self.steps.append(step)
        for output in step.outputs:
            assert output.request_id not in self.outputs, "delivered twice"
            self.outputs[output.request_id] = output

    def finish(self) -> None:
        for _ in range(300):
            if not self.engine.has_unfinished():
                break
            self.step()
            self.engine.check_integrity()
        assert self.outputs.keys() == REQUESTS.keys(), "a request is lost"
        held = sum(step.holders * (step.end_ns - step.start_ns) for step in self.steps)
        assert held == sum(output.timings.served_ns for output in self.outputs.values())
        for name, output in self.outputs.items():
            told = [t.token_id for s in self.steps for t in s.tokens if t.request_id == name]
            assert told == output.token_ids


def is_on_its_way_back(frame: FrameType) -> bool:
    """Whether the step is written off as read, and returns.

    A tracer is told of a line there. A signal is not: Python looks for them at calls and at jumps
    back, and between this assignment and the return there is neither.
    """
    if frame.f_code is not Engine.step.__code__:
        return False
    return "step" in frame.f_locals and frame.f_locals["self"]._unread is None


class AtLine:
    """Does something at the n-th line of the engine's own code, but for the model's."""

    def __init__(self, number: int, what: Callable[[], None], only: tuple[str, ...] = ("",)):
        self.only = tuple(f"{name}.py" if name else "" for name in only)
        self.left = number
        self.what = what
        self.where = ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(SOURCES) or "models" in name or name.endswith("backend.py"):
            return None
        if not name.endswith(self.only) or is_on_its_way_back(frame):
            return self
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.where = f"{name}:{frame.f_lineno}"
                self.what()
        return self


def traced(story: Story, tracer: AtLine) -> bool:
    """Run one step under the tracer; whether it raised."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        story.step()
    except (KeyboardInterrupt, MemoryError):
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("step", [0, 1, 3, 6, 8])
def test_ctrl_c_at_any_line_of_a_step_loses_nothing(step: int, runner: ModelRunner):
    undisturbed = Story(runner)
    undisturbed.finish()
    assert any(len(o.timings.holds) > 1 for o in undisturbed.outputs.values()), "preemption"
    wanted = {name: output.token_ids for name, output in undisturbed.outputs.items()}
    line = 0
    pressed = True
    while pressed:
        line += 7  # a prime; the five steps between them meet most lines
        story = Story(runner)
        for _ in range(step):
            story.step()
        tracer = AtLine(line + step, press)
        raised = traced(story, tracer)
        pressed = bool(tracer.where)
        assert raised == pressed, tracer.where
        story.engine.check_integrity()
        story.finish()
        assert {name: o.token_ids for name, o in story.outputs.items()} == wanted, tracer.where
    assert line > 100


MOVERS = ("scheduler", "block_allocator", "prefix_cache", "request", "sampler")


def no_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize("step", [0, 1, 6])
def test_an_error_at_any_line_of_a_step_loses_no_request_and_no_block(
    step: int, runner: ModelRunner
):
    """Worse than Ctrl-C: nothing makes it wait. It comes in the middle of what moves blocks."""
    line = 0
    reached = True
    while reached:
        line += 5
        story = Story(runner)
        for _ in range(step):
            story.step()
        tracer = AtLine(line + step, no_memory, only=MOVERS)
        traced(story, tracer)
        reached = bool(tracer.where)
        story.engine.check_integrity()
        for _ in range(300):
            if not story.engine.has_unfinished():
                break
            story.step()
            story.engine.check_integrity()
        assert story.outputs.keys() == REQUESTS.keys(), tracer.where
        assert story.engine._allocator.num_free == 10
    assert line > 100


def test_the_interrupted_step_is_returned_by_the_next_call(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
):
    story = Story(runner)
    run = runner.run

    def run_and_press(plan: Any) -> Any:
        press()
        return run(plan)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", run_and_press)
        with pytest.raises(KeyboardInterrupt):
            story.step()
    stamp = story.now
    assert story.engine.has_unfinished()
    story.step()
    assert story.now == stamp, "nothing was run for it"
    assert [token.request_id for token in story.steps[0].tokens] == ["a", "b"]
    story.finish()


def test_ctrl_c_twice_breaks_the_step_off(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch):
    story = Story(runner)
    story.step()

    def run(plan: Any) -> Any:
        press()
        press()

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", run)
        with pytest.raises(KeyboardInterrupt):
            story.step()
    story.engine.check_integrity()
    story.finish()
    reasons = {name: output.finish_reason.value for name, output in story.outputs.items()}
    assert set(reasons.values()) == {"error", "length"}
    assert "KeyboardInterrupt" in str(story.outputs["a"].error)
