"""Probes of the engine: what a process of its own is asked, and what it answers.

A probe is a module of `systems` that runs once. Standard input is its order and the last line of
standard output its answer, each a JSON object, read as the record that it has to be at either end.
Ctrl-C ends a probe with whoever started it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nanoserve_bench import documents
from nanoserve_bench.errors import WorkerError
from nanoserve_bench.launcher import environment_of

T = TypeVar("T")
_TAIL_CHARACTERS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """Settings of the engine under their own names; None leaves one to the engine."""

    max_slots: int
    max_model_len: int
    block_size: int
    kv_pool_tokens: int | None
    max_batch_tokens: int | None
    prefix_cache: bool
    kernel: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOrder:
    """Serve requests to their end (`soak_engine`).

    Attributes:
        settings: Without `kv_pool_tokens` the pool is the one in which most are preempted.
        prompts: Token ids of each request.
        max_tokens: Tokens to generate, of each request.
    """

    model_path: str
    settings: EngineSettings
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeAnswer:
    """What came of them.

    Attributes:
        kv_pool_tokens: The pool that it was; None where the engine chose.
        outputs: Token ids generated for each request.
        errors: What went wrong with each; None where nothing did.
        preemptions: Slots that were lost and had again.
        chunks: Pieces of prompts beyond the first of each.
        cached_tokens: Prompt tokens that were not computed.
        most_rows: Most rows that decoded in one step.
    """

    kernel_path: str
    kv_pool_tokens: int | None
    outputs: tuple[tuple[int, ...], ...]
    errors: tuple[str | None, ...]
    preemptions: int
    chunks: int
    cached_tokens: int
    most_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsOrder:
    """Run a workload and time its full decode steps (`step_probe`).

    Attributes:
        longest: Most tokens of a request, prompt and output together.
        max_tokens: Tokens to generate, of every request.
        warmup: Prompts that run first and count for nothing.
    """

    model_path: str
    slots: int
    longest: int
    max_tokens: int
    prompts: tuple[tuple[int, ...], ...]
    warmup: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsAnswer:
    """What they are made of; `perf.records.StepProbe` says what the fields mean.

    Attributes:
        wall_ns: The whole run, which the CPU time of others is set against.
    """

    kernel_path: str
    steps: int
    steps_ns: int
    model_ns: int
    peak_memory_bytes: int | None
    weight_bytes: int
    pool_bytes: int
    wall_ns: int
    other_cpu_ns: int | None
    steal_ns: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileOrder:
    """Take a decode step apart (`step_profile`).

    Attributes:
        kernel: `plain`, `packed` or `compiled`; see `perf.profiling.Variant`.
        compile: Whether `torch.compile` makes one graph of the forward pass.
        rows: Rows of the steps, each profiled by itself.
        repetitions: Steps behind each figure, at least.
        weight_bytes: How much is read after each step, for comparison.
    """

    model_path: str
    kernel: str
    compile: bool
    rows: tuple[int, ...]
    prompt_tokens: int
    new_tokens: int
    repetitions: int
    weight_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A part of a step, and how long it took in each of several, ns."""

    name: str
    samples_ns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledRows:
    """The phases of steps of so many rows."""

    rows: int
    phases: tuple[Phase, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileAnswer:
    """The phases by rows, and what the machine did meanwhile."""

    steps: tuple[ProfiledRows, ...]
    wall_ns: int
    other_cpu_ns: int | None
    steal_ns: int | None


def run_probe(module: str, order: Any, answer: type[T], *, threads: int, timeout_s: float) -> T:
    """Run `nanoserve_bench.systems.<module>`.

    Args:
        module: The probe.
        order: A record that it takes.
        answer: The record that it answers with.
        threads: Compute threads.
        timeout_s: Seconds after which it counts as hung.

    Raises:
        WorkerError: It failed, took too long, or answered something else; the message ends with
            what it wrote.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own module in our own interpreter
            [sys.executable, "-P", "-m", f"nanoserve_bench.systems.{module}"],
            input=json.dumps(dataclasses.asdict(order)),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=environment_of(threads),
        )
    except subprocess.TimeoutExpired:
        raise WorkerError(f"{module} did not answer in {timeout_s:g} s") from None
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        tail = done.stderr[-_TAIL_CHARACTERS:].rstrip()
        raise WorkerError(f"{module} ended with exit code {done.returncode}:\n{tail}")
    read = documents.decode(answer, lines[-1], f"the answer of {module}")
    if isinstance(read, Sequence):
        raise WorkerError(f"{module} wrote something that is no answer: {read[0]}")
    return read


def carry_out(order: type[T], probe: Callable[[T], Any]) -> None:
    """The probe's end: its order from standard input, its answer on standard output.

    Raises:
        SystemExit: The order is not the record that it has to be.
    """
    read = documents.decode(order, sys.stdin.read(), "the order")
    if isinstance(read, Sequence):
        sys.exit("\n".join(map(str, read)))
    print(json.dumps(dataclasses.asdict(probe(read))))  # noqa: T201 - that is the answer
