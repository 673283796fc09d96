"""Clean controls: sound studies that look unusual, and that the gate must accept whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support import load_studies
from support.composed import together, two_devices, two_revisions, usual, without_holds
from support.mutants.base import ledger, prompts, replaced, stopping
from support.rebuild import (
    ALL_CELLS,
    change,
    change_arm,
    engine,
    rebuild,
    replace,
    rerun,
    set_plan,
)
from support.sound import DAY44, MS, Study, ragged_plan, study


@dataclass(frozen=True, kw_only=True)
class Control:
    """A sound folder that a hasty rule might refuse."""

    name: str
    story: str
    make: Callable[[], Study]

    def write(self, path: Path) -> Path:
        """Write the folder."""
        return self.make().write(path)


def _workload(requests: int, *slots: int) -> Study:
    return study(
        workload=WorkloadPlan(
            name="day44", requests=requests, prompt_tokens=6, new_tokens=16, slots=slots
        )
    )


def _ragged() -> Study:
    clean = prompts(study(), lambda number, ids: ids[: 2 + number % 4], blocks=range(8))
    return rerun(clean, ALL_CELLS, step_ms=usual, outputs=lambda index, ids: ids[: 3 + index])


def _long_tail() -> Study:
    """The last request drains alone, and the mean batch goes soft."""
    return rerun(
        study(),
        ALL_CELLS,
        step_ms=usual,
        outputs=lambda index, ids: ids if index == 7 else ids[:4],
    )


def _planned() -> Study:
    return study(workload=ragged_plan())


def _preempted() -> Study:
    """At step 5 the youngest request loses its slot, and gets it back three steps later."""
    rng = random.Random(11)

    def make(
        trial: TrialRow, requests: list[RequestRow], _steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        slots = int(trial.cell.split("/")[3])
        arrival = {row.request: row.arrival_ns for row in requests}
        waiting = [row.request for row in requests]
        left = {row.request: row.output_tokens for row in requests}
        stamps: dict[str, list[int]] = {name: [] for name in waiting}
        holds: dict[str, list[Hold]] = {name: [] for name in waiting}
        since: dict[str, int] = {}
        clock = max(arrival.values()) + 500
        steps: list[StepRow] = []
        while waiting or since:
            number = len(steps)
            if number == 5 and len(since) > 1:
                victim = max(since, key=lambda name: since[name])
                holds[victim].append(Hold(since.pop(victim), clock))
                waiting.insert(0, victim)
            room = slots if not 5 <= number < 8 else slots - 1
            prefill = 0
            while waiting and len(since) < room:
                since[waiting.pop(0)] = clock
                prefill += 1
            steps.append(
                StepRow(
                    block=trial.block, cell=trial.cell, warmup=False, step=number, start_ns=clock,
                    prefill_rows=prefill, decode_rows=len(since) - prefill, holders=len(since),
                    waiting=len(waiting),
                )
            )  # fmt: skip
            clock += round(40 * MS * (1 + 0.01 * rng.gauss(0, 1)))
            for name in list(since):
                stamps[name].append(clock)
                left[name] -= 1
                if not left[name]:
                    holds[name].append(Hold(since.pop(name), clock))
        steps.append(
            replace(
                steps[-1], step=len(steps), start_ns=clock, prefill_rows=0, decode_rows=0,
                holders=0, waiting=0,
            )
        )  # fmt: skip
        made = [
            replace(
                row,
                holds_ns=tuple(holds[row.request]),
                first_token_ns=stamps[row.request][0],
                token_ns=tuple(stamps[row.request]),
                finished_ns=stamps[row.request][-1],
            )
            for row in requests
        ]
        return made, steps

    return rebuild(study(), make, cells=[engine(2), engine(4), engine(8)])


def _static() -> Study:
    """The engine's arm runs static batches: rows are held, and unfinished, until all return."""
    clean = rerun(study(), ALL_CELLS, step_ms=usual, outputs=lambda index, ids: ids[: 9 + index])
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
    _blank_warmups(clean, "nanoserve")
    return change_arm(clean, "nanoserve", stamps="holds")


