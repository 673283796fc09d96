"""Taking the profile of a decode step: one process per way to compute it.

The variants put the source document's question, which of the two was the problem, the kernel or
the interpreter: another kernel under the same Python, `torch.compile` around the same kernel, and
the engine's compiled kernels, which replace both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nanoserve_bench.contention import disturbance
from nanoserve_bench.errors import WorkerError
from nanoserve_bench.faults import one_line
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.perf.profile import ONE_READ, ProfileRow
from nanoserve_bench.probes import ProfileAnswer, ProfileOrder, run_probe

ROWS = (1, 8, 32)
COMPILED_ROWS = (8,)
"""A graph is compiled anew for every number of rows, which takes a minute or more each."""
REPETITIONS = 60
PROMPT_TOKENS, NEW_TOKENS = 16, 64
_TIMEOUT_S = 1200.0

STOPWATCH = "a stopwatch around the calls"
BY_ITSELF = "every matrix of a step multiplied once, in order, by the kernel alone"
BY_CONTEXT = "what a step grows by from a context of 5 tokens, stretched to the whole context"
BY_DIFFERENCE = "the difference"
BY_READING = "a buffer as large as the weights, read after each of the steps"
SAME_INPUTS = "the forward pass of one real step, repeated on the same inputs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A way to compute a step.

    Attributes:
        name: As the profile names it.
        kernel: `plain` (F.linear), `packed` (oneDNN) or `compiled` (the engine's own kernels).
        compile: Whether `torch.compile` makes one graph of the forward pass.
    """

    name: str
    kernel: str
    compile: bool = False


VARIANTS = (
    Variant(name="torch, plain products", kernel="plain"),
    Variant(name="torch, packed products", kernel="packed"),
    Variant(name="torch.compile, plain products", kernel="plain", compile=True),
    Variant(name="compiled kernels", kernel="compiled"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """A profile, and what else was using the machine meanwhile."""

    rows: tuple[ProfileRow, ...]
    disturbed: tuple[str, ...]


def take_profile(
    model: ModelFolder,
    *,
    threads: int,
    say: Callable[[str], None],
    variants: Sequence[Variant] = VARIANTS,
    rows: Sequence[int] = ROWS,
    compiled_rows: Sequence[int] = COMPILED_ROWS,
    repetitions: int = REPETITIONS,
) -> Taken:
    """Profile every variant; one that cannot run here is a row that says why.

    Args:
        model: The model, materialised.
        threads: Compute threads.
        say: Told what is about to run.
        variants: Which of them.
        rows: Rows of a step.
        compiled_rows: The same, where a graph is compiled for each.
        repetitions: Steps behind each figure, at least.
    """
    result: list[ProfileRow] = []
    disturbed: list[str] = []
    for variant in variants:
        wanted = compiled_rows if variant.compile else rows
        say(f"{variant.name}, {', '.join(map(str, wanted))} rows")
        order = ProfileOrder(
            model_path=str(model.path),
            kernel=variant.kernel,
            compile=variant.compile,
            rows=tuple(wanted),
            prompt_tokens=PROMPT_TOKENS,
            new_tokens=NEW_TOKENS,
            repetitions=repetitions,
            weight_bytes=model.weight_bytes,
        )
        try:
            answer = run_probe(
                "step_profile", order, ProfileAnswer, threads=threads, timeout_s=_TIMEOUT_S
            )
        except WorkerError as error:
            say(f"{variant.name} failed: {error}")
            result += [_missing(variant, count, str(error)) for count in wanted]
            continue
        reason = disturbance(
            wall_ns=answer.wall_ns, other_cpu_ns=answer.other_cpu_ns, steal_ns=answer.steal_ns
        )
        if reason is not None:
            disturbed.append(f"{variant.name}: {reason}")
        result += _rows(variant, answer)
    return Taken(rows=tuple(result), disturbed=tuple(disturbed))


def _rows(variant: Variant, answer: ProfileAnswer) -> list[ProfileRow]:
    return [
        row_of(variant, step.rows, phase.name, phase.samples_ns, how=_how(variant, phase.name))
        for step in answer.steps
        for phase in step.phases
    ]


def _how(variant: Variant, phase: str) -> str:
    if variant.compile:
        return (
            "the first call, with what the compiler's cache held"
            if phase == "compilation"
            else SAME_INPUTS
        )
    if phase in {"batch assembly", "scheduler and bookkeeping", "rest of the model"}:
        return BY_DIFFERENCE
    if variant.kernel == "compiled" and phase in {"linears", "attention"}:
        return BY_ITSELF if phase == "linears" else BY_CONTEXT
    if phase == ONE_READ:
        return BY_READING
    return STOPWATCH


def row_of(
    variant: Variant, rows: int, phase: str, samples_ns: Sequence[int], *, how: str
) -> ProfileRow:
    """One row: median and quartiles of the samples."""
    seconds = [ns / 1e9 for ns in samples_ns]
    quartiles = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else None
    return ProfileRow(
        variant=variant.name,
        rows=rows,
        context=PROMPT_TOKENS + NEW_TOKENS // 2,
        phase=phase,
        seconds=statistics.median(seconds),
        low=None if quartiles is None else quartiles[0],
        high=None if quartiles is None else quartiles[2],
        repetitions=len(seconds),
        how=how,
    )


def _missing(variant: Variant, rows: int, reason: str) -> ProfileRow:
    return ProfileRow(
        variant=variant.name,
        rows=rows,
        context=PROMPT_TOKENS + NEW_TOKENS // 2,
        phase="model" if variant.compile else "step",
        seconds=None,
        low=None,
        high=None,
        repetitions=0,
        how=one_line(reason),
    )
