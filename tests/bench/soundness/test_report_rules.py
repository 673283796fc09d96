"""What rules about the plan and the manifest say, and where, at their borders."""

from __future__ import annotations

from typing import Any

import pytest

from nanoserve_bench.results import ResultSet
from support.asking import findings, line_of, of, rows
from support.rebuild import BASE, replace

CREATED = "2026-01-01T00:00:00+00:00"
LATER = "2026-01-01T00:00:01+00:00"
EARLIER = "2025-12-31T23:59:59+00:00"


def said(results: ResultSet, **changes: Any) -> list[tuple[str, str | None, str | None]]:
    return [(f.message, f.file, f.column) for f in findings(results, "REP011", **changes)]


@pytest.mark.parametrize(
    ("started_at", "message"),
    [
        (LATER, None),
        (CREATED, None),
        (EARLIER, f"is of {EARLIER}, and the plan of {CREATED}: the plan was written afterwards"),
    ],
)
def test_no_start_is_older_than_the_plan(
    results: ResultSet, started_at: str, message: str | None
) -> None:
    (only,) = results.manifest.ledger
    ledger = (only, replace(only, started_at="soon"), replace(only, started_at=started_at))
    expected = [
        ("'soon' is no ISO time with an offset", "manifest.json", "ledger[1].started_at"),
        (f"start 2 {message}", "manifest.json", "ledger[2].started_at"),
    ]
    manifest = replace(results.manifest, ledger=ledger)
    assert said(results, manifest=manifest) == expected[: 1 + (message is not None)]


@pytest.mark.parametrize(("started_at", "refused"), [(CREATED, False), (EARLIER, True)])
def test_no_trial_is_older_than_the_plan(
    results: ResultSet, started_at: str, refused: bool
) -> None:
    trials = rows(results.trials, of(BASE), started_at=started_at)
    found = findings(results, "REP011", trials=trials)
    message = f"it started at {started_at}, and the plan is of {CREATED}"
    place = (message, BASE, "trials.csv", line_of(results, BASE))
    assert [(f.message, f.cell, f.file, f.row) for f in found] == [place] * refused


def test_every_start_began_with_the_plan_that_is_there(results: ResultSet) -> None:
    manifest = results.manifest
    (only,) = manifest.ledger
    digest = only.plan_sha256
    ledger = (only, replace(only, plan_sha256="0" * 64), replace(only, plan_sha256=None))
    rest = f"and plan.json has {digest}: the plan was changed afterwards"
    assert said(results, manifest=replace(manifest, ledger=ledger)) == [
        (
            f"start {index} began with a plan of digest {began}, {rest}",
            "manifest.json",
            f"ledger[{index}].plan_sha256",
        )
        for index, began in ((1, "0" * 64), (2, "(none)"))
    ]


def test_a_plan_without_a_digest_proves_nothing(results: ResultSet) -> None:
    manifest = results.manifest
    (only,) = manifest.ledger
    files = tuple(file for file in manifest.files if file.name != "plan.json")
    for began in (only.plan_sha256, None):
        ledger = (replace(only, plan_sha256=began),)
        ((message, file, column),) = said(
            results, manifest=replace(manifest, files=files, ledger=ledger)
        )
        assert message.endswith("and plan.json has None: the plan was changed afterwards")
        assert (file, column) == ("manifest.json", "ledger[0].plan_sha256")


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01T00:00:00", ""])
def test_a_plan_says_when_it_was_written(results: ResultSet, text: str) -> None:
    plan = replace(results.plan, created_at=text)
    message = f"{text!r} is no ISO time with an offset"
    assert said(results, plan=plan) == [(message, "plan.json", "created_at")]
