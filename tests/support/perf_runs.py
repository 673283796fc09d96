"""Runs of the speed table placed by hand: round numbers, so that every ratio can be said."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from nanoserve_bench.perf.arms import (
    BASELINE,
    DECODE,
    ENGINE,
    ENGINE_PREFILL,
    FULL,
    PREFILL,
    RIVALS,
    STATIC,
    STEP_PROBE,
    TORCH,
)
from nanoserve_bench.perf.records import (
    SCHEMA_VERSION,
    ArmReport,
    Ceiling,
    Hole,
    PerfRun,
    PerfTrial,
    PrefixDigest,
    StepProbe,
)
from nanoserve_bench.plan import Fact
from nanoserve_bench.records import Settings

MS = 1_000_000
WEIGHTS = 500_000_000
SETTINGS = Settings(
    machine="this",
    device="cpu",
    dtype="float32",
    matmul_precision="ieee",
    threads=2,
    weights="sha256:" + "a" * 64,
    tokenizer="none",
    decoding="greedy;ignore_eos",
    cache="off",
)
SAME = (
    PrefixDigest(requests=4, sha256="four"),
    PrefixDigest(requests=6, sha256="six"),
    PrefixDigest(requests=16, sha256="sixteen"),
    PrefixDigest(requests=64, sha256="all"),
)


def trial(
    arm: str,
    slots: int = 1,
    *,
    number: int = 0,
    requests: int = 64,
    tok_per_s: int = 100,
    step_ms: int | None = None,
    workload: str = DECODE,
    prefill_ms: int = 10,
    outputs: tuple[PrefixDigest, ...] = SAME,
    attempt: int = 1,
    disturbed: str | None = None,
) -> PerfTrial:
    """A trial that gave 6,400 tokens at a rate, its slots all held."""
    wall_ns = 6_400 * 1_000_000_000 // tok_per_s
    return PerfTrial(
        round=number,
        arm=arm,
        workload=workload,
        slots=slots,
        attempt=attempt,
        started_at="2026-01-01T00:00:00.000+00:00",
        requests=requests,
        output_tokens=6_400,
        wall_ns=wall_ns,
        served_ns=slots * wall_ns,
        full_steps=None if step_ms is None else 50,
        full_steps_ns=None if step_ms is None else 50 * step_ms * MS,
        prefill_ns=requests * prefill_ms * MS,
        cpu_ns=None,
        other_cpu_ns=None,
        steal_ns=None,
        peak_memory_bytes=None,
        disturbed=disturbed,
        outputs=tuple(digest for digest in outputs if digest.requests <= requests),
    )


def report(arm: str, number: int, settings: Settings = SETTINGS) -> ArmReport:
    return ArmReport(
        round=number,
        arm=arm,
        system=arm,
        version="1",
        revision=None,
        device_name="a CPU",
        attention=None,
        kernel_path=None,
        weight_bytes_per_step=WEIGHTS,
        libraries="",
        settings=settings,
    )


def one_round(number: int, *, faster: int = 1) -> list[PerfTrial]:
    """The baseline at 10 tok/s and 100 ms a step; the engine `faster` times 30, 240, 320, 320."""
    serial = {"number": number, "requests": 6}
    return [
        trial(BASELINE, tok_per_s=10, step_ms=100, **serial),
        trial(BASELINE, number=number, requests=4, workload=PREFILL, prefill_ms=600),
        trial(STATIC, 8, number=number, requests=16, tok_per_s=50),
        trial(ENGINE, tok_per_s=30 * faster, step_ms=20, **serial),
        trial(ENGINE, 8, number=number, tok_per_s=240 * faster, step_ms=25),
        trial(ENGINE, 16, number=number, tok_per_s=320 * faster, step_ms=40),
        trial(ENGINE, 32, number=number, tok_per_s=320 * faster, step_ms=80),
        trial(ENGINE_PREFILL, number=number, requests=4, workload=PREFILL, prefill_ms=400),
        trial(TORCH, tok_per_s=20, **serial),
        trial(TORCH, 8, number=number, tok_per_s=120),
        trial(TORCH, 16, number=number, tok_per_s=160),
        trial(TORCH, 32, number=number, tok_per_s=170),
        trial("vllm", tok_per_s=20, **serial),
        trial("vllm", 8, number=number, tok_per_s=200),
        trial("vllm", 16, number=number, tok_per_s=400),
        trial("openvino", tok_per_s=25, **serial),
        trial("openvino", 8, number=number, tok_per_s=160),
        trial("openvino", 16, number=number, tok_per_s=320),
    ]


def probe(number: int) -> StepProbe:
    """Steps of 60 ms, 59.5 of them in the model; 0.5 GB beyond weights and pool."""
    return StepProbe(
        round=number,
        slots=32,
        attempt=1,
        kernel_path="cpp",
        steps=10,
        steps_ns=600 * MS,
        model_ns=595 * MS,
        peak_memory_bytes=WEIGHTS + 100_000_000 + 500_000_000,
        weight_bytes=WEIGHTS,
        pool_bytes=100_000_000,
        disturbed=None,
    )


def perf_run(
    rounds: int = 5, *, trials: Iterable[PerfTrial] | None = None, factors: Sequence[int] = ()
) -> PerfRun:
    """A complete run; `factors` make the engine faster in single rounds."""
    factors = factors or [1] * rounds
    rounds = len(factors)
    made = [t for n in range(rounds) for t in one_round(n, faster=factors[n])]
    placed = tuple(made if trials is None else trials)
    arms = dict.fromkeys(t.arm for t in placed)
    order = (*arms, STEP_PROBE)
    absent = [Hole(round=None, arm=r, reason="not installed: x") for r in RIVALS if r not in arms]
    return PerfRun(
        schema=SCHEMA_VERSION,
        run_id="20260101-abc",
        created_at="2026-01-01T00:00:00+00:00",
        revision="abc",
        dirty=False,
        sources="def",
        model="a model",
        model_source="sha256:0",
        weight_bytes=WEIGHTS,
        machine="this",
        threads=2,
        seed=44,
        facts=(Fact(name="cpu_model", value="a CPU"),),
        workloads=FULL.workloads(),
        orders=tuple(order for _ in range(rounds)),
        done=tuple(f"{n}/{arm}" for n in range(rounds) for arm in order),
        complete=True,
        arms=tuple(report(arm, n) for n in range(rounds) for arm in arms),
        trials=placed,
        probes=tuple(probe(n) for n in range(rounds)),
        ceilings=tuple(
            Ceiling(
                round=n,
                arm=ENGINE,
                buffer_bytes=WEIGHTS,
                read_bytes_per_s=rate,
                matmul_flop_per_s=1e11,
            )
            for n in range(rounds)
            for rate in (24e9, 25e9)
        ),
        holes=tuple(absent),
    )


def with_trials(run: PerfRun, change: object) -> PerfRun:
    """The same run with every trial changed by a function; None drops one."""
    changed = (change(t) for t in run.trials)  # type: ignore[operator]
    return dataclasses.replace(run, trials=tuple(t for t in changed if t is not None))
