"""A whole sweep of fake systems: what it writes, and how it ends."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from nanoserve_bench import sweep
from nanoserve_bench.errors import PlanError, WorkerError
from nanoserve_bench.plan import Blocks, Fact
from nanoserve_bench.results import MANIFEST, ResultSet, read
from nanoserve_bench.resume import stored
from nanoserve_bench.runs import assemble, measured_blocks
from nanoserve_bench.schema import SweepRow
from nanoserve_bench.soundness.evidence import Pair
from nanoserve_bench.summary import summarise
from nanoserve_bench.sweep import Sweep
from support.small_sweeps import COMMAND, Silent, plan_of, study_of, sweep_of

pytestmark = pytest.mark.usefixtures("fake_systems", "quick_blocks")


def test_a_sweep_writes_a_folder_that_reads_back_whole(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake", "fake-batch", blocks=2)
    sweep_of(plan, tmp_path / "r").run()
    results = read(tmp_path / "r")
    assert results.manifest.complete
    assert measured_blocks(results) == (0, 1)
    (start,) = results.manifest.ledger
    assert (start.outcome, start.command) == ("completed", COMMAND)
    assert len(assemble(results)) == 2 * 2 * len(plan.cells)
    assert [row.cell for row in results.sweep] == [cell.id for cell in plan.cells]
    assert len({row.launch for row in results.systems}) == 6
    for run in assemble(results).values():
        assert run.identity_gaps() == (0, 0)


def test_a_finished_sweep_is_left_alone(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake")
    sweep_of(plan, tmp_path / "r").run()
    before = (tmp_path / "r" / MANIFEST).read_bytes()
    again = Silent()
    sweep_of(plan, tmp_path / "r", again).run()
    assert again.events == []
    assert (tmp_path / "r" / MANIFEST).read_bytes() == before


def test_a_failed_worker_ends_the_sweep_and_the_next_start_goes_on(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake", blocks=2)
    progress = Silent()

    class Failing(Silent):
        def begin(self, ordinal: int) -> None:
            if ordinal == 2:
                raise WorkerError("the worker of fake (cpu) died\nwith a long story")

    with pytest.raises(WorkerError):
        sweep_of(plan, tmp_path / "r", Failing()).run()
    manifest = stored(tmp_path / "r")[1]
    assert manifest.blocks_done == 1
    assert manifest.ledger[-1].outcome == "failed: the worker of fake (cpu) died"
    sweep_of(plan, tmp_path / "r", progress).run()
    assert [event for event in progress.events if event.startswith("block")] == [
        "block 2 of 2, 1 left"
    ]
    ledger = read(tmp_path / "r").manifest.ledger
    assert [(start.first_block, start.outcome) for start in ledger] == [
        (0, "failed: the worker of fake (cpu) died"),
        (1, "completed"),
    ]


@pytest.mark.parametrize("arm", ["fake-dying", "fake-raising", "fake-rubbish"])
def test_a_system_that_fails_leaves_no_worker_and_no_block(tmp_path: Path, arm: str) -> None:
    plan = plan_of("fake", "again=fake", arm)
    with pytest.raises(WorkerError, match=arm):
        sweep_of(plan, tmp_path / "r").run()
    children = psutil.Process().children(recursive=True)
    assert not [child for child in children if "nanoserve_bench.worker" in child.cmdline()]
    manifest = stored(tmp_path / "r")[1]
    assert (manifest.blocks_done, manifest.complete) == (0, False)
    assert manifest.ledger[0].outcome.startswith(f"failed: the worker of {arm} (cpu)")


def test_ctrl_c_is_an_interruption_in_the_ledger(tmp_path: Path) -> None:
    class Pressed(Silent):
        def start(self, what: str) -> None:
            if what.startswith("running"):
                raise KeyboardInterrupt

    plan = plan_of("fake", "again=fake")
    with pytest.raises(KeyboardInterrupt):
        sweep_of(plan, tmp_path / "r", Pressed()).run()
    assert stored(tmp_path / "r")[1].ledger[0].outcome == "interrupted"
    sweep_of(plan, tmp_path / "r").run()
    assert read(tmp_path / "r").manifest.complete


def test_ctrl_c_while_a_sweep_is_closed_leaves_a_finished_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(results: ResultSet) -> tuple[SweepRow, ...]:
        os.kill(os.getpid(), signal.SIGINT)
        return summarise(results)

    plan = plan_of("fake", "again=fake")
    monkeypatch.setattr(sweep, "summarise", press)
    with pytest.raises(KeyboardInterrupt):
        sweep_of(plan, tmp_path / "r").run()
    results = read(tmp_path / "r")
    assert [start.outcome for start in results.manifest.ledger] == ["completed"]
    assert [row.cell for row in results.sweep] == [cell.id for cell in plan.cells]
    before = (tmp_path / "r" / MANIFEST).read_bytes()
    sweep_of(plan, tmp_path / "r").run()
    assert (tmp_path / "r" / MANIFEST).read_bytes() == before


def test_another_plan_machine_or_code_does_not_go_on(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake", blocks=2)
    sources = (Fact(name="sources", value="abc"),)

    class Pressed(Silent):
        def begin(self, ordinal: int) -> None:
            raise KeyboardInterrupt(ordinal)

    with pytest.raises(KeyboardInterrupt):
        sweep_of(plan, tmp_path / "r", Pressed(), sources).run()
    before = (tmp_path / "r" / MANIFEST).read_bytes()
    longer = plan_of("fake", "again=fake", blocks=3)
    with pytest.raises(PlanError, match="blocks:"):
        sweep_of(longer, tmp_path / "r", facts=sources).run()
    with pytest.raises(PlanError, match="sources: abc, now def"):
        sweep_of(plan, tmp_path / "r", facts=(Fact(name="sources", value="def"),)).run()
    moved = Sweep(
        dataclasses.replace(study_of(plan), machine="another machine"),
        tmp_path / "r",
        facts=sources,
        command=COMMAND,
        progress=Silent(),
    )
    with pytest.raises(PlanError, match="machine: a machine, now another machine"):
        moved.run()
    assert (tmp_path / "r" / MANIFEST).read_bytes() == before


def test_a_contended_block_is_kept_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sweep, "contention", lambda trial: "a neighbour" if trial.block == 0 else None
    )
    plan = plan_of("fake", "again=fake", blocks=2)
    progress = Silent()
    sweep_of(plan, tmp_path / "r", progress).run()
    assert [event for event in progress.events if event.startswith("block")] == [
        "block 1 of 2, 2 left",
        "block 1 was disturbed",
        "block 2 of 2, 1 left",
        "block 1 again, 1 left",
    ]
    results = read(tmp_path / "r")
    assert measured_blocks(results) == (1, 2)
    assert {(t.block, t.replaces) for t in results.trials} == {(0, None), (1, None), (2, 0)}
    prompts = [{r.prompt_sha256 for r in results.requests if r.block == b} for b in range(3)]
    assert not prompts[0] & prompts[2]
    ran = [t.cell for t in results.trials if t.block == 2 and not t.warmup]
    assert ran == list(plan.orders[2])


@pytest.mark.parametrize(("width", "blocks"), [(None, 2), (0.03, 2), (0.01, 1)])
def test_a_sweep_goes_on_until_its_intervals_are_known_to_be_narrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: float | None, blocks: int
) -> None:
    def widest(pairs: Sequence[Pair]) -> float | None:
        assert [pair.kind for pair in pairs if pair.kind != "doubling"] == ["self", "rival"]
        return width

    monkeypatch.setattr(sweep, "headline_half_width", widest)
    rule = Blocks(least=1, most=2, target_half_width=0.02, most_reruns=1)
    plan = dataclasses.replace(plan_of("fake", "again=fake", "fake-batch", blocks=2), blocks=rule)
    sweep_of(plan, tmp_path / "r").run()
    assert read(tmp_path / "r").manifest.blocks_done == blocks


def test_a_folder_that_is_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "notes.txt").write_text("mine")
    with pytest.raises(PlanError, match="is in the way"):
        sweep_of(plan_of("fake", "again=fake"), tmp_path / "r").run()
    assert (tmp_path / "r" / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
