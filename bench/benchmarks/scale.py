"""How long the gate takes for a large folder, and how much memory: `nox -s scale`.

Lays out sound studies with stamps placed by a ruler (nothing in them was measured), writes them
through the only writer, and judges each in a process of its own. Fails when a million requests of
16 tokens would take more than 60 s or 2 GB, when time does not grow in step with the rows, or when
the gate refuses anything.
"""  # noqa: INP001 - a script, and no part of the distribution

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from nanoserve_bench.meters import Meter
from nanoserve_bench.plan import (
    Arm,
    Blocks,
    Cell,
    Plan,
    PlannedComparison,
    Start,
    WorkloadPlan,
)
from nanoserve_bench.records import Hold
from nanoserve_bench.results import read
from nanoserve_bench.schema import (
    SCHEMA_VERSION,
    CeilingRow,
    RequestRow,
    StepRow,
    SystemRow,
    TrialRow,
    token_digest,
)
from nanoserve_bench.soundness import judge_path
from nanoserve_bench.summary import summarise
from nanoserve_bench.writer import BlockRows, ResultsWriter

MOST_SECONDS, MOST_BYTES = 60.0, 2_000_000_000
"""For a million requests."""
MOST_GROWTH = 1.25
"""Time per row at the largest size over the same at the one before it."""

PROMPT_TOKENS, NEW_TOKENS = 16, 16
MS = 1_000_000
STEP_MS = {"hf-generate": 62.0, "nanoserve": 34.0}
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
MACHINE = "sha256:ruler"
ARMS = (
    Arm(name="hf-generate", system="hf-generate", version="0"),
    Arm(name="hf-generate-again", system="hf-generate", version="0"),
    Arm(name="nanoserve", system="nanoserve", version="0"),
)
ROOM = (("hf-generate", 1), ("hf-generate-again", 1), ("nanoserve", 4), ("nanoserve", 8))
"""Arm and slots of each cell."""

