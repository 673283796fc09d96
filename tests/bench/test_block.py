"""A block with fake systems in real workers: its rows."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from nanoserve_bench.arrivals import offered
from nanoserve_bench.block import BlockRun
from nanoserve_bench.load import LoadChoice
from nanoserve_bench.occupancy import split
from nanoserve_bench.results import read
from nanoserve_bench.runs import TrialKey, assemble
from nanoserve_bench.soundness import judge_path
from nanoserve_bench.sweep import Sweep
from nanoserve_bench.workload import WARMUP_TOKENS, planned
from nanoserve_bench.workload_file import WorkloadFile
from support import fake_systems as fake_systems_module
from support.small_sweeps import Silent, plan_of, study_of, sweep_of

pytestmark = pytest.mark.usefixtures("fake_systems", "quick_blocks")

MEASURE_CEILINGS = BlockRun._measure_ceilings


def test_a_block_runs_every_cell_once_warm_and_in_the_planned_order() -> None:
    plan = plan_of("fake", "again=fake", "fake-batch", blocks=2, slots=(1, 4))
    rows = BlockRun(study_of(plan), 1, replaces=None, progress=Silent()).run()
    assert [t.cell for t in rows.trials if t.warmup] == list(plan.orders[1])
    assert [t.cell for t in rows.trials if not t.warmup] == list(plan.orders[1])
    assert [t.order for t in rows.trials] == list(range(8))
    assert [t.warmup for t in rows.trials] == [True] * 4 + [False] * 4
    for earlier, later in itertools.pairwise(rows.trials):
        assert later.started_ns >= earlier.started_ns + earlier.wall_ns
    assert {r.arm: r.launch for r in rows.systems} == {
        "fake": 3,
        "again": 4,
        "fake-batch": 5,
    }
    launches = {r.launch: r for r in rows.systems}
    assert all(launches[t.launch].arm == t.cell.split("/")[0] for t in rows.trials)


def test_dtypes_take_turns_with_workers_and_launches_of_their_own() -> None:
    plan = plan_of("fake", "again=fake", dtypes=("float32", "bfloat16"))
    progress = Silent()
    rows = BlockRun(study_of(plan), 0, replaces=None, progress=progress).run()
    assert sorted(row.launch for row in rows.systems) == [0, 1, 2, 3]
    dtypes = {row.launch: row.dtype for row in rows.systems}
    assert [t.cell for t in rows.trials if not t.warmup] == list(plan.orders[0])
    assert all(dtypes[t.launch] == t.cell.split("/")[2] for t in rows.trials)
    launched = [event.startswith("launching") for event in progress.events]
    # Both workers of one dtype, their trials, then those of the other.
    assert launched == ([True] * 2 + [False] * 4) * 2
    assert len({t.order for t in rows.trials}) == len(rows.trials) == 8


def test_all_cells_of_a_block_run_the_same_prompts() -> None:
    plan = plan_of("fake", "again=fake", "fake-batch", slots=(1, 4))
    study = study_of(plan)
    rows = BlockRun(study, 0, replaces=None, progress=Silent()).run()
    by_trial: dict[tuple[str, bool], list[str]] = {}
    for row in rows.requests:
        by_trial.setdefault((row.cell, row.warmup), []).append(row.prompt_sha256)
    measured = {tuple(v) for (_, warmup), v in by_trial.items() if not warmup}
    assert len(measured) == 1
    warm = {digest for (_, warmup), v in by_trial.items() if warmup for digest in v}
    assert not warm & set(next(iter(measured)))
    assert len(by_trial["fake-batch/cpu/float32/4/day44", True]) == 4
    assert {r.max_tokens for r in rows.requests if r.warmup} == {WARMUP_TOKENS}
    assert {r.max_tokens for r in rows.requests if not r.warmup} == {16}


def test_each_request_asks_for_its_own_tokens_and_the_drain_is_seen(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake", "fake-batch", slots=(8,), workload="ragged")
    sweep_of(plan, tmp_path / "r").run()
    results = read(tmp_path / "r")
    (workload,) = results.plan.workloads
    assert workload == dataclasses.replace(planned("ragged", 44), slots=(8,))
    for cell in plan.cells:
        own = [r for r in results.requests if r.cell == cell.id]
        assert [(r.prompt_tokens, r.output_tokens) for r in own if not r.warmup] == [
            (one.prompt_tokens, one.new_tokens) for one in workload.lengths
        ]
        assert {r.max_tokens for r in own if r.warmup} == {WARMUP_TOKENS}
    run = assemble(results)[TrialKey(0, "fake-batch/cpu/float32/8/ragged", warmup=False)]
    where = split(run)
    assert where is not None
    assert where.drain_ns > 0
    assert where.starvation_ns == 0


def test_a_system_that_lingers_is_waited_for_after_each_of_its_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fake_systems_module.FakeBatch, "lingers", True)
    silent = Silent()
    BlockRun(
        study_of(plan_of("fake", "again=fake", "fake-batch", slots=(2,))),
        0,
        replaces=None,
        progress=silent,
    ).run()
    said = [event for event in silent.events if not event.startswith("launching")]
    waits = [place for place, event in enumerate(said) if event.startswith("waiting")]
    assert len(waits) == 2
    for place in waits:
        assert "fake-batch/" in said[place - 1]


def test_an_open_loop_reaches_its_worker_and_is_stamped_by_when_requests_were_due() -> None:
    load = LoadChoice(rates_per_s=(400.0,))
    plan = plan_of("fake", "again=fake", "fake-batch", slots=(2,), load=load)
    rows = BlockRun(study_of(plan), 0, replaces=None, progress=Silent()).run()
    workload = plan.workloads[1]
    own = [r for r in rows.requests if r.cell.endswith(workload.name)]
    measured = [r for r in own if not r.warmup]
    assert {r.cell for r in own} == {f"fake-batch/cpu/float32/2/{workload.name}"}
    first = measured[0].arrival_ns
    assert tuple(r.arrival_ns - first for r in measured) == offered(plan, workload, 0)
    assert all(r.submitted_ns >= r.arrival_ns for r in measured)
    # Warm-ups come all at once.
    warm = [r for r in own if r.warmup]
    assert len(warm) == 2
    assert max(r.arrival_ns - r.submitted_ns for r in warm) == 0


def test_a_file_of_requests_is_dealt_out_and_the_gate_holds_it_to_that(tmp_path: Path) -> None:
    file = WorkloadFile(
        name="mine",
        sha256="abc",
        prompts=tuple((1 + n, 2) for n in range(12)),
        max_tokens=tuple(1 + n % 5 for n in range(12)),
    )
    plan = plan_of(
        "fake", "again=fake", "fake-batch", blocks=2, workload="mine", files={"mine": file}
    )
    study = study_of(plan, {"mine": file.prompts})
    folder = tmp_path / "r"
    Sweep(study, folder, facts=(), command="", progress=Silent()).run()
    results = read(folder)
    for block in range(2):
        own = [r for r in results.requests if r.block == block and r.cell.startswith("fake-batch")]
        ran = [results.prompts[r.prompt_sha256] for r in own if not r.warmup]
        assert ran == list(file.prompts[4 * block : 4 * block + 4])
        wanted = file.max_tokens[4 * block : 4 * block + 4]
        assert tuple(r.output_tokens for r in own if not r.warmup) == wanted
        # A warm-up asks for no more than its request will, or it may not fit where that does.
        assert [r.max_tokens for r in own if r.warmup] == [min(3, n) for n in wanted[:2]]
    assert "RUN020" not in {finding.rule for finding in judge_path(folder).findings}


def test_what_a_system_does_not_stamp_stays_empty() -> None:
    rows = BlockRun(
        study_of(plan_of("fake", "fake-untimed")), 0, replaces=None, progress=Silent()
    ).run()
    for row in rows.requests:
        timed = not row.cell.startswith("fake-untimed/")
        assert (row.first_token_ns is not None) is timed
        assert (row.token_ns is not None) is timed
    assert {r.arm: r.stamps for r in rows.systems} == {
        "fake": "holds first_token tokens",
        "fake-untimed": "holds",
        "fake-again": "holds first_token tokens",
    }
    assert rows.steps == ()


def test_a_divergence_is_looked_into_by_the_baseline() -> None:
    plan = plan_of("fake", "again=fake", "fake-wrong")
    rows = BlockRun(study_of(plan), 0, replaces=None, progress=Silent()).run()
    assert rows.divergences
    outputs = {row.request: row for row in rows.requests if row.cell.startswith("fake-wrong/")}
    for row in rows.divergences:
        assert (row.cell, row.reference_cell) == (
            "fake-wrong/cpu/float32/1/day44",
            "fake/cpu/float32/1/day44",
        )
        assert (row.position, row.kind, row.top2_margin) == (2, "bug", 1.0)
        assert row.token_id is not None
        assert row.reference_token_id is not None
        assert row.token_id == (row.reference_token_id + 1) % 200
        assert row.request in outputs
    wrong = {r.request for r in rows.divergences}
    assert 0 < len(wrong) < 8


def test_a_baseline_that_cannot_triage_records_nothing() -> None:
    plan = plan_of("fake-batch", "fake-wrong", slots=(1,))
    rows = BlockRun(study_of(plan), 0, replaces=None, progress=Silent()).run()
    assert rows.divergences == ()


def test_the_ceilings_are_measured_once_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockRun, "_measure_ceilings", MEASURE_CEILINGS)
    progress = Silent()
    rows = BlockRun(
        study_of(plan_of("fake", "fake-batch")), 0, replaces=None, progress=progress
    ).run()
    assert progress.events.count("ceilings") == 1
    (row,) = rows.ceilings
    assert (row.device, row.dtype, row.buffer_bytes) == ("cpu", "float32", 4096)
    assert row.read_bytes_per_s > 1e8
    assert row.matmul_flop_per_s > 1e8


def test_measuring_the_ceilings_burdens_no_arm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(
        BlockRun, "_measure_ceilings", lambda _, running: measured.append(running.worker.arm)
    )
    study = study_of(plan_of("fake", "again=fake", blocks=2))
    for block in range(2):
        BlockRun(study, block, replaces=None, progress=Silent()).run()
    assert sorted(measured) == ["again", "fake"]


def test_an_arm_that_cannot_measure_the_ceilings_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(
        BlockRun, "_measure_ceilings", lambda _, running: measured.append(running.worker.arm)
    )
    study = study_of(plan_of("fake", "a=fake-blind", "b=fake-blind", blocks=2))
    for block in range(2):
        BlockRun(study, block, replaces=None, progress=Silent()).run()
    assert set(measured) <= {"fake", "fake-again"}
    assert len(measured) == 2
