"""Mutants that a third look at the gate got through, or found no mutant for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nanoserve_bench.plan import VOCABULARY, Arm, Fact
from nanoserve_bench.schema import CeilingRow, TrialRow, token_digest
from support import load_studies, sound
from support.mutants.base import Mutant, ledger, mutants_of
from support.rebuild import (
    BASE,
    change,
    change_arm,
    engine,
    rebuild,
    replace,
    reseal,
    set_plan,
    shifted_request,
    shifted_step,
    tamper,
    tamper_lines,
)
from support.sound import DAY44, Study, study


def first_in(blocks: int) -> Study:
    """The baseline runs first in so many of eight blocks, and last in the others, as planned."""
    broken = study()

    def place(block: int, cell: str) -> bool:
        return (cell == BASE) != (block < blocks)

    def reorder(block: int, trials: list[TrialRow]) -> list[TrialRow]:
        warm = [trial for trial in trials if trial.warmup]
        rest = [trial for trial in trials if not trial.warmup]
        return warm + sorted(rest, key=lambda trial: place(block, trial.cell))

    rebuild(broken, lambda _, rows, log: (rows, log), cells=[], reorder=reorder)
    orders = tuple(
        tuple(sorted(order, key=lambda cell: place(block, cell)))
        for block, order in enumerate(broken.plan.orders)
    )
    return set_plan(broken, orders=orders)


def with_tokens(
    table: str, edit: Callable[[tuple[int, ...]], tuple[int, ...]], vocabulary: int | None = None
) -> Study:
    """A study whose `prompts` or `outputs` are other ids, the same on every side."""
    broken = study()
    column = f"{table[:-1]}_sha256"
    for index, block in enumerate(broken.blocks):
        lists = getattr(block, table)
        digests = {token_digest(ids): token_digest(edit(ids)) for ids in lists}
        rows = tuple(
            replace(row, **{column: digests[getattr(row, column)]}) for row in block.requests
        )
        new = tuple(edit(ids) for ids in lists)
        broken.blocks[index] = replace(block, requests=rows, **{table: new})
    if vocabulary is not None:
        broken.facts += (Fact(name=VOCABULARY, value=vocabulary, unit="token ids"),)
    return broken


def caching(served: Callable[[str], int]) -> Study:
    """The prefix cache is on everywhere and served so many tokens of each request of a cell."""
    return change(
        change_arm(study(), None, cache="on"),
        "requests",
        cached_tokens=lambda row: served(row.cell),
    )


def _planned_workload(**values: Any) -> Study:
    return set_plan(study(), workloads=(replace(DAY44, **values),))


def _ceiling(**values: float) -> Study:
    broken = study()
    broken.edit("ceilings", lambda row: replace(row, **values), blocks=[3])
    return broken


def _moved_block() -> Study:
    """Block 5 with the clock of block 4, half a second later, all of it shifted alike."""
    broken = study()
    delta = 500_000_000 - 10**12
    block = broken.blocks[5]
    moved = rebuild(broken, lambda _, rows, log: (rows, log), cells=[]).blocks[5]
    assert len(moved.trials) == len(block.trials)
    broken.blocks[5] = replace(
        moved,
        trials=tuple(replace(row, started_ns=row.started_ns + delta) for row in moved.trials),
        requests=tuple(shifted_request(row, delta) for row in moved.requests),
        steps=tuple(shifted_step(row, delta) for row in moved.steps),
    )
    return broken


def _trial_of(block: int, hour: int) -> Study:
    """A sweep that went on at block 4, with a trial stamped at another hour."""
    broken = ledger({}, {"first_block": 4})
    at = f"2026-01-01T{hour:02d}:30:00+00:00"
    return change(broken, "trials", cell=engine(4), blocks=[block], started_at=at)


def _slow_load() -> Study:
    (load,) = load_studies.loads(0.9)
    made = load_studies.study(0.9)
    assert load.arrivals is not None
    slow = replace(load, arrivals=replace(load.arrivals, rate_per_s=1e-300))
    return set_plan(made, workloads=(made.plan.workloads[0], slow))


def _renamed(names: Mapping[str, str]) -> Study:
    """A study whose arms go by other names."""
    broken = study()

    def renamed(cell: str) -> str:
        arm, _, rest = cell.partition("/")
        return f"{names.get(arm, arm)}/{rest}"

    plan = broken.plan
    set_plan(
        broken,
        arms=tuple(replace(arm, name=names.get(arm.name, arm.name)) for arm in plan.arms),
        cells=tuple(
            replace(cell, id=renamed(cell.id), arm=names.get(cell.arm, cell.arm))
            for cell in plan.cells
        ),
        comparisons=tuple(
            replace(pair, baseline=renamed(pair.baseline), candidate=renamed(pair.candidate))
            for pair in plan.comparisons
        ),
        orders=tuple(tuple(map(renamed, order)) for order in plan.orders),
    )
    broken.edit("systems", lambda row: replace(row, arm=names.get(row.arm, row.arm)))
    for table in ("trials", "requests", "steps"):
        broken.edit(table, lambda row: replace(row, cell=renamed(row.cell)))
    return broken


def _left_over(edit: Callable[[Mapping[str, str]], Mapping[str, str]], name: str) -> Any:
    """A row more: the first one of a file, edited."""

    def add(lines: list[str]) -> list[str]:
        names = lines[0].split(",")
        row = edit(dict(zip(names, lines[1].split(","), strict=True)))
        return [*lines, ",".join(row[column] for column in names)]

    return tamper_lines(name, add)


def _cell(name: str, column: str, edit: Callable[[str], str]) -> Callable[[Path], Path]:
    """Edit a value in the first row of a file."""

    def change_lines(lines: list[str]) -> list[str]:
        cells = lines[1].split(",")
        place = lines[0].split(",").index(column)
        cells[place] = edit(cells[place])
        return [lines[0], ",".join(cells), *lines[2:]]

    return tamper_lines(name, change_lines)


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "RUN018",
        (
            "one-tiny-ceiling",
            "A block read its buffer at one byte a second.",
            lambda: _ceiling(read_bytes_per_s=1.0),
        ),
        (
            "one-tiny-matrix-rate",
            "A block multiplied at a millionth of what the others did.",
            lambda: _ceiling(matmul_flop_per_s=150e3),
        ),
    ),
    *mutants_of(
        "RUN020",
        (
            "prompts-shorter-than-planned",
            "The plan has prompts of 600 tokens, and every side ran six.",
            lambda: _planned_workload(prompt_tokens=600),
        ),
        (
            "asked-for-less-than-planned",
            "The plan asks for 64 tokens, and every side was asked for 16.",
            lambda: _planned_workload(new_tokens=64),
        ),
    ),
    *mutants_of(
        "RUN024",
        (
            "negative-ids-everywhere",
            "The last token of every output is -1, on every side.",
            lambda: with_tokens("outputs", lambda ids: (*ids[:-1], -1)),
        ),
        (
            "negative-prompts-everywhere",
            "Every prompt begins with -100, on every side.",
            lambda: with_tokens("prompts", lambda ids: (-100, *ids[1:])),
        ),
        (
            "ids-beyond-the-vocabulary",
            "Every output has an id that the model's recorded vocabulary ends before.",
            lambda: with_tokens("outputs", lambda ids: (49_152, *ids[1:]), vocabulary=49_152),
        ),
        (
            "ids-beyond-any-vocabulary",
            "Every output has an id of eleven digits, and no vocabulary is recorded.",
            lambda: with_tokens("outputs", lambda ids: (10**10, *ids[1:])),
        ),
    ),
    *mutants_of(
        "PAIR006",
        (
            "digest-cut-short",
            "Both sides name their weights by the first eight digits of a digest.",
            lambda: change_arm(study(), None, weights="sha256:" + "a" * 8),
        ),
    ),
    *mutants_of(
        "PAIR010",
        (
            "served-more-on-one-side",
            "The cache is on everywhere: the engine took five of six tokens from it, others one.",
            lambda: caching(lambda cell: 5 if cell.startswith("nanoserve") else 1),
        ),
    ),
    *mutants_of(
        "PAIR012",
        (
            "tokenizer-cut-short",
            "Both sides name their tokenizer by the first eight digits of a digest.",
            lambda: change_arm(study(), None, tokenizer="sha256:" + "b" * 8),
        ),
    ),
    *mutants_of(
        "STAT002",
        (
            "first-in-seven-of-eight",
            "The baseline ran first in seven of eight blocks, as planned.",
            lambda: first_in(7),
        ),
        (
            "two-blocks-at-once",
            "The trials of a block ran while those of the one before it did.",
            _moved_block,
        ),
    ),
    *mutants_of(
        "STAT006",
        (
            "trial-of-the-start-before",
            "A trial of the second start is as old as the first one.",
            lambda: _trial_of(5, 2),
        ),
        (
            "trial-of-the-next-start",
            "A trial of the first start is younger than the second one.",
            lambda: _trial_of(2, 6),
        ),
    ),
    *mutants_of(
        "REP004",
        (
            "leading-zero",
            "An arrival is written with a zero before it.",
            None,
            _cell("requests.csv", "arrival_ns", lambda text: f"0{text}"),
        ),
        (
            "leading-zero-of-a-rate",
            "A ceiling is written with a zero before it.",
            None,
            _cell("ceilings.csv", "read_bytes_per_s", lambda text: f"0{text}"),
        ),
        (
            "minus-zero",
            "Nothing was cached, with a minus.",
            None,
            _cell("requests.csv", "cached_tokens", lambda text: f"-{text}"),
        ),
        (
            "plan-beyond-64-bits",
            "The seed of the plan is larger than 64 bits.",
            None,
            lambda path: tamper(
                path,
                "plan.json",
                lambda text: text.replace('"seed": 44', f'"seed": {10**20}'),
            ),
        ),
        (
            "half-a-letter",
            "The model's name has a surrogate, which UTF-8 cannot write.",
            None,
            lambda path: tamper(
                path,
                "plan.json",
                lambda text: text.replace('"model": "smollm2-135m"', '"model": "smollm2-\\ud800"'),
            ),
        ),
    ),
    *mutants_of(
        "REP008",
        (
            "launch-left-over",
            "A worker was launched whose trials are not there.",
            None,
            _left_over(lambda row: {**row, "launch": "999"}, "systems.csv"),
        ),
        (
            "ceiling-of-a-lost-block",
            "A ceiling is of a block that is not there.",
            None,
            _left_over(lambda row: {**row, "block": "99"}, CeilingRow.FILE),
        ),
        (
            "ceiling-of-another-device",
            "A ceiling is of a device that the plan does not measure.",
            None,
            _left_over(lambda row: {**row, "device": "cuda:0"}, CeilingRow.FILE),
        ),
        (
            "ceiling-of-another-dtype",
            "A ceiling is of a dtype that the plan does not measure.",
            None,
            _left_over(lambda row: {**row, "dtype": "float16"}, CeilingRow.FILE),
        ),
        (
            "manifest-of-another-run",
            "The manifest is of another run than the plan.",
            None,
            lambda path: reseal(path, run_id="20260101-cpu-day44-7654321"),
        ),
    ),
    *mutants_of(
        "REP010",
        (
            "slots-listed-for-nothing",
            "The workload lists 16 slots, and nobody measured them.",
            lambda: _planned_workload(slots=(1, 2, 4, 8, 16)),
        ),
        (
            "device-without-a-cell",
            "The plan measures a card, and has no cell on it.",
            lambda: set_plan(study(), devices=("cpu", "cuda:0")),
        ),
        (
            "device-measured-and-skipped",
            "The plan says that the CPU is measured, and that it is skipped.",
            lambda: set_plan(
                study(),
                skipped_devices=(sound.SkippedDevice(device="cpu", reason="too slow"),),
            ),
        ),
        (
            "dtype-without-a-cell",
            "The plan measures bfloat16, and has no cell in it.",
            lambda: set_plan(study(), dtypes=("float32", "bfloat16")),
        ),
        (
            "workload-without-a-cell",
            "The plan has a second workload, and no cell runs it.",
            lambda: set_plan(study(), workloads=(DAY44, replace(DAY44, name="long-prompt"))),
        ),
        (
            "arm-without-a-cell",
            "The plan has an arm that runs nothing.",
            lambda: set_plan(
                study(),
                arms=(*sound.plan().arms, Arm(name="vllm", system="vllm", version="0.32.0")),
            ),
        ),
        (
            "arm-in-another-name",
            "The A/A arm is called by the name of a rival's system.",
            lambda: _renamed({"nanoserve": "mine", "hf-generate-again": "nanoserve"}),
        ),
        (
            "load-of-nothing",
            "The plan offers one request in more time than there is.",
            _slow_load,
        ),
        (
            "target-below-zero",
            "The plan stops at an interval of negative width.",
            lambda: set_plan(study(), blocks=replace(sound.plan().blocks, target_half_width=-0.05)),
        ),
    ),
)
