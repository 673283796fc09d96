"""Sound result folders with stamps placed by hand: the ruler that the tests measure with.

Nothing here was measured and nothing here is ever published. `study()` lays out a plan and, block
by block, what three arms would have stamped if every step took exactly as long as asked, with a
small seeded spread so that no two trials are copies of each other. Everything is plain rows, so
that a test can break one thing and write the folder with all digests right.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from nanoserve_bench.arrivals import offered
from nanoserve_bench.plan import (
    AcknowledgedRefusal,
    Arm,
    Blocks,
    Cell,
    Fact,
    Plan,
    PlannedComparison,
    RequestLengths,
    SkippedDevice,
    Start,
    WorkloadPlan,
)
from nanoserve_bench.records import Hold
from nanoserve_bench.schema import (
    SCHEMA_VERSION,
    CeilingRow,
    RequestRow,
    StepRow,
    SystemRow,
    TrialRow,
    token_digest,
)
from nanoserve_bench.writer import BlockRows, ResultsWriter

MS = 1_000_000
MACHINE = "sha256:machine"
REVISION = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = "sha256:" + "a" * 64
DAY44 = WorkloadPlan(name="day44", requests=8, prompt_tokens=6, new_tokens=16, slots=(1, 2, 4, 8))


def ragged_plan(blocks: int = 1) -> WorkloadPlan:
    """The same with requests of unequal lengths: of each of so many blocks, or of all."""
    lengths = tuple(
        RequestLengths(prompt_tokens=4 + (3 * i) % 7, new_tokens=3 + (5 * i) % 14 + i // 64)
        for i in range(8 * blocks)
    )
    return dataclasses.replace(
        DAY44,
        prompt_tokens=max(one.prompt_tokens for one in lengths),
        new_tokens=max(one.new_tokens for one in lengths),
        lengths=lengths,
        source="by hand",
    )


@dataclasses.dataclass(kw_only=True)
class Study:
    """A study as rows, ready to be broken and written."""

    plan: Plan
    blocks: list[BlockRows]
    facts: tuple[Fact, ...]
    starts: list[Start]

    def write(self, path: Path, *, finish: bool = True) -> Path:
        """Write the folder through the real writer, the summary computed from the rows."""
        writer = ResultsWriter.create(path, self.plan, machine=MACHINE, facts=self.facts)
        for start in self.starts:
            writer.record_start(start)
        for rows in self.blocks:
            writer.write_block(rows)
        if finish:
            from nanoserve_bench.results import read  # noqa: PLC0415
            from nanoserve_bench.summary import summarise  # noqa: PLC0415

            writer.finish(summarise(read(path, require_complete=False)))
        return path

    def edit(
        self,
        table: str,
        change: Callable[[object], object],
        *,
        where: Callable[[object], bool] = lambda _: True,
        blocks: Sequence[int] | None = None,
    ) -> int:
        """Replace the rows of a table that `where` picks; the number of rows changed."""
        changed = 0
        for index, block in enumerate(self.blocks):
            if blocks is not None and index not in blocks:
                continue
            rows = []
            for row in getattr(block, table):
                if where(row):
                    row = change(row)  # noqa: PLW2901
                    changed += 1
                if row is not None:
                    rows.append(row)
            self.blocks[index] = dataclasses.replace(block, **{table: tuple(rows)})
        return changed


def plan(
    *,
    run_id: str = "20260101-cpu-day44-0123456",
    workload: WorkloadPlan = DAY44,
    blocks: int = 8,
    device: str = "cpu",
    dtype: str = "float32",
    acknowledged: tuple[AcknowledgedRefusal, ...] = (),
    seed: int = 44,
    loads: tuple[WorkloadPlan, ...] = (),
) -> Plan:
    """The default plan: a baseline, itself again, and the engine at every slot count.

    The engine alone runs the open loops `loads`, and nothing is compared there.
    """
    arms = (
        Arm(name="hf-generate", system="hf-generate", version="5.24.0"),
        Arm(name="hf-generate-again", system="hf-generate", version="5.24.0"),
        Arm(name="nanoserve", system="nanoserve", version="0.1.0"),
    )
    cells = [
        Cell(
            id=f"{arm.name}/{device}/{dtype}/{slots}/{workload.name}",
            arm=arm.name,
            system=arm.system,
            device=device,
            dtype=dtype,
            slots=slots,
            workload=workload.name,
            model="smollm2-135m",
        )
        for arm in arms
        for slots in (workload.slots if arm.system == "nanoserve" else (1,))
    ]
    compared = len(cells)
    cells += [
        dataclasses.replace(
            cells[-1],
            id=f"nanoserve/{device}/{dtype}/{load.slots[0]}/{load.name}",
            slots=load.slots[0],
            workload=load.name,
        )
        for load in loads
    ]
    baseline = cells[0].id
    rng = random.Random(seed)
    orders: list[tuple[str, ...]] = []
    while len(orders) < blocks + 2:
        order = [cell.id for cell in cells]
        rng.shuffle(order)
        # Mirrored pairs, as the sweep plans them: of any two cells each leads in half the blocks.
        orders += [tuple(order), tuple(reversed(order))]
    return Plan(
        schema=SCHEMA_VERSION,
        run_id=run_id,
        created_at="2026-01-01T00:00:00+00:00",
        revision=REVISION,
        dirty=False,
        model="smollm2-135m",
        seed=seed,
        decoding="greedy;ignore_eos",
        arms=arms,
        headline_baseline="hf-generate",
        devices=(device,),
        skipped_devices=(SkippedDevice(device="cuda", reason="no CUDA device is visible"),),
        dtypes=(dtype,),
        workloads=(workload, *loads),
        cells=tuple(cells),
        comparisons=tuple(
            PlannedComparison(
                baseline=baseline,
                candidate=cell.id,
                kind="self" if cell.system == "hf-generate" else "rival",
            )
            for cell in cells[1:compared]
        ),
        blocks=Blocks(least=blocks, most=blocks, target_half_width=None, most_reruns=2),
        orders=tuple(orders[: blocks + 2]),
        acknowledged=acknowledged,
    )


def study(
    *,
    run_id: str = "20260101-cpu-day44-0123456",
    workload: WorkloadPlan = DAY44,
    blocks: int = 8,
    step_ms: Callable[[str, int], float] | None = None,
    spread: float = 0.01,
    seed: int = 44,
    device: str = "cpu",
    dtype: str = "float32",
    loads: tuple[WorkloadPlan, ...] = (),
) -> Study:
    """A sound study. `step_ms(system, rows)` is how long a step of so many rows takes."""
    times = step_ms or (lambda system, rows: 62.0 if system != "nanoserve" else 34.0 + 3.0 * rows)
    the_plan = plan(
        run_id=run_id,
        workload=workload,
        blocks=blocks,
        seed=seed,
        device=device,
        dtype=dtype,
        loads=loads,
    )
    rng = random.Random(seed)
    rows = [_block(the_plan, index, times, spread, rng) for index in range(blocks)]
    start = Start(
        started_at="2026-01-01T00:00:01+00:00",
        revision=REVISION,
        dirty=False,
        machine=MACHINE,
        first_block=0,
        outcome="running",
    )
    facts = (
        Fact(name="cpu_model", value="Ruler CPU"),
        Fact(name="physical_cores", value=2, unit="cores"),
        Fact(name="memory", value=24 * 2**30, unit="bytes"),
    )
    return Study(plan=the_plan, blocks=rows, facts=facts, starts=[start])


def _block(
    the_plan: Plan,
    block: int,
    step_ms: Callable[[str, int], float],
    spread: float,
    rng: random.Random,
) -> BlockRows:
    cells = {cell.id: cell for cell in the_plan.cells}
    launches = {arm.name: block * len(the_plan.arms) + i for i, arm in enumerate(the_plan.arms)}
    tokens_of = {workload.name: _tokens(workload, block, rng) for workload in the_plan.workloads}
    workloads = {workload.name: workload for workload in the_plan.workloads}
    trials: list[TrialRow] = []
    requests: list[RequestRow] = []
    steps: list[StepRow] = []
    clock = (block + 1) * 10**12
    schedule = [(cell.id, True) for cell in the_plan.cells]
    schedule += [(cell, False) for cell in the_plan.orders[block]]
    for order, (cell_id, warmup) in enumerate(schedule):
        cell = cells[cell_id]
        workload = workloads[cell.workload]
        prompts, outputs, warm_prompts = tokens_of[workload.name]
        take = min(cell.slots, workload.requests) if warmup else workload.requests
        tokens = 3 if warmup else workload.new_tokens
        work = list(zip((warm_prompts if warmup else prompts)[:take], outputs[:take], strict=True))
        work = [(prompt, output[:tokens]) for prompt, output in work]
        started = clock
        key = (block, cell_id, warmup)
        noise = lambda rows, system=cell.system: max(  # noqa: E731
            1, round(step_ms(system, rows) * MS * (1 + spread * rng.gauss(0, 1)))
        )
        if cell.system == "nanoserve":
            due = () if warmup else offered(the_plan, workload, block)
            new_requests, new_steps, clock = _engine(key, work, cell.slots, clock, noise, due)
            steps += new_steps
        else:
            new_requests, clock = _serial(key, work, clock, noise)
        requests += new_requests
        wall = clock - started
        clock += 5 * MS
        trials.append(
            TrialRow(
                block=block,
                replaces=None,
                launch=launches[cell.arm],
                cell=cell_id,
                order=order,
                warmup=warmup,
                started_at=f"2026-01-01T{block:02d}:{order:02d}:10+00:00",
                started_ns=started - 1 * MS,
                wall_ns=wall + 2 * MS,
                load_before=0.5,
                load_after=0.6,
                involuntary_switches=3,
                steal_ns=0,
                cpu_ns=2 * wall - 5 * MS,
                other_cpu_ns=wall // 1000,
                peak_memory_bytes=900 * 2**20,
            )
        )
    return BlockRows(
        systems=tuple(_launch(the_plan, arm, block, launches[arm.name]) for arm in the_plan.arms),
        ceilings=(
            CeilingRow(
                block=block,
                device=the_plan.devices[0],
                dtype=the_plan.dtypes[0],
                buffer_bytes=538_000_000,
                read_bytes_per_s=28e9 * (1 + 0.01 * rng.gauss(0, 1)),
                matmul_flop_per_s=150e9 * (1 + 0.01 * rng.gauss(0, 1)),
            ),
        ),
        trials=tuple(trials),
        requests=tuple(requests),
        steps=tuple(steps),
        prompts=tuple(ids for measured, _, warm in tokens_of.values() for ids in measured + warm),
        outputs=tuple(
            ids for _, outs, _ in tokens_of.values() for ids in outs + [out[:3] for out in outs]
        ),
    )


def _tokens(
    workload: WorkloadPlan, block: int, rng: random.Random
) -> tuple[list[tuple[int, ...]], ...]:
    """Prompts, outputs and the prompts of the warm-ups."""
    lengths = workload.of_block(block)
    prompts = _token_lists(rng, [one.prompt_tokens for one in lengths])
    outputs = _token_lists(rng, [one.new_tokens for one in lengths])
    warm_prompts = _token_lists(rng, [one.prompt_tokens for one in lengths])
    for lists in (prompts, warm_prompts):
        shared = lists[0][: workload.prefix_tokens]
        lists[:] = [shared + ids[len(shared) :] for ids in lists]
    return prompts, outputs, warm_prompts


def _token_lists(rng: random.Random, lengths: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(rng.randrange(100, 49_000) for _ in range(length)) for length in lengths]


def _launch(the_plan: Plan, arm: Arm, block: int, launch: int) -> SystemRow:
    engine = arm.system == "nanoserve"
    return SystemRow(
        launch=launch,
        block=block,
        arm=arm.name,
        system=arm.system,
        version=arm.version,
        revision=arm.revision,
        shape="concurrent" if engine else "serial",
        stamps="holds first_token tokens steps" if engine else "holds first_token tokens",
        machine=MACHINE,
        device=the_plan.devices[0],
        device_name="Ruler CPU",
        dtype=the_plan.dtypes[0],
        matmul_precision="ieee",
        threads=2,
        weights=WEIGHTS,
        weight_bytes_per_step=538_000_000,
        tokenizer="sha256:" + "b" * 64,
        attention="paged-torch" if engine else "sdpa",
        cache="off",
        decoding=the_plan.decoding,
        kernel_path="torch:onednn-prepacked" if engine else "torch:F.linear",
        libraries="torch=2.13.0;transformers=5.24.0",
    )


Key = tuple[int, str, bool]
Work = list[tuple[tuple[int, ...], tuple[int, ...]]]


def _request(
    key: Key,
    index: int,
    work: tuple[tuple[int, ...], tuple[int, ...]],
    arrival: int,
    hold: Hold,
    token_ns: tuple[int, ...],
) -> RequestRow:
    prompt, output = work
    return RequestRow(
        block=key[0],
        cell=key[1],
        warmup=key[2],
        request=f"r{index}",
        prompt_sha256=token_digest(prompt),
        prompt_tokens=len(prompt),
        max_tokens=len(output),
        output_tokens=len(output),
        discarded_tokens=0,
        cached_tokens=0,
        arrival_ns=arrival,
        submitted_ns=arrival,
        holds_ns=(hold,),
        first_token_ns=token_ns[0],
        finished_ns=hold.released_ns,
        token_ns=token_ns,
        finish_reason="length",
        error=None,
        output_sha256=token_digest(output),
    )


def _serial(
    key: Key, work: Work, clock: int, step_ns: Callable[[int], int]
) -> tuple[list[RequestRow], int]:
    rows = []
    for index, item in enumerate(work):
        arrival = clock
        stamps = []
        for _ in item[1]:
            clock += step_ns(1)
            stamps.append(clock)
        clock += 1000  # what `generate` does between the last token and its return
        rows.append(_request(key, index, item, arrival, Hold(arrival, clock), tuple(stamps)))
        clock += 2000
    return rows, clock


def _engine(
    key: Key,
    work: Work,
    slots: int,
    clock: int,
    step_ns: Callable[[int], int],
    due: Sequence[int] = (),
) -> tuple[list[RequestRow], list[StepRow], int]:
    """First come, first served over `slots` rows, one end stamp per step.

    Where requests are due at instants of their own, each is submitted 1 us after it is due, or
    after the end of the step in which it is.
    """
    arrivals = [clock + due[i] if due else clock + 500 * i for i in range(len(work))]
    submitted = dict(enumerate(arrivals))
    coming = list(range(len(work))) if due else []
    waiting = [] if due else list(range(len(work)))
    if not due:
        clock = arrivals[-1] + 500
    running: dict[int, list[int]] = {}
    acquired: dict[int, int] = {}
    rows: dict[int, RequestRow] = {}
    log: list[tuple[int, int, int, int, int]] = []
    while coming or waiting or running:
        if coming and not waiting and not running:
            if log and clock < arrivals[coming[0]]:
                log.append((clock, 0, 0, 0, 0))
            clock = max(clock, arrivals[coming[0]])
        fresh = [index for index in coming if arrivals[index] <= clock]
        if fresh:
            if log and (running or (log[-1][0] < clock and log[-1][3])):
                log.append((clock, 0, 0, len(running), len(waiting)))
            coming = coming[len(fresh) :]
            waiting += fresh
            submitted |= dict.fromkeys(fresh, clock + 1000)
            clock += 2000
        admitted = []
        while waiting and len(running) < slots:
            index = waiting.pop(0)
            running[index], acquired[index] = [], clock
            admitted.append(index)
        log.append((clock, len(admitted), len(running) - len(admitted), len(running), len(waiting)))
        clock += step_ns(len(running))
        for index in list(running):
            running[index].append(clock)
            if len(running[index]) == len(work[index][1]):
                hold = Hold(acquired[index], clock)
                stamps = tuple(running.pop(index))
                row = _request(key, index, work[index], arrivals[index], hold, stamps)
                rows[index] = dataclasses.replace(row, submitted_ns=submitted[index])
    log.append((clock, 0, 0, 0, 0))
    steps = [
        StepRow(
            block=key[0],
            cell=key[1],
            warmup=key[2],
            step=number,
            start_ns=start,
            prefill_rows=prefill,
            decode_rows=decode,
            holders=holders,
            waiting=queue,
        )
        for number, (start, prefill, decode, holders, queue) in enumerate(log)
    ]
    return [rows[index] for index in range(len(work))], steps, clock