def _blank_warmups(clean: Study, arm: str) -> None:
    """Warm-ups of a system that stamps holds alone, and keeps no step log."""
    clean.edit(
        "requests",
        lambda row: replace(row, first_token_ns=None, token_ns=None),
        where=lambda row: row.cell.startswith(f"{arm}/"),
    )
    clean.edit("steps", lambda _: None, where=lambda row: row.cell.startswith(f"{arm}/"))


def _untimed() -> Study:
    clean = study()
    _blank_warmups(clean, "hf-generate-again")
    return change_arm(clean, "hf-generate-again", stamps="holds")


def _shuffled() -> Study:
    clean = study()
    rng = random.Random(1)
    for index, block in enumerate(clean.blocks):
        tables: dict[str, Any] = {}
        for table in ("systems", "trials", "requests", "steps", "prompts", "outputs"):
            rows = list(getattr(block, table))
            rng.shuffle(rows)
            tables[table] = tuple(rows)
        clean.blocks[index] = replace(block, **tables)
    return clean


def _fast_memory() -> Study:
    clean = study(step_ms=lambda system, rows: 62.0 if system != "nanoserve" else 21.0 + 2 * rows)
    for index, block in enumerate(clean.blocks):
        rows = tuple(replace(row, read_bytes_per_s=20e9 + index) for row in block.ceilings)
        clean.blocks[index] = replace(block, ceilings=rows)
    return clean


def _thirty_cells() -> Study:
    """A wide spread in one cell, of which the slowest block happens to be the first."""
    pace = (1.07, 0.98, 1.02, 1.0, 0.975, 1.03, 0.99, 1.01)
    return rerun(
        _workload(32, *range(1, 29)),
        [engine(5)],
        step_ms=lambda trial, rows: usual(trial, rows) * pace[trial.block],
    )


def _eos() -> Study:
    """EOS is honoured, and some outputs end with it."""
    clean = set_plan(study(), decoding="greedy;eos=2")
    rerun(
        clean,
        ALL_CELLS,
        step_ms=usual,
        outputs=lambda index, ids: (*ids[: 3 + index], 2) if index % 2 else ids,
    )
    change(
        clean,
        "requests",
        max_tokens=16,
        finish_reason=lambda row: "length" if row.output_tokens == 16 else "stop",
    )
    return change_arm(clean, None, decoding="greedy;eos=2")


