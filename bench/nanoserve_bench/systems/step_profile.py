"""Run as a process of its own by `perf.profiling`: what one way to compute a decode step spends.

Everything on a CPU happens in the caller's thread or is waited for there, so a stopwatch around a
call is its time, and costs under a microsecond where a tracing profiler costs more than the small
operations it is to find. In torch the stopwatches stand around every product with weights, around
attention, the forward pass, the runner and the sampler. The compiled step is one call that cannot
be looked into: its products are run again by themselves, matrix after matrix, so that the weights
come from memory as they do in a step; attention is what a step grows by with its context; what is
left of the call is norms, rotation, waiting at barriers.

After each step a buffer as large as the weights is read. The rate of a machine's memory wanders,
and a step is to be held against what memory did at that moment.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import nanoserve.engine
import nanoserve.torch_backend
from nanoserve import Engine, EngineConfig, SamplingParams
from nanoserve.attention import paged_attention
from nanoserve.kernels.backend import CompiledBackend
from nanoserve.linear import Linear, LinearKernel, OneDnnKernel, PlainKernel
from nanoserve.model_runner import ModelRunner
from nanoserve.models.decoder import Decoder
from nanoserve_bench.meters import Meter
from nanoserve_bench.perf.profile import ONE_READ
from nanoserve_bench.probes import Phase, ProfileAnswer, ProfiledRows, ProfileOrder, carry_out
from nanoserve_bench.systems.ceilings import reads
from nanoserve_bench.systems.step_probe import FORWARD, Watch, replaced, watched

KERNELS: dict[str, Callable[[], LinearKernel]] = {"plain": PlainKernel, "packed": OneDnnKernel}
_BLOCK_SIZE = 16
_SHORT_TOKENS = 8
"""Output tokens of a request whose context is next to nothing."""
_TOLERANCE = 1e-3
"""Of logits of one step computed in two ways."""

Samples = dict[str, list[int]]


class WatchedKernel:
    """Another kernel, with a stopwatch around every product."""

    def __init__(self, kernel: LinearKernel, watch: Watch) -> None:
        self.path = kernel.path
        self._kernel = kernel
        self._watch = watch

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Pack as the other one does."""
        return self._watch.over(self._kernel.pack(weight, bias))


