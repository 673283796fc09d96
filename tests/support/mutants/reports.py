"""Mutants of the rules about the folder (REP001 to REP015)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nanoserve_bench.plan import AcknowledgedRefusal, FileDigest, PlannedComparison
from support import sound
from support.mutants.base import (
    Mutant,
    altered_token,
    mutants_of,
)
from support.rebuild import (
    BASE,
    engine,
    manifest_of,
    measured,
    replace,
    reseal,
    set_plan,
    tamper,
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


def _csv_edit(name: str, old: str, new: str) -> Callable[[Path], Path]:
    return lambda path: tamper(path, name, lambda text: text.replace(old, new, 1))


def _without_warmups() -> Study:
    broken = study()
    for table in ("trials", "requests", "steps"):
        broken.edit(table, lambda _: None, where=lambda row: row.warmup, blocks=[3])
    return broken


def _nan(path: Path) -> Path:
    def edit(text: str) -> str:
        header, first, *rest = text.splitlines()
        cells = first.split(",")
        cells[4] = "nan"
        return "\n".join([header, ",".join(cells), *rest]) + "\n"

    return tamper(path, "ceilings.csv", edit)


def _doubled(path: Path) -> Path:
    def edit(text: str) -> str:
        return text + text.splitlines()[1] + "\n"

    return tamper(path, "requests.csv", edit)


def _token(path: Path) -> Path:
    def edit(text: str) -> str:
        header, first, *rest = text.splitlines()
        digest, _, ids = first.partition(",")
        return "\n".join([header, f"{digest},7 {ids.partition(' ')[2]}", *rest]) + "\n"

    return tamper(path, "outputs.csv", edit)


def _entered(path: Path, edit: Callable[[Any], Any]) -> Path:
    """Change what the manifest says of requests.csv, and the file not."""
    files = manifest_of(path).files
    changed = tuple(edit(entry) if entry.name == "requests.csv" else entry for entry in files)
    return reseal(path, files=changed)


def _false_entry(path: Path) -> FileDigest:
    entry = next(entry for entry in manifest_of(path).files if entry.name == "requests.csv")
    false: FileDigest = replace(entry, sha256="f" * 64)
    return false


def _unsealed(path: Path) -> None:
    file = path / "requests.csv"
    text = file.read_text("utf-8")
    file.write_text(text.replace(",length,", ",stop,", 1), "utf-8")


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "REP001",
        ("file-gone", "outputs.csv is gone.", None, lambda p: (p / "outputs.csv").unlink()),
    ),
    *mutants_of(
        "REP002",
        (
            "another-schema",
            "The plan is of schema 2.",
            None,
            _csv_edit("plan.json", '"schema": 1', '"schema": 2'),
        ),
    ),
    *mutants_of(
        "REP003",
        (
            "renamed-column",
            "A column is renamed.",
            None,
            _csv_edit("trials.csv", "wall_ns", "wall_s"),
        ),
    ),
    *mutants_of("REP004", ("nan", "A NaN among the ceilings.", None, _nan)),
    *mutants_of("REP005", ("doubled-row", "A request stands twice.", None, _doubled)),
    *mutants_of("REP006", ("token-edited", "One id of an output is edited.", None, _token)),
    *mutants_of(
        "REP007",
        (
            "byte-edited",
            "A stamp is edited, and no digest with it.",
            None,
            _unsealed,
        ),
        (
            "length-miscounted",
            "The manifest gives one file another length.",
            None,
            lambda path: _entered(path, lambda entry: replace(entry, bytes=entry.bytes + 1)),
        ),
        (
            "rows-miscounted",
            "The manifest counts a row more than one file has.",
            None,
            lambda path: _entered(path, lambda entry: replace(entry, rows=entry.rows + 1)),
        ),
        (
            "file-listed-twice",
            "The manifest lists a file twice, once with another digest.",
            None,
            lambda path: reseal(path, files=(_false_entry(path), *manifest_of(path).files)),
        ),
    ),
    *mutants_of(
        "REP008",
        (
            "another-machine",
            "The engine ran on another machine than the manifest's.",
            None,
            _csv_edit("systems.csv", sound.MACHINE, "sha256:other"),
        ),
    ),
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
    *mutants_of("REP012", ("summary-improved", "The summary says 0.1 % more.", None, _summary)),
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
