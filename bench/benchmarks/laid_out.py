"""Sound studies to judge, whose stamps a ruler placed: nothing in them was measured.

They are written through the only writer, with three arms in four cells.
"""  # noqa: INP001 - part of the scripts beside it, and of no distribution

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

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
from nanoserve_bench.summary import summarise
from nanoserve_bench.writer import BlockRows, ResultsWriter

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
    """How many blocks, and how many requests in each trial; a multiple of 8."""

    blocks: int
    requests: int


@dataclass(frozen=True, kw_only=True)
class Made:
    """What tells one study from another: its name, its draws, when it ran, and what was measured.

    `pace` is how long a step of the engine takes, as a multiple of what it takes in `STEP_MS`.
    """

    run_id: str = "scale"
    seed: int = 44
    created: datetime = CREATED
    revision: str | None = None
    pace: float = 1.0


def generate(folder: Path, shape: Shape, made: Made) -> int:
    """Write a sound study; its request rows."""
    plan = _plan(shape, made)
    rng = np.random.default_rng(made.seed)
    writer = ResultsWriter.create(folder, plan, machine=MACHINE, facts=())
    writer.record_start(
        Start(
            started_at=_time(made, 1),
            revision=plan.revision,
            dirty=plan.dirty,
            machine=MACHINE,
            first_block=0,
            outcome="running",
        )
    )
    clock = 10**12
    for block in range(shape.blocks):
        rows, clock = _block(plan, shape, made, block, clock, rng)
        writer.write_block(rows)
    writer.finish(summarise(read(folder, require_complete=False)))
    return shape.blocks * shape.requests * len(ROOM)


def _plan(shape: Shape, made: Made) -> Plan:
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
        run_id=made.run_id,
        created_at=_time(made, 0),
        revision=made.revision,
        dirty=None if made.revision is None else False,
        model="ruler",
        seed=made.seed,
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


def _time(made: Made, seconds: float) -> str:
    return (made.created + timedelta(seconds=seconds)).isoformat()


def _block(  # noqa: PLR0917 - what a block is made of
    plan: Plan, shape: Shape, made: Made, block: int, clock: int, rng: np.random.Generator
) -> tuple[BlockRows, int]:
    prompts, outputs = (_token_lists(rng, shape.requests, n) for n in (PROMPT_TOKENS, NEW_TOKENS))
    digests = [(token_digest(p), token_digest(o)) for p, o in zip(prompts, outputs, strict=True)]
    cells = {cell.id: cell for cell in plan.cells}
    launches = {arm.name: len(ARMS) * block + number for number, arm in enumerate(ARMS)}
    trials, requests, steps = [], [], []
    for order, name in enumerate(plan.orders[block]):
        cell = cells[name]
        stamps = _Stamps.of(cell, shape.requests, made.pace, clock, rng)
        requests += _requests(block, cell, digests, stamps)
        steps += _steps(block, cell, shape.requests, stamps)
        wall = int(stamps.finished[-1]) - clock
        trials.append(_trial(made, block, cell, order, launches[cell.arm], clock, wall))
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
    def of(
        cls, cell: Cell, requests: int, pace: float, clock: int, rng: np.random.Generator
    ) -> _Stamps:
        """All requests are equally long, so the slots are filled anew in waves."""
        serial = cell.system != "nanoserve"
        waves = requests // cell.slots
        step = STEP_MS[cell.system] * MS * (1 if serial else pace * (1 + cell.slots / 10))
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
    made: Made, block: int, cell: Cell, order: int, launch: int, clock: int, wall: int
) -> TrialRow:
    return TrialRow(
        block=block,
        replaces=None,
        launch=launch,
        cell=cell.id,
        order=order,
        warmup=False,
        started_at=_time(made, clock / 1e9),
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