class Bench:
    """One model, loaded one way."""

    def __init__(self, asked: ProfileOrder) -> None:
        self.asked = asked
        self.linears = Watch()
        longest = asked.prompt_tokens + asked.new_tokens
        most = max(asked.rows)
        self.config = EngineConfig(
            model=asked.model_path,
            max_slots=most,
            max_model_len=longest,
            block_size=_BLOCK_SIZE,
            kv_pool_tokens=most * -(-longest // _BLOCK_SIZE) * _BLOCK_SIZE,
            kernel="auto" if asked.kernel == "compiled" else "torch",
        )
        with ExitStack() as stack:
            if asked.kernel != "compiled":
                stack.enter_context(self._chosen_kernel())
            self.runner = ModelRunner(self.config)
        self._reads = reads("cpu", asked.weight_bytes)

    def _chosen_kernel(self) -> Any:
        kernel = KERNELS[self.asked.kernel]()
        if not self.asked.compile:
            kernel = WatchedKernel(kernel, self.linears)
        return replaced(nanoserve.torch_backend, "choose_kernel", lambda *_, **__: kernel)

    def steps(self, rows: int, *, prompt_tokens: int, new_tokens: int) -> Samples:
        """Full decode steps of one batch, phase by phase.

        Raises:
            SystemExit: A request failed.
        """
        engine = Engine(replace(self.config, max_slots=rows), runner=self.runner)
        params = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        vocabulary = self.runner.model_config.vocab_size
        for row in range(rows):
            prompt = [(7 * row + 13 * i + 5) % vocabulary for i in range(prompt_tokens)]
            engine.add_request(str(row), prompt, params)
        samples: Samples = defaultdict(list)
        with ExitStack() as stack:
            watches = {
                "model": stack.enter_context(watched(*FORWARD)),
                "attention": stack.enter_context(
                    watched((nanoserve.torch_backend, "paged_attention"))
                ),
                "runner": stack.enter_context(watched((ModelRunner, "run"))),
                "sampler": stack.enter_context(watched((nanoserve.engine, "sample"))),
                "linears": self.linears,
            }
            while engine.has_unfinished():
                before = {name: watch.total_ns for name, watch in watches.items()}
                # Not by the step's own stamps: it begins where the last one ended, before the read.
                start_ns = time.perf_counter_ns()
                step = engine.step()
                took_ns = time.perf_counter_ns() - start_ns
                for output in step.outputs:
                    if output.error is not None:
                        sys.exit(f"request {output.request_id} failed: {output.error}")
                if step.decode_rows == rows and not step.prefill_rows:
                    samples["step"].append(took_ns)
                    for name, watch in watches.items():
                        samples[name].append(watch.total_ns - before[name])
                    samples[ONE_READ].append(self._read_once())
        return samples

    def _read_once(self) -> int:
        """Read as many bytes as the weights have, the faster way: ns."""
        taken_ns = []
        for read in self._reads:
            start_ns = time.perf_counter_ns()
            read()
            taken_ns.append(time.perf_counter_ns() - start_ns)
        return min(taken_ns)


def engine_phases(bench: Bench) -> Iterator[tuple[int, Samples]]:
    """The phases of a step through the engine, for every number of rows."""
    asked = bench.asked
    for rows in asked.rows:
        bench.steps(rows, prompt_tokens=asked.prompt_tokens, new_tokens=4)
        samples: Samples = defaultdict(list)
        while len(samples["step"]) < asked.repetitions:
            part = bench.steps(rows, prompt_tokens=asked.prompt_tokens, new_tokens=asked.new_tokens)
            for name, values in part.items():
                samples[name] += values
        parts: Samples = {
            "step": samples["step"],
            "model": samples["model"],
            "batch assembly": _less(samples["runner"], samples["model"]),
            "sampler": samples["sampler"],
            "scheduler and bookkeeping": _less(
                samples["step"], samples["runner"], samples["sampler"]
            ),
            ONE_READ: samples[ONE_READ],
        }
        if asked.kernel == "compiled":
            parts |= compiled_parts(bench, rows, samples["model"])
        else:
            parts |= {
                "linears": samples["linears"],
                "attention": samples["attention"],
                "rest of the model": _less(
                    samples["model"], samples["linears"], samples["attention"]
                ),
            }
        yield rows, parts


def _less(whole: list[int], *parts: list[int]) -> list[int]:
    return [total - sum(rest) for total, *rest in zip(whole, *parts, strict=True)]


def compiled_parts(bench: Bench, rows: int, model: list[int]) -> Samples:
    """The compiled step, taken apart by experiment; see the module."""
    asked = bench.asked
    linears = linear_passes(bench.runner, rows, repetitions=asked.repetitions)
    short: list[int] = []
    while len(short) < asked.repetitions:
        short += bench.steps(rows, prompt_tokens=1, new_tokens=_SHORT_TOKENS)["model"]
    middle = asked.prompt_tokens + asked.new_tokens / 2
    brief = 1 + _SHORT_TOKENS / 2
    grown = (_median(model) - _median(short)) * middle / (middle - brief)
    attention = round(grown)
    rest = round(_median(model) - _median(linears) - attention)
    return {"linears": linears, "attention": [attention], "rest of the model": [rest]}


def linear_passes(runner: ModelRunner, rows: int, *, repetitions: int) -> list[int]:
    """Every matrix that a step reads, once and in order, by the kernel alone: ns a pass.

    Raises:
        SystemExit: This engine does not run on compiled kernels.
    """
    backend = runner._backend  # noqa: SLF001 - the packed weights are nobody else's business
    if not isinstance(backend, CompiledBackend):
        sys.exit(f"the engine runs on {runner.kernel_path}, not on compiled kernels")
    kernels, model = backend._kernels, backend._model  # noqa: SLF001
    table = None if model.embedding.panels == model.head.panels else model.embedding.panels
    matrices = [
        packed.matrix
        for packed in backend._packed  # noqa: SLF001
        if packed.matrix.panels != table
    ]
    widest = max(max(kernels.padded(m.outputs), kernels.padded(m.inputs)) for m in matrices) + 16
    x, y = torch.rand(rows, widest), torch.empty(rows, widest)
    passes = []
    for _ in range(repetitions + 1):
        start_ns = time.perf_counter_ns()
        for matrix in matrices:
            kernels.linear(matrix, x, y, epilogue=0)
        passes.append(time.perf_counter_ns() - start_ns)
    return passes[1:]


def _median(values: list[int]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2


def compiled_forward(bench: Bench) -> Iterator[tuple[int, Samples]]:
    """`torch.compile` of the forward pass, on the inputs of a real step, and eager beside it.

    Raises:
        SystemExit: The compiled pass computes other logits.
    """
    import torch._inductor.config as inductor  # noqa: PLC0415 - imports a compiler

    # Attention on a CPU returns other strides than torch has told the compiler, and an assertion in
    # the graph trips over it. Whether the result is right is checked below.
    inductor.size_asserts = False
    asked = bench.asked
    for rows in asked.rows:
        model, call = _last_call(bench, rows)
        forward = torch.compile(Decoder.forward, dynamic=False)
        with torch.inference_mode():
            eager = partial(Decoder.forward, model, *call[0], **call[1])
            fast = partial(forward, model, *call[0], **call[1])
            expected = eager()
            start_ns = time.perf_counter_ns()
            error = float((fast() - expected).abs().max())
            compile_ns = time.perf_counter_ns() - start_ns
            if not error <= _TOLERANCE:
                sys.exit(f"the compiled forward pass is off by {error:.2g} in a logit")
            yield (
                rows,
                {
                    "compilation": [compile_ns],
                    "model": _times(fast, asked.repetitions),
                    "model, not compiled": _times(eager, asked.repetitions),
                },
            )


def _last_call(bench: Bench, rows: int) -> tuple[Decoder, tuple[Any, Any]]:
    """The model and the arguments of the last forward pass of a batch."""
    calls: list[tuple[Decoder, tuple[Any, Any]]] = []
    original = Decoder.forward

    def noted(self: Decoder, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls[:] = [(self, (args, kwargs))]
        return original(self, *args, **kwargs)

    asked = bench.asked
    middle = asked.prompt_tokens + asked.new_tokens // 2
    with replaced(Decoder, "forward", noted):
        bench.steps(rows, prompt_tokens=middle - 2, new_tokens=2)
    model, (args, kwargs) = calls[0]
    # Without the stopwatch, at which a graph would break.
    attend = partial(paged_attention, **kwargs["attend"].keywords)
    return model, (args, {**kwargs, "attend": attend})


def _times(call: Callable[[], object], repetitions: int) -> list[int]:
    call()
    times = []
    for _ in range(repetitions):
        start_ns = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start_ns)
    return times


def profile(order: ProfileOrder) -> ProfileAnswer:
    """Profile the steps.

    Raises:
        SystemExit: A request failed, or the kernel that was asked for is not here.
    """
    bench = Bench(order)
    meter, started_ns = Meter("cpu"), time.monotonic_ns()
    measured = compiled_forward(bench) if order.compile else engine_phases(bench)
    steps = tuple(
        ProfiledRows(
            rows=rows,
            phases=tuple(Phase(name=n, samples_ns=tuple(s)) for n, s in phases.items()),
        )
        for rows, phases in measured
    )
    reading = meter.read()
    return ProfileAnswer(
        steps=steps,
        wall_ns=time.monotonic_ns() - started_ns,
        other_cpu_ns=reading.other_cpu_ns,
        steal_ns=reading.steal_ns,
    )


if __name__ == "__main__":
    carry_out(ProfileOrder, profile)
