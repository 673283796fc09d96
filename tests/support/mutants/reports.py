"""Mutants of the rules about the folder as a promise (REP009 to REP015)."""

from __future__ import annotations

from pathlib import Path

from nanoserve_bench.plan import AcknowledgedRefusal, PlannedComparison
from support import sound
from support.composed import without_holds
from support.mutants.base import (
    Mutant,
    altered_token,
    mutants_of,
)
from support.rebuild import (
    BASE,
    engine,
    measured,
    replace,
    reseal,
    set_plan,
    tamper,
    tamper_lines,
)
from support.sound import Study, ragged_plan, study

RAGGED = ragged_plan(blocks=10)


def _without_cell_in(block: int) -> Study:
    broken = study()
    for table in ("trials", "requests", "steps"):
        broken.edit(table, lambda _: None, where=measured(engine(4)), blocks=[block])
    return broken


def _shrink_plan(path: Path) -> Path:
    """Take a comparison that did not please out of the plan, afterwards."""
    candidate = engine(8)

    def edit(text: str) -> str:
        plan = sound.plan()
        from nanoserve_bench import documents  # noqa: PLC0415

        kept = tuple(pair for pair in plan.comparisons if pair.candidate != candidate)
        return documents.encode(replace(plan, comparisons=kept))

    return tamper(path, "plan.json", edit)


def _acknowledge_afterwards(path: Path) -> Path:
    def edit(text: str) -> str:
        from nanoserve_bench import documents  # noqa: PLC0415

        refusal = AcknowledgedRefusal(cell=engine(4), rule="PAIR005", reason="a near-tie")
        return documents.encode(sound.plan(acknowledged=(refusal,)))

    return tamper(path, "plan.json", edit)


def _summary(path: Path) -> Path:
    def edit(text: str) -> str:
        header, first, *rest = text.splitlines()
        cells = first.split(",")
        column = header.split(",").index("throughput_tok_per_s")
        cells[column] = repr(float(cells[column]) * 1.001)
        return "\n".join([header, ",".join(cells), *rest]) + "\n"

    return tamper(path, "sweep.csv", edit)


def _without_warmups() -> Study:
    broken = study()
    for table in ("trials", "requests", "steps"):
        broken.edit(table, lambda _: None, where=lambda row: row.warmup, blocks=[3])
    return broken


def _holes_as_zero(lines: list[str]) -> list[str]:
    header, *rows = lines
    column = header.split(",").index("batch_occupancy_rows")
    cells = [row.split(",") for row in rows]
    filled = [[*row[:column], row[column] or "0.0", *row[column + 1 :]] for row in cells]
    return [header, *(",".join(row) for row in filled)]


def _without_cell() -> Study:
    broken = study()
    for table in ("trials", "requests", "steps"):
        broken.edit(table, lambda _: None, where=lambda row: row.cell == engine(4))
    return broken


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "REP009",
        (
            "unfinished",
            "The sweep was never finished.",
            None,
            lambda path: reseal(path, complete=False),
        ),
    ),
    *mutants_of(
        "REP010",
        ("cell-missing-once", "A cell is missing in block 3.", lambda: _without_cell_in(3)),
        ("cell-missing-everywhere", "A cell was declared and never measured.", _without_cell),
        (
            "block-missing",
            "The manifest says that nine blocks are done.",
            None,
            lambda path: reseal(path, blocks_done=9),
        ),
        (
            "warm-up-missing",
            "The warm-ups of one block were not kept.",
            _without_warmups,
        ),
        (
            "compared-with-itself",
            "The plan compares a cell with its own rows.",
            lambda: set_plan(
                study(),
                comparisons=(
                    *sound.plan().comparisons,
                    PlannedComparison(baseline=engine(4), candidate=engine(4), kind="rival"),
                ),
            ),
        ),
        (
            "lengths-beyond-the-longest",
            "The plan calls requests of six tokens its longest, and records longer ones.",
            lambda: set_plan(
                study(workload=ragged_plan()),
                workloads=(replace(ragged_plan(), prompt_tokens=6),),
            ),
        ),
        (
            "half-a-block-of-lengths",
            "The plan records the lengths of nine and a half blocks.",
            lambda: set_plan(
                study(workload=RAGGED),
                workloads=(replace(RAGGED, lengths=RAGGED.lengths[:76]),),
            ),
        ),
        (
            "one-system-as-rivals",
            "The plan calls the A/A pair rivals.",
            lambda: set_plan(
                study(),
                comparisons=tuple(replace(pair, kind="rival") for pair in sound.plan().comparisons),
            ),
        ),
        (
            "comparison-of-nothing",
            "The plan compares a cell that it does not declare.",
            lambda: set_plan(
                study(),
                comparisons=(
                    *sound.plan().comparisons,
                    PlannedComparison(baseline=BASE, candidate=engine(3), kind="rival"),
                ),
            ),
        ),
    ),
    *mutants_of(
        "REP011",
        (
            "plan-shrunk",
            "A comparison was taken out of the plan afterwards.",
            None,
            _shrink_plan,
        ),
        (
            "acknowledged-afterwards",
            "A refusal was acknowledged after it was seen.",
            altered_token,
            _acknowledge_afterwards,
        ),
        (
            "plan-of-later",
            "The plan is younger than the trials.",
            lambda: set_plan(study(), created_at="2026-02-01T00:00:00+00:00"),
        ),
    ),
    *mutants_of(
        "REP012",
        ("summary-improved", "The summary says 0.1 % more.", None, _summary),
        (
            "hole-as-zero",
            "The summary writes 0 where a system does not tell its slots.",
            without_holds,
            tamper_lines("sweep.csv", _holes_as_zero),
        ),
        (
            "summary-without-a-cell",
            "The summary leaves out the cell that did not please.",
            None,
            tamper_lines("sweep.csv", lambda lines: lines[:-1]),
        ),
    ),
    *mutants_of(
        "REP013",
        (
            "acknowledged-for-nothing",
            "The plan acknowledges a refusal that does not occur.",
            lambda: set_plan(
                study(),
                acknowledged=(
                    AcknowledgedRefusal(cell=engine(4), rule="PAIR005", reason="a near-tie"),
                ),
            ),
        ),
        (
            "acknowledged-without-reason",
            "The plan acknowledges a refusal and gives no reason.",
            lambda: set_plan(
                altered_token(),
                acknowledged=(AcknowledgedRefusal(cell=engine(4), rule="PAIR005", reason=""),),
            ),
        ),
    ),
    *mutants_of(
        "REP015",
        (
            "unknown-shape",
            "The engine is of a shape that nobody knows.",
            None,
            lambda path: tamper(
                path, "systems.csv", lambda text: text.replace("concurrent", "oval")
            ),
        ),
    ),
)
