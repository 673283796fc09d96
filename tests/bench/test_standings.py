"""The tables after a sweep."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

from rich.console import Console

from nanoserve_bench.soundness.judge import judge_path
from nanoserve_bench.standings import print_standings
from support.rebuild import set_plan
from support.sound import study


def table_of(folder: Path) -> str:
    text = io.StringIO()
    print_standings(judge_path(folder), Console(file=text, width=140))
    return text.getvalue()


def test_a_sound_study_shows_its_factors_and_doublings(tmp_path: Path) -> None:
    text = table_of(study().write(tmp_path / "run"))
    for title in ("tok/s", "speedup", "batch", "per slot-second", "queue share", "doubling"):
        assert title in text
    assert "baseline" in text
    assert "faster" in text
    assert "refused" not in text
    assert "1 -> 2" in text


def test_what_is_refused_has_no_number_but_its_rule(tmp_path: Path) -> None:
    broken = study()
    last = [cell for cell in broken.plan.cells if cell.system == "nanoserve"][-1].id
    changed = broken.edit(
        "requests",
        _broken,
        where=lambda row: row.cell == last and not row.warmup,  # type: ignore[attr-defined]
        blocks=(0,),
    )
    assert changed == 8
    lines = table_of(broken.write(tmp_path / "run")).splitlines()
    arm, _, _, slots, _ = last.split("/")
    (line,) = [line for line in lines if line.startswith(f"{arm}, {slots} ")]
    assert "refused: " in line
    assert "x [" not in line


def _broken(row: object) -> object:
    return dataclasses.replace(row, finish_reason="error", error="broken")  # type: ignore[type-var]


def test_a_pair_that_is_refused_keeps_the_figures_of_its_cells(tmp_path: Path) -> None:
    lines = table_of(study(blocks=3).write(tmp_path / "run")).splitlines()
    (line,) = [line for line in lines if line.startswith("nanoserve, 2 ")]
    assert "refused: STAT001" in line
    assert "x [" not in line
    assert float(line.split()[2]) > 0  # its throughput


def test_a_cell_that_the_plan_compares_with_nothing_is_no_baseline(tmp_path: Path) -> None:
    made = study()
    last = made.plan.cells[-1]
    kept = tuple(pair for pair in made.plan.comparisons if pair.candidate != last.id)
    set_plan(made, comparisons=kept)
    lines = table_of(made.write(tmp_path / "run")).splitlines()
    (line,) = [line for line in lines if line.startswith(f"{last.arm}, {last.slots} ")]
    assert line.split()[3] == "-"
    assert [line.split()[0] for line in lines if "baseline" in line] == ["hf-generate,"]


def test_a_folder_that_cannot_be_read_has_no_table(tmp_path: Path) -> None:
    assert table_of(tmp_path) == ""
