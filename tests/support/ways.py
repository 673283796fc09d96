"""Sound studies of systems and sweeps that work in other ways than the default one."""

from __future__ import annotations

import random

from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support.composed import usual
from support.mutants.base import ledger
from support.rebuild import (
    ALL_CELLS,
    as_planned,
    change,
    change_arm,
    engine,
    rebuild,
    replace,
    rerun,
    set_plan,
    shifted_request,
    shifted_step,
)
from support.sound import DAY44, MS, Study, study


def ragged_outputs() -> Study:
    """Outputs of 9 to 16 tokens."""
    return as_planned(
        rerun(study(), ALL_CELLS, step_ms=usual, outputs=lambda index, ids: ids[: 9 + index])
    )


def static() -> Study:
    """The engine's arm runs static batches: rows are held, and unfinished, until all return."""
    clean = ragged_outputs()
    rng = random.Random(5)

    def make(
        trial: TrialRow, requests: list[RequestRow], _steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        slots = int(trial.cell.split("/")[3])
        start = min(row.arrival_ns for row in requests)
        clock = start + MS
        made = []
        for first in range(0, len(requests), slots):
            batch = requests[first : first + slots]
            longest = max(row.output_tokens for row in batch)
            end = clock + round(longest * 45 * MS * (1 + 0.01 * rng.gauss(0, 1)))
            made += [
                replace(
                    row, arrival_ns=start, submitted_ns=start, holds_ns=(Hold(clock, end),),
                    finished_ns=end, first_token_ns=None, token_ns=None,
                    discarded_tokens=longest - row.output_tokens,
                )
                for row in batch
            ]  # fmt: skip
            clock = end
        return made, []

    rebuild(clean, make, cells=[engine(n) for n in (1, 2, 4, 8)])
    blank_warmups(clean, "nanoserve")
    return change_arm(clean, "nanoserve", stamps="holds")


def blank_warmups(clean: Study, arm: str) -> None:
    """Warm-ups of a system that stamps holds alone, and keeps no step log."""
    clean.edit(
        "requests",
        lambda row: replace(row, first_token_ns=None, token_ns=None),
        where=lambda row: row.cell.startswith(f"{arm}/"),
    )
    clean.edit("steps", lambda _: None, where=lambda row: row.cell.startswith(f"{arm}/"))


def after_a_reboot() -> Study:
    """The machine was started anew before block 4: its clock began again, and its time went on."""
    clean = ledger({}, {"first_block": 4})
    back = -4 * 10**12 + 10**9
    for index in range(4, 8):
        block = clean.blocks[index]
        clean.blocks[index] = replace(
            block,
            trials=tuple(replace(row, started_ns=row.started_ns + back) for row in block.trials),
            requests=tuple(shifted_request(row, back) for row in block.requests),
            steps=tuple(shifted_step(row, back) for row in block.steps),
        )
    return clean


def serial_alone() -> Study:
    """Two arms that run one request at a time, of a workload that lists slots for others."""
    clean = study()
    plan = clean.plan

    def kept(cell: str) -> bool:
        return not cell.startswith("nanoserve/")

    set_plan(
        clean,
        arms=tuple(arm for arm in plan.arms if arm.name != "nanoserve"),
        cells=tuple(cell for cell in plan.cells if kept(cell.id)),
        comparisons=tuple(pair for pair in plan.comparisons if kept(pair.candidate)),
        orders=tuple(tuple(filter(kept, order)) for order in plan.orders),
    )
    clean.edit("systems", lambda _: None, where=lambda row: row.arm == "nanoserve")
    for table in ("trials", "requests", "steps"):
        clean.edit(table, lambda _: None, where=lambda row: not kept(row.cell))
    return clean


def blocks_of_other_sizes() -> Study:
    """The engine's cache keeps 16 of 24 prompt tokens, the baselines' keep 18."""
    clean = change_arm(study(workload=replace(DAY44, prompt_tokens=24)), None, cache="on")
    return change(
        clean,
        "requests",
        cached_tokens=lambda row: 16 if row.cell.startswith("nanoserve") else 18,
    )


def probe_in_company() -> Study:
    """Something else ran while one block's ceilings were measured."""
    clean = study()
    clean.edit(
        "ceilings",
        lambda row: replace(row, read_bytes_per_s=6e9, matmul_flop_per_s=24e9),
        blocks=[2],
    )
    return clean


def coarse_clock(unit_ns: int) -> Study:
    """All stamps are of a clock that ticks in units of so many nanoseconds."""
    clean = study()

    def up(stamp: int) -> int:
        return -(-stamp // unit_ns) * unit_ns

    for index, block in enumerate(clean.blocks):
        clean.blocks[index] = replace(
            block,
            requests=tuple(
                replace(
                    row,
                    arrival_ns=up(row.arrival_ns),
                    submitted_ns=up(row.submitted_ns),
                    holds_ns=tuple(Hold(*map(up, hold)) for hold in row.holds_ns or ()),
                    first_token_ns=up(row.first_token_ns or 0),
                    finished_ns=up(row.finished_ns or 0),
                    token_ns=tuple(map(up, row.token_ns or ())),
                )
                for row in block.requests
            ),
            steps=tuple(replace(row, start_ns=up(row.start_ns)) for row in block.steps),
        )
    return clean