CONTROLS: tuple[Control, ...] = tuple(
    Control(name=name, story=story, make=make)
    for name, story, make in (
        ("default", "The default study.", study),
        ("one-slot", "Only one slot was asked for.", lambda: _workload(8, 1)),
        ("one-request", "A workload of one request.", lambda: _workload(1, 1)),
        (
            "fewer-requests-than-slots",
            "Two requests for four slots.",
            lambda: _workload(2, 1, 2, 4),
        ),
        (
            "a-card",
            "A card in bfloat16.",
            lambda: study(device="cuda:0", dtype="bfloat16"),
        ),
        (
            "two-devices",
            "The CPU and a card, in one sweep.",
            two_devices,
        ),
        (
            "two-dtypes",
            "float32 and bfloat16, in one sweep.",
            lambda: together(study(), study(dtype="bfloat16")),
        ),
        ("ragged", "Prompts and outputs of many lengths.", _ragged),
        ("ragged-as-planned", "Lengths that the plan records, the same in every block.", _planned),
        (
            "a-file-dealt-out",
            "Every block has the lengths that the plan records for it.",
            lambda: study(workload=ragged_plan(blocks=10)),
        ),
        (
            "shared-prefix",
            "The prompts of a block begin alike.",
            lambda: study(workload=replace(DAY44, prompt_tokens=9, prefix_tokens=5)),
        ),
        (
            "open-loops",
            "Half of the capacity, nearly all of it, and half as much again.",
            lambda: load_studies.study(0.5, 0.9, 1.5),
        ),
        (
            "constant-arrivals",
            "An open loop with equal gaps, and an objective.",
            lambda: load_studies.study(0.7, process="constant", objective_ttft_ms=500.0),
        ),
        (
            "open-loop-in-one-slot",
            "An open loop that only one slot serves.",
            lambda: load_studies.study(0.1, slots=1),
        ),
        ("preempted", "Requests lose their slot and get it back.", _preempted),
        (
            "prefix-cache-on-both-sides",
            "The prefix cache is on, and served as much on both sides.",
            lambda: change(change_arm(study(), None, cache="on"), "requests", cached_tokens=4),
        ),
        ("rows-in-another-order", "The rows of every file are shuffled.", _shuffled),
        (
            "untied-head",
            "The engine reads a head of its own in every step.",
            lambda: change_arm(study(), "nanoserve", weight_bytes_per_step=651_000_000),
        ),
        (
            "other-libraries",
            "The rival brings other library versions.",
            lambda: change_arm(study(), "nanoserve", libraries="openvino=2026.4.1"),
        ),
        (
            "converted-weights",
            "The rival runs a declared conversion of the weights.",
            lambda: change_arm(study(), "nanoserve", weights="declared:F32 GGUF of the same"),
        ),
        (
            "memory-faster-than-its-probe",
            "The memory reads a third faster in the run than in any probe.",
            _fast_memory,
        ),
        (
            "one-of-thirty-unsettled",
            "Of thirty cells one has a first block that is slower by chance.",
            _thirty_cells,
        ),
        (
            "disturbed-block-run-again",
            "A disturbed block was run again within the limit.",
            lambda: replaced(disturbed=True),
        ),
        (
            "interrupted-and-resumed",
            "The sweep was killed three times, once before its first block was done.",
            lambda: ledger({}, {}, {"first_block": 3}, {"first_block": 7}),
        ),
        ("no-holds", "An endpoint that tells nothing of its slots.", without_holds),
        (
            "a-declared-server",
            "A server's settings are declared, and are those of the other side.",
            lambda: change_arm(
                without_holds(),
                "nanoserve",
                weights="declared:the same",
                cache="declared:off",
                matmul_precision="declared:ieee",
            ),
        ),
        (
            "slots-of-another-kind",
            "The rival's slots are connections, and no rows of a batch.",
            lambda: change_arm(
                study(), "nanoserve", stamps="holds=connection first_token tokens steps"
            ),
        ),
        (
            "declared-everywhere",
            "Every side runs the same declared conversion.",
            lambda: change_arm(study(), None, weights="declared:F32 GGUF of the same"),
        ),
        ("one-drains-alone", "One request is four times as long as the others.", _long_tail),
        ("untimed", "The A/A arm stamps no tokens.", _untimed),
        ("static-batches", "Rows are held until their batch returns.", _static),
        ("eos-honoured", "Some outputs end with EOS.", _eos),
        ("two-revisions", "The engine at two commits.", two_revisions),
        (
            "stopped-at-its-target",
            "The sweep stopped when its intervals were narrow enough.",
            lambda: stopping(5, 12, there=8, target=0.05),
        ),
        (
            "slower-rival",
            "The engine is slower than the baseline.",
            lambda: study(step_ms=lambda s, r: 62.0 if s != "nanoserve" else 100.0 * r),
        ),
        (
            "machine-that-tells-little",
            "The machine tells the worker's CPU time and nothing else.",
            lambda: change(
                study(),
                "trials",
                other_cpu_ns=None,
                steal_ns=None,
                involuntary_switches=None,
                load_before=None,
                load_after=None,
                peak_memory_bytes=None,
            ),
        ),
        (
            "outside-of-a-repository",
            "Neither the revision nor the state of the tree is known.",
            lambda: set_plan(ledger({"revision": None, "dirty": None}), revision=None, dirty=None),
        ),
    )
)
