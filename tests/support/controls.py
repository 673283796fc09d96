"""Clean controls: sound studies that look unusual, and that the gate must accept whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoserve_bench.plan import WorkloadPlan
from support import load_studies, ways
from support.composed import together, two_devices, two_revisions, usual, without_holds
from support.loops import Policy, scheduled
from support.mutants.base import ledger, prompts, replaced, stopping
from support.mutants.third import first_in, with_tokens
from support.rebuild import (
    ALL_CELLS,
    as_planned,
    change,
    change_arm,
    engine,
    replace,
    rerun,
    set_plan,
)
from support.sound import DAY44, Study, ragged_plan, study


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
    rerun(clean, ALL_CELLS, step_ms=usual, outputs=lambda index, ids: ids[: 3 + index])
    return as_planned(clean)


def _long_tail() -> Study:
    """The last request drains alone, and the mean batch goes soft."""
    return as_planned(
        rerun(
            study(),
            ALL_CELLS,
            step_ms=usual,
            outputs=lambda index, ids: ids if index == 7 else ids[:4],
        )
    )


def _planned() -> Study:
    return study(workload=ragged_plan())


def _untimed() -> Study:
    clean = study()
    ways.blank_warmups(clean, "hf-generate-again")
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
        (
            "open-loop-of-many-lengths",
            "An open loop whose requests have prompts of four lengths.",
            load_studies.of_many_lengths,
        ),
        (
            "a-coarse-clock",
            "The clock ticks ten thousand times a second, and spans come again and again.",
            lambda: ways.coarse_clock(100_000),
        ),
        (
            "a-fine-clock",
            "The clock ticks a million times a second.",
            lambda: ways.coarse_clock(1000),
        ),
        (
            "preempted",
            "Requests lose their slot and get it back.",
            lambda: scheduled(study(), Policy(preempts=True)),
        ),
        (
            "preempted-and-kept",
            "Requests lose their slot, keep their cache, and go on with a decode.",
            lambda: scheduled(study(), Policy(preempts=True, keeps=True)),
        ),
        (
            "cut-prompts",
            "Every prompt is spread over three steps, and only the last gives a token.",
            lambda: scheduled(study(), Policy(pieces=3)),
        ),
        (
            "cut-prompts-preempted",
            "Prompts are spread over two steps, and are computed again after a preemption.",
            lambda: scheduled(study(), Policy(pieces=2, preempts=True)),
        ),
        (
            "static-batches-with-a-log",
            "A static batch keeps a step log, and its rows run on until the last is done.",
            lambda: scheduled(ways.ragged_outputs(), Policy(static=True), slots=(1, 2, 4, 8)),
        ),
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
        (
            "resumed-after-a-reboot",
            "The machine was started anew between two blocks, and its clock with it.",
            ways.after_a_reboot,
        ),
        (
            "first-in-six-of-eight",
            "The baseline happened to run first in six of eight blocks.",
            lambda: first_in(6),
        ),
        (
            "serial-arms-alone",
            "The workload lists slots, and no arm of the sweep has more than one.",
            ways.serial_alone,
        ),
        (
            "caches-of-other-blocks",
            "The prefix cache is on everywhere, and keeps blocks of another size on each side.",
            ways.blocks_of_other_sizes,
        ),
        (
            "probe-in-company",
            "The ceilings of one block were measured on a busy machine.",
            ways.probe_in_company,
        ),
        (
            "vocabulary-used-to-its-end",
            "The vocabulary is recorded, and outputs begin with its first id and its last.",
            lambda: with_tokens("outputs", lambda ids: (0, 49_151, *ids[2:]), vocabulary=49_152),
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
        ("static-batches", "Rows are held until their batch returns.", ways.static),
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