Tokens = list[tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How so many rows are spread: over few large trials, or over many small ones."""

    name: str
    blocks: int
    requests: int

    @classmethod
    def of(cls, name: str, rows: int) -> Shape:
        """The shape whose study has about so many request rows."""
        if name == "few large trials":
            return cls(name=name, blocks=8, requests=max(8, rows // (8 * len(ROOM)) // 8 * 8))
        return cls(name=name, blocks=max(8, rows // (64 * len(ROOM))), requests=64)


SHAPES = ("few large trials", "many small trials")


def generate(folder: Path, shape: Shape) -> int:
    """Write a sound study; its request rows."""
    plan = _plan(shape)
    rng = np.random.default_rng(44)
    writer = ResultsWriter.create(folder, plan, machine=MACHINE, facts=())
    writer.record_start(
        Start(
            started_at=_time(1),
            revision=None,
            dirty=None,
            machine=MACHINE,
            first_block=0,
            outcome="running",
        )
    )
    clock = 10**12
    for block in range(shape.blocks):
        rows, clock = _block(plan, shape, block, clock, rng)
        writer.write_block(rows)
    writer.finish(summarise(read(folder, require_complete=False)))
    return shape.blocks * shape.requests * len(ROOM)


def _plan(shape: Shape) -> Plan:
    systems = {arm.name: arm.system for arm in ARMS}
    cells = tuple(
        Cell(
            id=f"{arm}/cpu/float32/{slots}/ruler",
            arm=arm,
            system=systems[arm],
            device="cpu",
            dtype="float32",
            slots=slots,
            workload="ruler",
            model="ruler",
        )
        for arm, slots in ROOM
    )
    names = tuple(cell.id for cell in cells)
    return Plan(
        schema=SCHEMA_VERSION,
        run_id="scale",
        created_at=_time(0),
        revision=None,
        dirty=None,
        model="ruler",
        seed=44,
        decoding="greedy;ignore_eos",
        arms=ARMS,
        headline_baseline="hf-generate",
        devices=("cpu",),
        skipped_devices=(),
        dtypes=("float32",),
        workloads=(
            WorkloadPlan(
                name="ruler",
                requests=shape.requests,
                prompt_tokens=PROMPT_TOKENS,
                new_tokens=NEW_TOKENS,
                slots=(4, 8),
            ),
        ),
        cells=cells,
        comparisons=tuple(
            PlannedComparison(
                baseline=names[0],
                candidate=cell.id,
                kind="self" if cell.system == "hf-generate" else "rival",
            )
            for cell in cells[1:]
        ),
        blocks=Blocks(least=shape.blocks, most=shape.blocks, target_half_width=None, most_reruns=0),
        orders=tuple(names if n % 2 == 0 else names[::-1] for n in range(shape.blocks)),
        acknowledged=(),
    )


def _time(seconds: float) -> str:
    return (CREATED + timedelta(seconds=seconds)).isoformat()


def _block(
    plan: Plan, shape: Shape, block: int, clock: int, rng: np.random.Generator
) -> tuple[BlockRows, int]:
    prompts, outputs = (_token_lists(rng, shape.requests, n) for n in (PROMPT_TOKENS, NEW_TOKENS))
    digests = [(token_digest(p), token_digest(o)) for p, o in zip(prompts, outputs, strict=True)]
    cells = {cell.id: cell for cell in plan.cells}
    launches = {arm.name: len(ARMS) * block + number for number, arm in enumerate(ARMS)}
    trials, requests, steps = [], [], []
    for order, name in enumerate(plan.orders[block]):
        cell = cells[name]
        stamps = _Stamps.of(cell, shape.requests, clock, rng)
        requests += _requests(block, cell, digests, stamps)
        steps += _steps(block, cell, shape.requests, stamps)
        wall = int(stamps.finished[-1]) - clock
        trials.append(_trial(block, cell, order, launches[cell.arm], clock, wall))
        clock += wall + 5 * MS
    rows = BlockRows(
        systems=tuple(_launch(plan, arm, block, launches[arm.name]) for arm in ARMS),
        ceilings=(
            CeilingRow(
                block=block,
                device="cpu",
                dtype="float32",
                buffer_bytes=538_000_000,
                read_bytes_per_s=28e9,
                matmul_flop_per_s=150e9,
            ),
        ),
        trials=tuple(trials),
        requests=tuple(requests),
        steps=tuple(steps),
        prompts=tuple(prompts),
        outputs=tuple(outputs),
    )
    return rows, clock


def _token_lists(rng: np.random.Generator, count: int, length: int) -> Tokens:
    return [tuple(ids) for ids in rng.integers(100, 49_000, (count, length)).tolist()]


@dataclass(frozen=True, kw_only=True)
class _Stamps:
    """Stamps of a trial in ns, an entry per request; tokens are [requests, tokens]."""

    arrival: Any
    acquired: Any
    tokens: Any
    finished: Any

    @classmethod
    def of(cls, cell: Cell, requests: int, clock: int, rng: np.random.Generator) -> _Stamps:
        """All requests are equally long, so the slots are filled anew in waves."""
        serial = cell.system != "nanoserve"
        waves = requests // cell.slots
        step = STEP_MS[cell.system] * MS * (1 if serial else 1 + cell.slots / 10)
        ends = np.rint(step * (1 + 0.01 * rng.standard_normal((waves, NEW_TOKENS)))).astype(
            np.int64
        )
        if serial:
            between = 3000  # from the last token to the return, and from there to the next call
            begin = clock + np.cumsum(ends.sum(axis=1) + between) - ends.sum(axis=1) - between
            tokens = begin[:, None] + np.cumsum(ends, axis=1)
            return cls(arrival=begin, acquired=begin, tokens=tokens, finished=tokens[:, -1] + 1000)
        arrival = clock + 500 * np.arange(requests)
        first = clock + 500 * requests
        tokens = first + np.cumsum(ends).reshape(waves, NEW_TOKENS)
        begin = np.concatenate([[first], tokens[:-1, -1]])
        tokens = np.repeat(tokens, cell.slots, axis=0)
        return cls(
            arrival=arrival,
            acquired=np.repeat(begin, cell.slots),
            tokens=tokens,
            finished=tokens[:, -1],
        )


def _requests(
    block: int, cell: Cell, digests: list[tuple[str, str]], stamps: _Stamps
) -> Iterator[RequestRow]:
    columns = (
        stamps.arrival.tolist(),
        stamps.acquired.tolist(),
        stamps.tokens.tolist(),
        stamps.finished.tolist(),
    )
    for index, (arrival, acquired, tokens, finished) in enumerate(zip(*columns, strict=True)):
        prompt, output = digests[index]
        yield RequestRow(
            block=block,
            cell=cell.id,
            warmup=False,
            request=f"r{index}",
            prompt_sha256=prompt,
            prompt_tokens=PROMPT_TOKENS,
            max_tokens=NEW_TOKENS,
            output_tokens=NEW_TOKENS,
            discarded_tokens=0,
            cached_tokens=0,
            arrival_ns=arrival,
            submitted_ns=arrival,
            holds_ns=(Hold(acquired, finished),),
            first_token_ns=tokens[0],
            finished_ns=finished,
            token_ns=tuple(tokens),
            finish_reason="length",
            error=None,
            output_sha256=output,
        )


def _steps(block: int, cell: Cell, requests: int, stamps: _Stamps) -> Iterator[StepRow]:
    if cell.system != "nanoserve":
        return
    waves = stamps.tokens[:: cell.slots]
    starts = [int(stamps.acquired[0]), *waves.ravel().tolist()]
    for number, start in enumerate(starts):
        running = cell.slots if number < len(starts) - 1 else 0
        wave, token = divmod(number, NEW_TOKENS)
        prefill = running if token == 0 else 0
        yield StepRow(
            block=block,
            cell=cell.id,
            warmup=False,
            step=number,
            start_ns=start,
            prefill_rows=prefill,
            decode_rows=running - prefill,
            holders=running,
            waiting=max(0, requests - (wave + 1) * cell.slots),
        )


def _trial(  # noqa: PLR0917 - the row's own order
    block: int, cell: Cell, order: int, launch: int, clock: int, wall: int
) -> TrialRow:
    return TrialRow(
        block=block,
        replaces=None,
        launch=launch,
        cell=cell.id,
        order=order,
        warmup=False,
        started_at=_time(clock / 1e9),
        started_ns=clock - MS,
        wall_ns=wall + 2 * MS,
        load_before=None,
        load_after=None,
        involuntary_switches=None,
        steal_ns=None,
        cpu_ns=2 * wall,
        other_cpu_ns=0,
        peak_memory_bytes=None,
    )


def _launch(plan: Plan, arm: Arm, block: int, launch: int) -> SystemRow:
    engine = arm.system == "nanoserve"
    return SystemRow(
        launch=launch,
        block=block,
        arm=arm.name,
        system=arm.system,
        version=arm.version,
        revision=None,
        shape="concurrent" if engine else "serial",
        stamps="holds first_token tokens steps" if engine else "holds first_token tokens",
        machine=MACHINE,
        device="cpu",
        device_name="ruler",
        dtype="float32",
        matmul_precision="ieee",
        threads=2,
        weights="sha256:" + "a" * 64,
        weight_bytes_per_step=538_000_000,
        tokenizer="none",
        attention=None,
        cache="off",
        decoding=plan.decoding,
        kernel_path=None,
        libraries="ruler=1",
    )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What judging a folder took: seconds on the clock and of the CPU, and bytes at the peak.

    The peak is None where the system does not tell.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int | None
    refusals: list[str]


def measure(folder: Path) -> Cost:
    """Judge a folder in a process of its own."""
    output = subprocess.run(  # noqa: S603 - this file itself
        [sys.executable, __file__, "--judge", str(folder)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Cost(**json.loads(output))


def _judge(folder: Path) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    meter = Meter("cpu")
    verdict = judge_path(folder)
    cost = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        # Not ru_maxrss: a process starts with its parent's, which has just laid out the study.
        "peak_bytes": meter.read().peak_memory_bytes,
        "refusals": [str(finding) for finding in verdict.findings[:5]],
    }
    print(json.dumps(cost))  # noqa: T201 - for the process that asked


def run(rows: int, folder: Path) -> list[str]:
    """Measure both shapes at three sizes, and say what exceeds its budget."""
    problems = []
    for name in SHAPES:
        print(f"\n{name}\n{'rows':>9} {'s':>8} {'CPU s':>8} {'us/row':>7} {'MB':>6}")  # noqa: T201
        per_row: list[float] = []
        for size in (rows // 10, rows // 3, rows):
            target = folder / f"{name.replace(' ', '-')}-{size}"
            count = generate(target, Shape.of(name, size))
            cost = measure(target)
            per_row.append(1e6 * cost.cpu_s / count)
            print(  # noqa: T201
                f"{count:9} {cost.wall_s:8.2f} {cost.cpu_s:8.2f} {per_row[-1]:7.1f} "
                f"{'' if cost.peak_bytes is None else f'{cost.peak_bytes / 1e6:.0f}':>6}",
                flush=True,
            )
            problems += [f"{name}, {count} rows: refused: {text}" for text in cost.refusals]
            if cost.wall_s > MOST_SECONDS * max(count, rows // 10) / 1e6 + 1:
                problems.append(f"{name}, {count} rows: {cost.wall_s:.1f} s")
            if cost.peak_bytes is None:
                problems.append(f"{name}, {count} rows: this system does not tell the memory")
            elif cost.peak_bytes > MOST_BYTES:
                problems.append(f"{name}, {count} rows: {cost.peak_bytes / 1e6:.0f} MB")
        if per_row[-1] > MOST_GROWTH * per_row[-2]:
            problems.append(
                f"{name}: {per_row[-2]:.1f} us a row become {per_row[-1]:.1f} at the largest size"
            )
    return problems


def main() -> None:
    """Measure, print, and fail where a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="nox -s scale --", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the largest study")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge is not None:
        _judge(options.judge)
        return
    with tempfile.TemporaryDirectory() as folder:
        problems = run(options.rows, Path(folder))
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
