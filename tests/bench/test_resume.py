"""Whether a stopped sweep may go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Fact
from nanoserve_bench.results import PLAN
from nanoserve_bench.resume import machine_differences, plan_differences, stored, unfinished
from support.rebuild import set_plan
from support.sound import study


def test_an_unfinished_sweep_of_the_same_plan_is_found_on_any_day_and_code(tmp_path: Path) -> None:
    wanted = study(run_id="today", blocks=1).plan
    assert unfinished(tmp_path / "nowhere", wanted) is None

    def lay(name: str, *, finish: bool = False, **values: object) -> Path:
        made = set_plan(study(run_id=name, blocks=1), **values)
        return made.write(tmp_path / name, finish=finish)

    lay("finished", finish=True)
    lay("of-more-blocks", blocks=dataclasses.replace(wanted.blocks, least=2, most=2))
    lay(".half-made.new")
    (tmp_path / "notes.txt").write_text("mine")
    (lay("damaged") / PLAN).write_text("{")
    assert unfinished(tmp_path, wanted) is None
    younger = "2026-01-01T00:00:01+00:00"
    other = lay("other-code", revision="f" * 40, dirty=True, created_at=younger)
    assert unfinished(tmp_path, wanted) == other
    same = lay("yesterday")
    assert unfinished(tmp_path, wanted) == same
    assert unfinished(tmp_path, dataclasses.replace(wanted, seed=45)) is None


def test_a_plan_that_is_only_younger_is_the_same() -> None:
    plan = study().plan
    later = dataclasses.replace(plan, created_at="2030-01-01T00:00:00+00:00")
    assert list(plan_differences(plan, later)) == []


def test_every_difference_of_a_plan_is_named() -> None:
    plan = study().plan
    other = dataclasses.replace(plan, seed=plan.seed + 1, revision="other", dirty=True)
    found = "\n".join(plan_differences(plan, other))
    assert f"seed: {plan.seed}, now {plan.seed + 1}" in found
    assert "revision" in found
    assert "dirty" in found


def test_another_machine_another_code_or_model_is_a_difference(tmp_path: Path) -> None:
    known = study()
    facts = (
        Fact(name="sources", value="abc"),
        Fact(name="threads", value=2),
        Fact(name="kernel", value="Linux 1"),
    )
    manifest = stored(dataclasses.replace(known, facts=facts).write(tmp_path / "run"))[1]
    assert list(machine_differences(manifest, manifest.machine, facts)) == []
    now = (
        Fact(name="sources", value="def"),
        Fact(name="threads", value=4),
        Fact(name="kernel", value="Linux 2"),
    )
    assert list(machine_differences(manifest, "elsewhere", now)) == [
        f"machine: {manifest.machine}, now elsewhere",
        "sources: abc, now def",
        "threads: 2, now 4",
    ]


def test_a_damaged_folder_is_told_apart_from_another_plan(tmp_path: Path) -> None:
    folder = study().write(tmp_path / "run")
    (folder / PLAN).write_text("{", "utf-8")
    with pytest.raises(PlanError, match="is damaged"):
        stored(folder)
    (folder / PLAN).unlink()
    with pytest.raises(PlanError, match="cannot be read"):
        stored(folder)
