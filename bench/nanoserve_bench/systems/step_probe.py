"""Run as a process of its own by `perf.measure`: what the engine's decode steps are made of.

It runs one workload through the engine, as `nanoserve` does, and times the forward pass from inside
every step: the one call into the compiled kernels, or the torch model. Whatever else a step takes
(scheduling, flattening the batch, sampling, bookkeeping) is the time outside the model.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoserve import Engine, EngineConfig, SamplingParams, StepOutput
from nanoserve.kernels.library import KernelLibrary
from nanoserve.model_runner import ModelRunner
from nanoserve.models.decoder import Decoder
from nanoserve_bench.meters import Meter, peak_resident_bytes
from nanoserve_bench.probes import StepsAnswer, StepsOrder, carry_out

_BLOCK_SIZE = 16


@dataclass
class Watch:
    """Time spent in what it watches."""

    total_ns: int = 0

    def over(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time added up."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start_ns = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self.total_ns += time.perf_counter_ns() - start_ns

        return timed


@contextmanager
def watched(*places: tuple[Any, str]) -> Iterator[Watch]:
    """Watch attributes of classes or modules, all together, and put them back."""
    watch = Watch()
    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(replaced(owner, name, watch.over(getattr(owner, name))))
        yield watch


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value in an attribute of a class or a module, and then the old one again."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


FORWARD = ((KernelLibrary, "step"), (Decoder, "forward"))
"""The forward pass, on either path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FullSteps:
    """The decode steps of a workload in which every slot advanced and no prompt was computed."""

    count: int
    steps_ns: int
    model_ns: int


def run(engine: Engine, prompts: Sequence[Sequence[int]], *, slots: int, tokens: int) -> FullSteps:
    """Run a workload to its end.

    Raises:
        SystemExit: A request failed, or no step was full.
    """
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), list(prompt), params)
    count = steps_ns = model_ns = 0
    with watched(*FORWARD) as model:
        while engine.has_unfinished():
            before_ns = model.total_ns
            step = engine.step()
            _refuse_failures(step)
            if step.decode_rows == slots and not step.prefill_rows:
                count += 1
                steps_ns += step.end_ns - step.start_ns
                model_ns += model.total_ns - before_ns
    if not count:
        sys.exit(f"no step advanced all {slots} slots: give more requests than slots")
    return FullSteps(count=count, steps_ns=steps_ns, model_ns=model_ns)


def _refuse_failures(step: StepOutput) -> None:
    for output in step.outputs:
        if output.error is not None:
            sys.exit(f"request {output.request_id} failed: {output.error}")


def build(
    model: str, *, slots: int, longest: int, kernel: str = "auto"
) -> tuple[Engine, ModelRunner]:
    """An engine whose pool has whole blocks for every slot, so that nobody is preempted."""
    config = EngineConfig(
        model=model,
        max_slots=slots,
        max_model_len=longest,
        block_size=_BLOCK_SIZE,
        kv_pool_tokens=slots * -(-longest // _BLOCK_SIZE) * _BLOCK_SIZE,
        kernel=kernel,
    )
    runner = ModelRunner(config)
    return Engine(config, runner=runner), runner


def pool_bytes(engine: Engine, runner: ModelRunner) -> int:
    """Keys and values of every block: 2 x layers x KV heads x head_dim x tokens x word."""
    shape, tokens = runner.model_config, runner.num_blocks * _BLOCK_SIZE
    words = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * tokens
    return words * engine.config.torch_dtype.itemsize


def weight_bytes(folder: str) -> int:
    """The weights once, as the files hold them in float32."""
    return sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))


def probe(order: StepsOrder) -> StepsAnswer:
    """Time the full steps of a workload.

    Raises:
        SystemExit: A request failed, or no step was full.
    """
    slots, tokens = order.slots, order.max_tokens
    engine, runner = build(order.model_path, slots=slots, longest=order.longest)
    run(engine, order.warmup, slots=min(slots, len(order.warmup)), tokens=3)
    loaded_bytes = peak_resident_bytes()
    started_ns = time.monotonic_ns()
    meter = Meter("cpu")
    full = run(engine, order.prompts, slots=slots, tokens=tokens)
    reading = meter.read()
    peaks = [loaded_bytes, reading.peak_memory_bytes]
    known = [peak for peak in peaks if peak is not None]
    return StepsAnswer(
        kernel_path=engine.kernel_path,
        steps=full.count,
        steps_ns=full.steps_ns,
        model_ns=full.model_ns,
        peak_memory_bytes=max(known) if len(known) == len(peaks) else None,
        weight_bytes=weight_bytes(order.model_path),
        pool_bytes=pool_bytes(engine, runner),
        wall_ns=time.monotonic_ns() - started_ns,
        other_cpu_ns=reading.other_cpu_ns,
        steal_ns=reading.steal_ns,
    )


if __name__ == "__main__":
    carry_out(StepsOrder, probe)
