"""What a run of the speed table keeps: counts and nanoseconds as measured, and no ratio.

`perf.json` is one `PerfRun`. Every ratio is worked out from it (`figures`), `perf.csv` is the
result, and the reader refuses one that disagrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nanoserve_bench.plan import Fact, WorkloadPlan
from nanoserve_bench.records import Settings

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmReport:
    """What a worker said it is, once per launch; `schema.SystemRow` says what each field means."""

    round: int
    arm: str
    system: str
    version: str
    revision: str | None
    device_name: str
    attention: str | None
    kernel_path: str | None
    weight_bytes_per_step: int | None
    libraries: str
    settings: Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixDigest:
    """What a trial said to its first `requests` prompts; two trials agree where these do.

    `schema.token_digest` of the outputs one by one, joined by line feeds and digested again.
    """

    requests: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PerfTrial:
    """One trial.

    Attributes:
        attempt: From 1; a trial that was disturbed is run again, and the last attempt counts.
        wall_ns: W, first arrival to last finish.
        served_ns: S; None where the system tells no holds.
        full_steps: Decode steps in which every slot advanced by one token and no prompt was
            computed; for a serial system, gaps between two tokens of a request. None where the
            system tells neither.
        full_steps_ns: The time of these steps, together.
        prefill_ns: Held time until the first token, summed over the requests; None where unknown.
        disturbed: What disturbed it, in words.
        outputs: Digests of what was generated.
    """

    round: int
    arm: str
    workload: str
    slots: int
    attempt: int
    started_at: str
    requests: int
    output_tokens: int
    wall_ns: int
    served_ns: int | None
    full_steps: int | None
    full_steps_ns: int | None
    prefill_ns: int | None
    cpu_ns: int | None
    other_cpu_ns: int | None
    steal_ns: int | None
    peak_memory_bytes: int | None
    disturbed: str | None
    outputs: tuple[PrefixDigest, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepProbe:
    """What the engine's steps are made of, over the full decode steps of one workload.

    Attributes:
        steps: How many.
        steps_ns: Their time, together.
        model_ns: Of that, the time inside the forward pass (the compiled step, or the torch model).
        peak_memory_bytes: Most resident memory of the process in its life, loading included.
        weight_bytes: All weights once.
        pool_bytes: The KV pool.
    """

    round: int
    slots: int
    attempt: int
    kernel_path: str
    steps: int
    steps_ns: int
    model_ns: int
    peak_memory_bytes: int | None
    weight_bytes: int
    pool_bytes: int
    disturbed: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """What the machine could do, as a worker measured it right after its trials."""

    round: int
    arm: str
    buffer_bytes: int
    read_bytes_per_s: float
    matmul_flop_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Hole:
    """An arm that gave nothing: in one round, or, where `round` is None, at all."""

    round: int | None
    arm: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A trial whose numbers must not be used: the rule of the gate that it breaks, and how."""

    round: int
    arm: str
    workload: str
    slots: int
    attempt: int
    rule: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PerfRun:
    """`perf.json`.

    Attributes:
        orders: The arms of every round, in the order in which they run.
        done: The arms that have run, `round/arm`, whatever came of them.
        complete: Whether all of them have.
        command: The command line that began it; empty where it was not recorded.
    """

    schema: int
    run_id: str
    created_at: str
    revision: str | None
    dirty: bool | None
    sources: str
    model: str
    model_source: str
    weight_bytes: int
    machine: str
    threads: int
    seed: int
    facts: tuple[Fact, ...]
    workloads: tuple[WorkloadPlan, ...]
    orders: tuple[tuple[str, ...], ...]
    done: tuple[str, ...]
    complete: bool
    arms: tuple[ArmReport, ...] = ()
    trials: tuple[PerfTrial, ...] = ()
    probes: tuple[StepProbe, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    holes: tuple[Hole, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    command: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureRow:
    """One row of the speed table (`perf.csv`).

    Attributes:
        unit: `x` for a ratio, else the unit of `point`, `low`, `high` and `goal`.
        goal: The least that is asked for, or the most where `at_most`.
        point: Over the rounds: geometric mean of a ratio, arithmetic mean otherwise.
        low: Lower end of the 95 % interval; None with fewer rounds than a verdict needs.
        high: Upper end.
        rounds: Rounds that it is made of.
        disturbed: Of these, rounds in which something else was using the machine, last attempt
            included.
        verdict: `met`, `missed`, `undecided` (the interval straddles the goal, or there are
            too few rounds for one), `refused` (a
            trial broke a rule, or the tokens differ) or `hole` (not measured).
        candidate: The engine's side, absolute, in `candidate_unit`.
        reference: What it was divided by, in the same unit.
        reference_arm: Whose it is.
        floor: What memory and arithmetic allow at the rates that were measured in the same rounds,
            in the same unit; None where no such bound is worked out.
        note: The reason of a hole or a refusal, and what a reader has to know.
    """

    FILE: ClassVar[str] = "perf.csv"

    figure: str
    title: str
    unit: str
    goal: float
    at_most: bool
    point: float | None
    low: float | None
    high: float | None
    rounds: int
    disturbed: int
    verdict: str
    candidate: float | None
    candidate_unit: str
    reference: float | None
    reference_arm: str | None
    floor: float | None
    note: str | None
