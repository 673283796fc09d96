"""Running the speed table: what is kept, what fails, what goes on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner

from nanoserve_bench.commands.perf import failed, perf
from nanoserve_bench.errors import PlanError
from nanoserve_bench.launcher import Worker
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.perf import measure
from nanoserve_bench.perf.arms import BASELINE, DECODE, ENGINE, STEP_PROBE, Arm, Cell
from nanoserve_bench.perf.figures import Standing, figure_rows
from nanoserve_bench.perf.files import read_perf, read_run
from nanoserve_bench.perf.records import PerfRun
from nanoserve_bench.perf.session import Session, begin
from nanoserve_bench.protocol import Launch
from support.perf_runs import perf_run

CELLS = (Cell(workload=DECODE, slots=1, requests=2), Cell(workload=DECODE, slots=2, requests=4))


def planned(tiny: ModelFolder, *orders: tuple[str, ...]) -> PerfRun:
    decode, _ = perf_run().workloads
    return dataclasses.replace(
        perf_run(),
        weight_bytes=tiny.weight_bytes,
        workloads=(dataclasses.replace(decode, requests=4, prompt_tokens=4, new_tokens=5),),
        orders=orders,
        done=(),
        complete=False,
        arms=(),
        trials=(),
        probes=(),
        ceilings=(),
        holes=(),
    )


def session(run: PerfRun, folder: Path, tiny: ModelFolder, *arms: Arm) -> tuple[Session, list[str]]:
    said: list[str] = []
    return Session(run, folder, model=tiny, arms=arms, say=said.append), said


def arm(name: str, system: str, *, rival: bool = False) -> Arm:
    return Arm(name=name, system=system, cells=CELLS, rival=rival)


@pytest.mark.usefixtures("fake_systems")
def test_an_arm_that_fails_is_a_hole_and_costs_no_other_arm_anything(
    tmp_path: Path, tiny: ModelFolder
) -> None:
    arms = (
        arm("good", "fake-batch"),
        arm("dying", "fake-dying", rival=True),
        arm("absent", "fake-needy"),
        arm("unknown", "no-such-system"),
    )
    order = tuple(a.name for a in arms)
    running, said = session(planned(tiny, order, order[::-1]), tmp_path, tiny, *arms)
    run = running.run()
    assert read_run(tmp_path) == run
    assert run.complete
    assert {(t.round, t.arm, t.slots, t.requests) for t in run.trials} == {
        (number, "good", slots, requests)
        for number in (0, 1)
        for slots, requests in ((1, 2), (2, 4))
    }
    holes = {(hole.round, hole.arm): hole.reason for hole in run.holes}
    # A rival that failed is not tried again; what is not here is a hole from the start.
    assert set(holes) == {(0, "dying"), (None, "absent"), (None, "unknown")}
    assert "exit code 7" in holes[0, "dying"]
    assert "last words" in holes[0, "dying"]
    assert "no_such_module" in holes[None, "absent"]
    assert any("dying failed" in line for line in said)


@pytest.mark.usefixtures("fake_systems")
def test_a_stopped_run_goes_on_with_what_is_left(tmp_path: Path, tiny: ModelFolder) -> None:
    arms = (arm("one", "fake-batch"), arm("two", "fake-batch"))
    plan = planned(tiny, ("one", "two"))
    first, _ = session(plan, tmp_path, tiny, *arms)

    def stop(line: str) -> None:
        if "two:" in line:
            raise KeyboardInterrupt

    first._say = stop
    with pytest.raises(KeyboardInterrupt):
        first.run()
    stored = read_run(tmp_path)
    assert stored.done == ("0/one",)
    assert not stored.complete

    again, said = session(begin(tmp_path, plan), tmp_path, tiny, *arms)
    run = again.run()
    assert run.complete
    assert run.done == ("0/one", "0/two")
    assert [t for t in run.trials if t.arm == "one"] == list(stored.trials)
    assert not any(line.startswith("round 1 of 1: one") for line in said)
    with pytest.raises(PlanError, match="holds a complete run"):
        begin(tmp_path, plan)


@pytest.mark.usefixtures("fake_systems")
@pytest.mark.parametrize(("apart", "slots"), [(False, [2, 2]), (True, [1, 2, 2, 1])])
def test_an_arm_is_launched_for_all_its_cells_or_for_each(
    apart: bool,
    slots: list[int],
    tmp_path: Path,
    tiny: ModelFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched = []

    class Noted(Worker):
        def __init__(self, launch: Launch, *, arm: str) -> None:
            launched.append(launch.most_slots)
            super().__init__(launch, arm=arm)

    monkeypatch.setattr(measure, "Worker", Noted)
    one = dataclasses.replace(arm("one", "fake-batch"), apart=apart)
    run = session(planned(tiny, ("one",), ("one",)), tmp_path, tiny, one)[0].run()
    assert launched == slots
    assert len(run.arms) == len(slots)
    assert not run.holes
    last = {(t.round, t.slots): t for t in run.trials}
    assert list(last) == [(0, 1), (0, 2), (1, 2), (1, 1)]


def test_a_run_of_other_code_does_not_go_on(tmp_path: Path, tiny: ModelFolder) -> None:
    plan = planned(tiny)
    running, _ = session(plan, tmp_path, tiny)
    running._keep()
    for name, value in (("sources", "others"), ("seed", 45), ("machine", "that")):
        with pytest.raises(PlanError, match=f"unfinished run with other {name}"):
            begin(tmp_path, dataclasses.replace(plan, **{name: value}))
    assert begin(tmp_path, plan) == read_run(tmp_path)


def test_the_exit_code_tells_what_failed() -> None:
    figures = figure_rows(perf_run())
    met = [row for row in figures if row.verdict == Standing.MET]
    missed = next(row for row in figures if row.figure == "torch-32")
    assert not failed(met, check=True)
    assert not failed([missed], check=False)
    assert failed([missed], check=True)
    undecided = dataclasses.replace(missed, verdict=Standing.UNDECIDED)
    assert not failed([undecided], check=True)
    assert failed([dataclasses.replace(missed, verdict=Standing.REFUSED)], check=False)
    rivals = next(row for row in figures if row.figure == "rivals-8")
    assert not failed([dataclasses.replace(rivals, verdict=Standing.HOLE)], check=True)
    assert failed([dataclasses.replace(missed, verdict=Standing.HOLE)], check=False)


def test_the_real_thing_on_a_tiny_model(tmp_path: Path, tiny: ModelFolder) -> None:
    """Real workers: the baseline, the engine, and the probe into its steps."""
    arms = (
        Arm(name=BASELINE, system="hf-generate", cells=CELLS[:1], ceilings=True),
        Arm(name=ENGINE, system="nanoserve", cells=CELLS),
        Arm(name=STEP_PROBE, system="", cells=CELLS[1:]),
    )
    plan = planned(tiny, tuple(arm.name for arm in arms))
    running, _ = session(dataclasses.replace(plan, threads=1), tmp_path, tiny, *arms)
    run = running.run()
    assert run == read_perf(tmp_path).run
    assert not run.holes
    assert not run.refusals
    last = {(t.arm, t.slots): t for t in run.trials}  # one that was disturbed is run again
    baseline, one, two = last[BASELINE, 1], last[ENGINE, 1], last[ENGINE, 2]
    assert baseline.outputs[0] == one.outputs[0] == two.outputs[0]
    assert (one.requests, two.requests) == (2, 4)
    assert two.full_steps == 2 * 4  # of two batches of two, each of five tokens
    assert {row.verdict for row in figure_rows(run) if row.figure == "speedup-1"} == {
        Standing.UNDECIDED
    }
    probe = run.probes[-1]
    assert probe.steps == 2 * 4
    assert 0 < probe.model_ns < probe.steps_ns


def test_a_plan_is_printed_and_nothing_is_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANOSERVE_CACHE", str(cache))
    arguments = ["--model", "synthetic:tiny-llama", "--dry-run", "--out", str(tmp_path / "perf")]
    result = CliRunner().invoke(perf, arguments)
    assert result.exit_code == 0, result.output
    assert "nanoserve: 6 x decode in 1, 64 x decode in 8, 64 x decode in 16" in result.output
    assert not (tmp_path / "perf").exists()
