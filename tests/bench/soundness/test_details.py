"""What single rules see: judged on rows in memory, one value changed at a time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nanoserve_bench.plan import Blocks, Plan
from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.schema import DivergenceRow
from nanoserve_bench.soundness import judge
from nanoserve_bench.soundness.rules.pair_libraries import library_differences
from support.asking import findings, without
from support.mutants.base import altered_token
from support.rebuild import AGAIN, BASE, change_arm, engine, replace, rerun
from support.sound import study


@pytest.fixture(scope="module")
def altered(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return read(altered_token().write(tmp_path_factory.mktemp("altered") / "run"))


def with_first(items: tuple[Any, ...], **values: Any) -> tuple[Any, ...]:
    return (replace(items[0], **values), *items[1:])


RULES_OF_STOPPING = {"least": 8, "most": 8, "target_half_width": None, "most_reruns": 2}


def stopping(**values: Any) -> Callable[[Plan], dict[str, Any]]:
    return lambda _plan: {"blocks": Blocks(**{**RULES_OF_STOPPING, **values})}


def other(what: str, name: str) -> str:
    return f"cell {BASE} is of {what} {name}, which the plan does not list"


KEPT = "the stopping rule cannot be kept: 1 <= least <= most, most_reruns >= 0"


@pytest.mark.parametrize(
    ("change", "message", "column"),
    [
        (
            lambda p: {"headline_baseline": "vllm"},
            "the headline baseline vllm is no arm",
            "headline_baseline",
        ),
        (stopping(least=0), KEPT, "blocks"),
        (stopping(least=9), KEPT, "blocks"),
        (stopping(most_reruns=-1), KEPT, "blocks"),
        (
            stopping(target_half_width=0),
            "no interval is as narrow as the target half-width 0",
            "blocks",
        ),
        (
            lambda p: {"cells": (*p.cells, p.cells[0])},
            f"the plan names {BASE} 2 times among its cells",
            "cells",
        ),
        (
            lambda p: {"arms": (*p.arms, p.arms[0])},
            "the plan names hf-generate 2 times among its arms",
            "arms",
        ),
        (
            lambda p: {"devices": p.devices * 2},
            "the plan names cpu 2 times among its devices",
            "devices",
        ),
        (
            lambda p: {"dtypes": p.dtypes * 2},
            "the plan names float32 2 times among its dtypes",
            "dtypes",
        ),
        (
            lambda p: {"workloads": p.workloads * 2},
            "the plan names day44 2 times among its workloads",
            "workloads",
        ),
        (
            lambda p: {"comparisons": (*p.comparisons, p.comparisons[0])},
            f"the plan names {AGAIN} against {BASE} 2 times among its comparisons",
            "comparisons",
        ),
        (lambda p: {"devices": ("cuda:0",)}, other("device", "cpu"), "cells"),
        (lambda p: {"dtypes": ("float16",)}, other("dtype", "float32"), "cells"),
        (lambda p: {"workloads": ()}, other("workload", "day44"), "cells"),
        (lambda p: {"arms": p.arms[1:]}, other("arm", "hf-generate"), "cells"),
        (lambda p: {"cells": with_first(p.cells, slots=0)}, f"cell {BASE} has 0 slots", "cells"),
        (
            lambda p: {"comparisons": with_first(p.comparisons, kind="friend")},
            "a comparison is of the unknown kind 'friend'",
            "comparisons",
        ),
        (
            lambda p: {"comparisons": with_first(p.comparisons, candidate=BASE)},
            f"{BASE} is compared with its own rows",
            "comparisons",
        ),
        (
            lambda p: {"comparisons": with_first(p.comparisons, baseline="nobody")},
            "a comparison names nobody, which is no cell",
            "comparisons",
        ),
        (
            lambda p: {"comparisons": with_first(p.comparisons, kind="rival")},
            f"{AGAIN} and {BASE} are of one system, and called rivals",
            "comparisons",
        ),
        (
            lambda p: {"workloads": with_first(p.workloads, slots=(1, 2, 4, 8, 16))},
            "workload day44 lists 16 slots, and no cell on cpu in float32 has as many",
            "workloads",
        ),
    ],
)
def test_a_plan_that_promises_nothing_is_refused(
    results: ResultSet, change: Callable[[Plan], dict[str, Any]], message: str, column: str
) -> None:
    plan = replace(results.plan, **change(results.plan))
    found = findings(results, "REP010", plan=plan)
    assert ("plan.json", column, message) in [(f.file, f.column, f.message) for f in found]


def test_a_plan_without_cells_forms_no_runs(results: ResultSet) -> None:
    verdict = judge(replace(results, plan=replace(results.plan, cells=(), comparisons=())))
    assert {finding.rule for finding in verdict.findings} == {"REP015"}
    assert not verdict.ok
    assert verdict.cells == {}


def test_a_plan_without_cells_and_rows_declares_nothing(results: ResultSet) -> None:
    plan = replace(results.plan, cells=(), comparisons=())
    empty = replace(results, plan=plan, trials=(), requests=(), steps=())
    (finding, *_) = [f for f in judge(empty).findings if f.rule == "REP010"]
    assert (finding.message, finding.column) == ("the plan declares no cell", "cells")


@pytest.mark.parametrize("values", [{"least": 1}, {"most_reruns": 0}, {}])
def test_stopping_rules_that_can_be_kept_are_accepted(
    results: ResultSet, values: dict[str, int]
) -> None:
    plan = replace(results.plan, blocks=Blocks(**{**RULES_OF_STOPPING, **values}))
    assert not findings(results, "REP010", plan=plan)


def test_a_study_without_any_warm_up_is_accepted_and_one_without_some_is_not(
    results: ResultSet,
) -> None:
    for blocks, refused in ((range(8), False), (range(3), True)):
        changed = without(results, lambda row, blocks=blocks: row.warmup and row.block in blocks)
        found = findings(results, "REP010", **changed)
        assert bool(found) == refused
        if refused:
            assert "its warm-up is missing in block(s) 0, 1, 2" in found[0].message


def test_a_study_without_trials_is_refused_by_every_rule_that_counts(results: ResultSet) -> None:
    empty = replace(results, trials=(), requests=(), steps=())
    verdict = judge(empty)
    refusing = {finding.rule for finding in verdict.findings}
    assert {"RUN001", "RUN017", "PAIR001", "STAT001", "STAT004", "REP010"} <= refusing
    assert not any(hasattr(cell, "throughput") for cell in verdict.cells.values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"throughput_tok_per_s": None}, "another throughput_tok_per_s than the rows give"),
        ({"queue_share": 0.1}, "another queue_share than the rows give"),
        ({"blocks": 9}, "another blocks than the rows give: 9, and not 8"),
        ({"requests": 1}, "another requests than the rows give: 1, and not 64"),
        ({"model": "llama"}, "another model than the rows give: llama, and not smollm2-135m"),
        ({"slots": 2}, "another slots than the rows give: 2, and not 1"),
    ],
)
def test_a_summary_that_says_something_else_is_refused(
    results: ResultSet, values: dict[str, Any], message: str
) -> None:
    (finding,) = findings(results, "REP012", sweep=with_first(results.sweep, **values))
    assert finding.message.endswith(message)
    assert finding.cell == BASE


def test_a_refused_figure_is_not_repeated_in_the_finding(tmp_path: Path) -> None:
    apart = rerun(study(), [AGAIN], step_ms=lambda _trial, _rows: 62.0 * 1.07)
    found = findings(read(apart.write(tmp_path / "run")), "STAT005")
    assert found
    for finding in found:
        assert re.findall(r"[0-9.]+", finding.message + finding.evidence) == ["3"]


def test_a_summary_without_a_cell_is_refused_and_read_on(results: ResultSet) -> None:
    gone, wrong = findings(results, "REP012", sweep=with_first(results.sweep[1:], blocks=9))
    assert (gone.message, gone.arm, gone.cell) == (
        "sweep.csv has no row for it",
        "hf-generate",
        BASE,
    )
    assert (wrong.arm, wrong.cell) == ("hf-generate-again", AGAIN)
    rest = "says another blocks than the rows give: 9, and not 8"
    assert wrong.message == f"sweep.csv (row 2) {rest}"


def test_a_summary_may_differ_by_a_rounding(results: ResultSet) -> None:
    value = results.sweep[0].throughput_tok_per_s
    assert value is not None
    assert results.sweep[0].queue_share == 0
    for column, said, refused in (
        ("throughput_tok_per_s", value * (1 + 1e-12), False),
        ("throughput_tok_per_s", value * (1 + 1e-7), True),
        ("queue_share", 1e-12, False),
        ("queue_share", 1e-7, True),
    ):
        sweep = with_first(results.sweep, **{column: said})
        assert bool(findings(results, "REP012", sweep=sweep)) == refused


def triage(**values: Any) -> DivergenceRow:
    fields: dict[str, Any] = {
        "block": 1,
        "cell": engine(4),
        "reference_cell": BASE,
        "request": "r3",
        "position": 5,
        "token_id": 7,
        "reference_token_id": 8,
        "text": None,
        "reference_text": None,
        "logit": 1.25,
        "reference_logit": None,
        "top2_margin": 0.5,
        "noise_floor": 1e-6,
        "later_agreement": 0.75,
        "kind": "bug",
    }
    return DivergenceRow(**{**fields, **values})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            triage(),
            "triage: bug, logits 1.25 and not recorded, top-2 margin 0.5, noise floor 1e-06",
        ),
        (triage(position=9), "the recorded triage is of position 9 and not of this one"),
        (triage(block=2), "triage not recorded against"),
        (triage(request="r4"), "triage not recorded against"),
        (triage(reference_cell=AGAIN), "triage not recorded against"),
    ],
)
def test_a_triage_counts_for_its_own_divergence_alone(
    altered: ResultSet, row: DivergenceRow, message: str
) -> None:
    found = findings(altered, "PAIR005", divergences=(row,))
    against = next(finding for finding in found if finding.reference_cell == BASE)
    assert message in against.message


def test_a_divergence_shows_the_tokens_around_it(altered: ResultSet) -> None:
    finding = next(f for f in findings(altered, "PAIR005") if f.reference_cell == BASE)
    key = (1, engine(4), False, "r3")
    rows = {(r.block, r.cell, r.warmup, r.request): r for r in altered.requests}
    ids = altered.outputs[rows[key].output_sha256]
    theirs = altered.outputs[rows[1, BASE, False, "r3"].output_sha256]
    shown = " ".join(map(str, ids[1:9])), " ".join(map(str, theirs[1:9]))
    assert finding.evidence == f"from position 1: candidate {shown[0]} | baseline {shown[1]}"


def test_a_pair_that_reads_the_other_way_round_is_named_by_both_cells(altered: ResultSet) -> None:
    pairs = {(f.reference_cell, f.cell) for f in findings(altered, "PAIR005")}
    assert pairs == {
        (BASE, engine(4)),
        (engine(2), engine(4)),
        (engine(4), engine(8)),
    }


def test_libraries_that_differ_are_told_with_both_versions() -> None:
    assert library_differences("torch=2.13.0;a=1", "a=1;torch=2.14.0;b=2") == (
        ("b", None, "2"),
        ("torch", "2.13.0", "2.14.0"),
    )
    assert library_differences("", "") == ()


def test_a_library_that_is_absent_on_one_side_is_called_so(tmp_path: Path) -> None:
    broken = change_arm(study(), "hf-generate-again", libraries="torch=2.13.0")
    found = findings(read(broken.write(tmp_path / "run")), "PAIR013")
    assert {f.message for f in found} == {
        "library transformers is absent in the candidate and 5.24.0 in the baseline"
    }
    assert {f.cell for f in found} == {AGAIN}
    assert len(found) == 8


@pytest.mark.parametrize("column", ["attention", "kernel_path"])
def test_an_a_a_on_another_code_path_is_no_a_a(column: str, tmp_path: Path) -> None:
    broken = change_arm(study(), "hf-generate-again", **{column: "another"})
    found = findings(read(broken.write(tmp_path / "run")), "PAIR013")
    assert f"{column} is another in the candidate" in found[0].message


def test_a_self_pair_with_other_slots_is_no_a_a(results: ResultSet) -> None:
    cells = tuple(
        replace(cell, slots=2) if cell.id == AGAIN else cell for cell in results.plan.cells
    )
    found = findings(results, "PAIR013", plan=replace(results.plan, cells=cells))
    assert any("with 2 and with 1 slots" in finding.message for finding in found)


def test_findings_about_trials_point_to_their_line(results: ResultSet) -> None:
    trials = with_first(results.trials)
    number = next(i for i, t in enumerate(results.trials) if not t.warmup)
    trials = (
        *results.trials[:number],
        replace(results.trials[number], other_cpu_ns=10**12),
        *results.trials[number + 1 :],
    )
    (finding,) = findings(results, "STAT004", trials=trials)
    assert (finding.file, finding.row) == ("trials.csv", number + 2)


def test_findings_about_launches_point_to_their_line(results: ResultSet) -> None:
    systems = with_first(results.systems, version="0.0.1")
    (finding,) = findings(results, "RUN020", systems=systems)
    assert (finding.file, finding.row, finding.cell) == ("systems.csv", 2, BASE)


def test_every_field_of_a_launch_but_its_number_must_stay(results: ResultSet) -> None:
    row = results.systems[-1]
    for field in dataclasses.fields(row):
        if field.name in {"launch", "block", "arm", "shape"}:
            continue
        systems = (*results.systems[:-1], replace(row, **{field.name: "another"}))
        found = findings(results, "RUN021", systems=systems)
        assert {f.cell for f in found} == {engine(n) for n in (1, 2, 4, 8)}
        assert all(f"{field.name} is 'another' in block 7" in f.message for f in found)


@pytest.mark.parametrize(
    ("planned", "reported", "refused"),
    [("abc", "abc", False), ("abc", "abd", True), ("abc", None, True), (None, "abd", False)],
)
def test_an_arm_at_a_chosen_revision_must_have_run_it(
    results: ResultSet, planned: str | None, reported: str | None, refused: bool
) -> None:
    plan = replace(results.plan, arms=with_first(results.plan.arms, revision=planned))
    systems = tuple(
        replace(row, revision=reported) if row.arm == "hf-generate" else row
        for row in results.systems
    )
    found = findings(results, "RUN020", plan=plan, systems=systems)
    assert {f.cell for f in found} == ({BASE} if refused else set())


def test_a_copy_with_its_rows_in_another_order_is_a_copy(results: ResultSet) -> None:
    copied = [r for r in results.requests if (r.block, r.cell, r.warmup) == (1, BASE, False)]
    target = [r for r in results.requests if (r.block, r.cell, r.warmup) == (4, BASE, False)]
    made = [
        replace(
            source,
            block=4,
            request=row.request,
            prompt_sha256=row.prompt_sha256,
            output_sha256=row.output_sha256,
        )
        for source, row in zip(reversed(copied), target, strict=True)
    ]
    kept = [r for r in results.requests if r not in target]
    for holds in (True, False):
        rows = [r if holds else replace(r, holds_ns=None) for r in (*kept, *made)]
        found = findings(results, "RUN017", requests=tuple(rows))
        assert {(f.cell, f.block) for f in found} == {(BASE, 1), (BASE, 4)}
        assert "in block 4: one of the two is a copy" in found[0].message


def test_a_trial_that_equals_a_warm_up_is_a_copy_of_it(results: ResultSet) -> None:
    cell = engine(8)
    warm = {
        r.request: r for r in results.requests if (r.block, r.cell, r.warmup) == (2, cell, True)
    }

    def as_warm(row: Any) -> Any:
        if (row.block, row.cell, row.warmup) != (2, cell, False):
            return row
        return replace(
            warm[row.request], warmup=False, prompt_sha256=row.prompt_sha256,
            output_sha256=row.output_sha256,
        )  # fmt: skip

    found = findings(results, "RUN017", requests=tuple(map(as_warm, results.requests)))
    assert [(f.cell, f.block) for f in found] == [(cell, 2)]
    assert f"those of the warm-up of {cell} in block 2" in found[0].message


def test_a_block_without_a_planned_order_is_refused(results: ResultSet) -> None:
    plan = replace(results.plan, orders=results.plan.orders[:7])
    (finding,) = findings(results, "STAT002", plan=plan)
    assert finding.message == "the plan has no order for block 7: it has 7"
    assert (finding.file, finding.column) == ("plan.json", "orders")


def test_a_trial_may_start_the_instant_the_last_one_is_done(results: ResultSet) -> None:
    trials = sorted((t for t in results.trials if t.block == 0), key=lambda t: t.order)
    before = trials[-2]
    for early, refused in ((0, False), (1, True)):
        start = before.started_ns + before.wall_ns - early
        moved = tuple(
            replace(t, started_ns=start) if t is trials[-1] else t for t in results.trials
        )
        assert bool(findings(results, "STAT002", trials=moved)) == refused


def test_a_prompt_may_be_cached_whole_and_no_more(results: ResultSet) -> None:
    systems = tuple(replace(row, cache="on") for row in results.systems)
    for cached, refused in ((0, False), (6, False), (7, True), (-1, True)):
        requests = tuple(replace(row, cached_tokens=cached) for row in results.requests)
        found = findings(results, "RUN019", systems=systems, requests=requests)
        assert bool(found) == refused


def test_cached_tokens_may_be_untold_where_the_cache_is_off(results: ResultSet) -> None:
    requests = tuple(replace(row, cached_tokens=None) for row in results.requests)
    assert not judge(replace(results, requests=requests)).findings
