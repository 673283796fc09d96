"""Open loops in a plan: what becomes of rates, shares of a capacity, and of systems without one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench import documents, systems
from nanoserve_bench.arrivals import offered
from nanoserve_bench.capacity import with_shares
from nanoserve_bench.errors import PlanError
from nanoserve_bench.load import LoadChoice, base_of
from nanoserve_bench.plan import Arrivals, Plan
from nanoserve_bench.planning import Choices, build_plan
from nanoserve_bench.soundness.evidence import doublings
from nanoserve_bench.systems import System
from nanoserve_bench.systems.openvino import OpenVino
from nanoserve_bench.workload import WORKLOADS
from support import sound


def plan_of(choices: Choices) -> Plan:
    return build_plan(
        choices,
        run_id="a-run",
        created_at="2026-11-30T00:00:00+00:00",
        model="a-model",
        devices=("cpu",),
        skipped_devices=(),
        revision=None,
        dirty=None,
        find_system=systems.find,
    )


LOADED = plan_of(
    Choices(load=LoadChoice(rates_per_s=(2.0, 31.41592), objective_ttft_ms=500.0), slots=(2, 4))
)


def test_each_rate_is_a_workload_in_most_slots_which_no_arm_runs_twice() -> None:
    names = ["day44", "day44-poisson-2rps", "day44-poisson-31.42rps"]
    assert [workload.name for workload in LOADED.workloads] == names
    assert [cell.id for cell in LOADED.cells if cell.workload != "day44"] == [
        "hf-generate/cpu/float32/1/day44-poisson-2rps",
        "nanoserve/cpu/float32/4/day44-poisson-2rps",
        "hf-generate/cpu/float32/1/day44-poisson-31.42rps",
        "nanoserve/cpu/float32/4/day44-poisson-31.42rps",
    ]
    assert LOADED.workloads[2].arrivals == Arrivals(
        process="poisson", rate_per_s=31.42, objective_ttft_ms=500.0
    )


def test_nothing_is_compared_or_doubled_in_an_open_loop() -> None:
    compared = {p.candidate for p in LOADED.comparisons} | {p.baseline for p in LOADED.comparisons}
    assert compared == {cell.id for cell in LOADED.cells if cell.workload == "day44"}
    pairs = list(doublings(LOADED))
    assert [(low.slots, high.slots, low.workload) for low, high in pairs] == [(2, 4, "day44")]
    every = dataclasses.replace(
        LOADED,
        cells=tuple(
            dataclasses.replace(cell, workload="day44-poisson-2rps") for cell in LOADED.cells
        ),
    )
    assert list(doublings(every)) == []


def test_arrivals_are_fresh_in_every_block_and_read_back_with_the_plan() -> None:
    assert documents.decode(Plan, documents.encode(LOADED), "plan.json") == LOADED
    load = LOADED.workloads[1]
    assert offered(LOADED, load, 0) == offered(LOADED, load, 0)
    assert len({offered(LOADED, load, block) for block in range(4)}) == 4
    assert len(offered(LOADED, load, 0)) == load.requests
    assert offered(LOADED, LOADED.workloads[0], 0) == ()


def test_an_open_loop_knows_the_workload_that_it_offers() -> None:
    assert base_of(LOADED.workloads[1], LOADED.workloads) == LOADED.workloads[0]
    other = dataclasses.replace(LOADED.workloads[1], new_tokens=17)
    assert base_of(other, LOADED.workloads) is None


def test_an_arm_that_takes_no_request_when_it_is_due_is_a_hole_of_the_open_loops() -> None:
    load = LoadChoice(rates_per_s=(1.0, 2.0))
    plan = plan_of(Choices(arms=("hf-generate", "hf-static"), load=load))
    (hole,) = plan.skipped_arms
    assert (hole.arm, hole.device) == ("hf-static", None)
    assert hole.workloads == ("day44-poisson-1rps", "day44-poisson-2rps")
    assert hole.reason.startswith("a static batch is made up before it runs")
    ran = {cell.workload for cell in plan.cells if cell.arm == "hf-static"}
    assert ran == {"day44"}
    assert plan_of(Choices(arms=("hf-generate", "hf-static"))).skipped_arms == ()


def test_arms_that_all_take_no_request_when_it_is_due_are_refused_with_their_reasons() -> None:
    with pytest.raises(PlanError, match=r"none of the arms .*hf-static: a static batch"):
        plan_of(Choices(arms=("hf-static",), load=LoadChoice(rates_per_s=(1.0,))))


def test_a_plug_in_says_that_it_takes_requests_when_they_are_due() -> None:
    assert not System.open_loop
    assert "does not say" in System.why_closed
    assert not OpenVino.open_loop
    assert "Python's lock" in OpenVino.why_closed


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(PlanError, match="a rate is a number of requests per second above 0"):
        plan_of(Choices(load=LoadChoice(rates_per_s=(rate,))))


SHARES = Choices(load=LoadChoice(rates_per_s=()))


def test_a_share_is_of_what_an_earlier_run_measured(tmp_path: Path) -> None:
    study = sound.study(blocks=2)
    study.write(tmp_path / "earlier")
    choices = with_shares(SHARES, (0.5, 2.0), ("cpu",), model="smollm2-135m", earlier=tmp_path)
    assert choices.load is not None
    half, double = choices.load.rates_per_s
    assert double == pytest.approx(4 * half)
    # Eight rows take 58 ms a step, and all eight requests 16 of them.
    assert half == pytest.approx(0.5 * 8 / (16 * 0.058), rel=0.02)


def test_a_share_of_a_capacity_that_nobody_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nanoserve/cpu/float32/8/day44 is not known.*--rate"):
        with_shares(SHARES, (0.5,), ("cpu",), model="smollm2-135m", earlier=tmp_path)


def test_a_share_needs_one_workload_device_and_dtype(tmp_path: Path) -> None:
    for choices, devices in (
        (SHARES, ("cpu", "cuda:0")),
        (dataclasses.replace(SHARES, dtypes=("float32", "bfloat16")), ("cpu",)),
        (dataclasses.replace(SHARES, workloads=("day44", "ragged")), ("cpu",)),
    ):
        with pytest.raises(PlanError, match="takes one workload, one device and one dtype"):
            with_shares(choices, (0.5,), devices, model="m", earlier=tmp_path)
    mine = dataclasses.replace(SHARES, workloads=("mine",))
    with pytest.raises(PlanError, match="give --rate for a file"):
        with_shares(mine, (0.5,), ("cpu",), model="m", earlier=tmp_path)
    assert "mine" not in WORKLOADS
