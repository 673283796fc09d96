"""Running the speed table: what is kept, what fails, what goes on."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nanoserve_bench.commands.perf import failed
from nanoserve_bench.errors import PlanError
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.perf.arms import DECODE, Arm, Cell
from nanoserve_bench.perf.figures import Standing, figure_rows
from nanoserve_bench.perf.files import read_perf, read_run
from nanoserve_bench.perf.records import PerfRun
from nanoserve_bench.perf.session import Session, begin
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


def test_the_real_thing_on_a_tiny_model(
    command: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    arguments = ("perf", "--model", "synthetic:tiny-llama", "--quick", "--rounds", "1")
    process = command(*arguments, "--no-rivals", "--threads", "1", "--out", str(tmp_path))
    text, _ = process.communicate(timeout=280)
    (folder,) = tmp_path.iterdir()
    perf = read_perf(folder)
    assert process.returncode == 0, text
    assert perf.run.complete
    assert not perf.run.refusals
    table = {row.figure: row for row in perf.figures}
    for key, row in table.items():
        expected = Standing.HOLE if key.startswith("rivals") else Standing.UNDECIDED
        assert row.verdict == expected, (key, row.note)
        assert (row.point is None) is key.startswith("rivals")
    assert "step-probe" in perf.run.orders[0]
    assert perf.run.probes[0].steps > 5
    assert 0 < perf.run.probes[0].model_ns < perf.run.probes[0].steps_ns
