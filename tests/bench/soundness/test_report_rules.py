"""What rules about the plan and the manifest say, and where, at their borders."""

from __future__ import annotations

from typing import Any

import pytest

from nanoserve_bench.plan import Arrivals, PlannedComparison, RequestLengths
from nanoserve_bench.results import ResultSet
from support.asking import findings, line_of, of, rows, without
from support.rebuild import AGAIN, BASE, engine, replace

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


# REP010: what is declared, and what a plan can promise.


def flaws(results: ResultSet, **values: Any) -> list[tuple[str, str | None]]:
    """What is wrong with the plan in itself, before any trial, and under which key."""
    plan = replace(results.plan, **values)
    found = findings(results, "REP010", plan=plan, **without(results, lambda row: True))
    return [(f.message, f.column) for f in found if f.file == "plan.json"]


def test_what_is_missing_is_missed_of_its_cell_and_arm(results: ResultSet) -> None:
    place = ("hf-generate-again", AGAIN, None)
    cases: tuple[tuple[bool, str], ...] = (
        (False, "the plan declares it, and it is missing in block(s) 2, 3"),
        (True, "its warm-up is missing in block(s) 2, 3: warm-ups are kept"),
    )
    for warmup, message in cases:
        gone = without(
            results,
            lambda row, warmup=warmup: (
                (row.cell, row.warmup) == (AGAIN, warmup) and row.block in {2, 3}
            ),
        )
        (finding,) = findings(results, "REP010", **gone)
        assert (finding.arm, finding.cell, finding.block) == place
        assert finding.message == message


def test_of_a_study_without_trials_every_cell_is_missing(results: ResultSet) -> None:
    manifest = replace(results.manifest, blocks_done=0)
    gone = without(results, lambda row: True)
    found = findings(results, "REP010", manifest=manifest, **gone)
    message = "the plan declares it, and it is missing in block(s) (there is none)"
    assert [(f.cell, f.message) for f in found] == [(c.id, message) for c in results.plan.cells]


def lengths(*pairs: tuple[int, int]) -> tuple[RequestLengths, ...]:
    return tuple(RequestLengths(prompt_tokens=one, new_tokens=two) for one, two in pairs)


LONGEST = "workload day44 is not as long as its longest request"
OBJECTIVE = "workload day44 has an objective that nothing can meet"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"lengths": lengths((6, 16))}, ["has 8 requests a block and 1 lengths"]),
        ({"lengths": lengths((6, 16)), "requests": 1}, []),
        ({"lengths": lengths((6, 16)), "requests": 0}, ["has 0 requests a block and 1 lengths"]),
        ({"lengths": lengths((6, 16)), "requests": -1}, ["has -1 requests a block and 1 lengths"]),
        ({"lengths": lengths((6, 9), (1, 16)) * 4}, []),
        ({"lengths": lengths((5, 16)) * 8}, [LONGEST]),
        ({"lengths": lengths((6, 15)) * 8}, [LONGEST]),
    ],
)
def test_the_lengths_of_a_workload_fill_its_blocks(
    results: ResultSet, values: dict[str, Any], expected: list[str]
) -> None:
    (workload,) = results.plan.workloads
    found = flaws(results, workloads=(replace(workload, **values),))
    whole = ", which are no whole blocks"
    messages = [text if text == LONGEST else f"workload day44 {text}{whole}" for text in expected]
    assert found == [(message, "workloads") for message in messages]


@pytest.mark.parametrize("name", ["objective_ttft_ms", "objective_tpot_ms"])
@pytest.mark.parametrize(("value", "refused"), [(None, 0), (1.0, 0), (0.0, 1), (-1.0, 1)])
def test_an_objective_can_be_met(
    results: ResultSet, name: str, value: float | None, refused: int
) -> None:
    (workload,) = results.plan.workloads
    arrivals = Arrivals(**{"process": "poisson", "rate_per_s": 1.0, name: value})
    workloads = (replace(workload, arrivals=arrivals),)
    found = flaws(results, workloads=workloads, comparisons=())
    assert found == [(OBJECTIVE, "workloads")] * refused


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("CUDA:0", ["device CUDA:0 is not spelled as torch spells it"]),
        ("cuda:0", []),
        ("NPU:0", []),
    ],
)
def test_devices_that_torch_knows_are_spelled_as_it_spells_them(
    results: ResultSet, device: str, expected: list[str]
) -> None:
    cells = tuple(
        replace(cell, device=device, id=cell.id.replace("cpu", device))
        for cell in results.plan.cells
    )
    comparisons = tuple(
        replace(
            pair,
            baseline=pair.baseline.replace("cpu", device),
            candidate=pair.candidate.replace("cpu", device),
        )
        for pair in results.plan.comparisons
    )
    found = flaws(results, devices=(device,), cells=cells, comparisons=comparisons)
    assert found == [(message, "devices") for message in expected]


@pytest.mark.parametrize(
    ("name", "refused"), [("a/b/c/1", 0), ("hf/cpu/float32/1/day44", 1), ("a/b/c/d/e/f", 1)]
)
def test_an_id_that_looks_like_a_place_is_that_place(
    results: ResultSet, name: str, refused: int
) -> None:
    cells = rows(results.plan.cells, lambda cell: cell.id == AGAIN, id=name)
    found = flaws(results, cells=cells, comparisons=results.plan.comparisons[1:])
    message = f"cell {name} is {AGAIN}, and its id says otherwise"
    assert found == [(message, "cells")] * refused


@pytest.mark.parametrize(
    ("baseline", "candidate", "kind", "expected"),
    [
        (BASE, AGAIN, "self", []),
        (BASE, engine(1), "self", []),
        (BASE, engine(1), "revision", ["are of two systems, and called two revisions of one"]),
        (BASE, AGAIN, "revision", ["are of one revision and setting"]),
        (BASE, "x", "revision", ["x, which is no cell"]),
        ("y", "x", "revision", ["y, which is no cell", "x, which is no cell"]),
        ("y", "x", "self", ["y, which is no cell", "x, which is no cell"]),
    ],
)
def test_what_a_comparison_may_be_called(
    results: ResultSet, baseline: str, candidate: str, kind: str, expected: list[str]
) -> None:
    pair = PlannedComparison(baseline=baseline, candidate=candidate, kind=kind)
    found = flaws(results, comparisons=(pair, *results.plan.comparisons[2:]))
    messages = [
        f"a comparison names {text}"
        if text.endswith("no cell")
        else f"{candidate} and {baseline} {text}"
        for text in expected
    ]
    assert found == [(message, "comparisons") for message in messages]


@pytest.mark.parametrize("cell", [BASE, AGAIN])
def test_nothing_is_compared_with_an_open_loop(results: ResultSet, cell: str) -> None:
    (workload,) = results.plan.workloads
    load = replace(workload, name="load", arrivals=Arrivals(process="poisson", rate_per_s=1.0))
    cells = rows(results.plan.cells, lambda row: row.id == cell, workload="load")
    comparisons = results.plan.comparisons[:1]
    found = flaws(results, workloads=(workload, load), cells=cells, comparisons=comparisons)
    message = (
        f"{AGAIN} is compared in an open loop, where throughput is what was offered: it gives "
        "latencies and no speedup"
    )
    assert [flaw for flaw in found if flaw[1] == "comparisons"] == [(message, "comparisons")]
