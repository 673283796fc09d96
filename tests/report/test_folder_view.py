"""The environment as a difference: sides are compared in full, however short they are printed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from nanoserve_bench.plan import Option
from nanoserve_report.study import load
from nanoserve_report.views import folder as tables
from support.report_studies import sweep, write


def said(path: Path, study) -> dict[str, str]:
    (folder,) = load(write(path, study)).folders
    table = tables.sides(folder)
    assert table is not None
    return {row[0].text: row[-1].text for row in table}


def test_digests_that_differ_only_at_their_end_differ(tmp_path: Path) -> None:
    study = sweep()
    study.edit(
        "systems",
        lambda row: dataclasses.replace(row, weights="sha256:" + "a" * 63 + "b"),
        where=lambda row: row.system == "nanoserve",
    )
    assert said(tmp_path, study)["weights"] == "differs"


def test_declared_weights_are_called_unproven_and_not_different(tmp_path: Path) -> None:
    study = sweep()
    study.edit(
        "systems",
        lambda row: dataclasses.replace(row, weights="declared:F32 GGUF of the same"),
        where=lambda row: row.system == "nanoserve",
    )
    assert said(tmp_path, study)["weights"] == "declared, not proven"


def test_what_is_the_same_on_all_sides_is_said_to_be(tmp_path: Path) -> None:
    found = said(tmp_path, sweep())
    assert (found["weights"], found["torch"], found["attention"]) == ("same", "same", "differs")


def test_what_an_arm_was_told_stands_beside_what_it_reported(tmp_path: Path) -> None:
    study = sweep()
    first, *others = study.plan.arms
    told = dataclasses.replace(first, options=(Option(name="threads", value="2"),))
    study.plan = dataclasses.replace(study.plan, arms=(told, *others))
    assert said(tmp_path, study)["told: threads"] == "differs"
