"""The prefix cache in a sweep: on both sides or on neither, counted, and cold in every trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from nanoserve_bench import RunUnsound, SystemRun, UnfairComparison, compare, systems
from nanoserve_bench.errors import PlanError
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import Option, Plan
from nanoserve_bench.planning import Choices, build_plan
from nanoserve_bench.protocol import Launch, Trial
from nanoserve_bench.systems import find

PREFIX = tuple(range(10, 26))  # a whole block
PROMPTS = tuple((*PREFIX, 100 + index, 50) for index in range(6))
TOKENS = 5
SLOTS = 2


def plan_of(*arms: str, baselines: tuple[str, ...] = ()) -> Plan:
    return build_plan(
        Choices(arms=arms, baselines=baselines, workloads=("shared-prefix",), slots=(1, 4)),
        run_id="a-run",
        created_at="2026-11-30T00:00:00+00:00",
        model="a-model",
        devices=("cpu",),
        skipped_devices=(),
        revision=None,
        dirty=None,
        find_system=systems.find,
    )


def test_ratios_are_stated_only_between_arms_that_are_told_the_same() -> None:
    plan = plan_of(
        "hf-generate",
        "nanoserve",
        "torch=nanoserve-torch,cache=on",
        "cached=nanoserve,cache=on",
        "declared=nanoserve-torch,cache=off",
        baselines=("hf-generate", "torch"),
    )
    pairs = {(c.baseline.split("/")[0], c.candidate.split("/")[0]) for c in plan.comparisons}
    assert pairs == {
        ("hf-generate", "nanoserve"),
        ("hf-generate", "declared"),
        ("hf-generate", "hf-generate-again"),
        ("torch", "cached"),
        ("torch", "torch-again"),
    }
    assert {cell.arm for cell in plan.cells} == {arm.name for arm in plan.arms}


def test_an_arm_that_no_baseline_may_meet_is_refused() -> None:
    with pytest.raises(PlanError, match=r"arm mine runs with its prefix cache on, and no base"):
        plan_of("hf-generate", "mine=nanoserve,cache=on")
    with pytest.raises(PlanError, match=r"arm hf-generate runs with its prefix cache off"):
        plan_of("torch=nanoserve-torch,cache=on", "hf-generate")


@pytest.mark.parametrize("arm", ["nanoserve", "nanoserve-torch"])
def test_a_cache_is_on_or_off(arm: str) -> None:
    with pytest.raises(PlanError, match="arm mine: cache is off or on, not 'warm'"):
        plan_of("hf-generate", f"mine={arm},cache=warm")


@pytest.fixture
def run(tiny: ModelFolder, make_launch: Callable[..., Launch]) -> Callable[..., list[SystemRun]]:
    """The run of each of two trials, one after the other in one worker's system."""

    def runs(system: str, cache: str) -> list[SystemRun]:
        launch = dataclasses.replace(
            make_launch(system, model=tiny, most_slots=SLOTS),
            options=(Option(name="cache", value=cache),),
        )
        started = find(system)(launch)
        assert started.describe().cache == cache
        trial = Trial(slots=SLOTS, prompts=PROMPTS, max_tokens=(TOKENS,) * len(PROMPTS))
        return [started.run(trial), started.run(trial)]

    return runs


def test_two_sides_with_a_cache_are_compared_and_one_with_a_side_without_is_not(
    run: Callable[..., list[SystemRun]],
) -> None:
    cold, _ = run("nanoserve", "off")
    (torch, again), (ours, _) = run("nanoserve-torch", "on"), run("nanoserve", "on")
    # Who is admitted in the first step finds nothing, and everyone after it finds the block.
    expected = [0] * SLOTS + [len(PREFIX)] * (len(PROMPTS) - SLOTS)
    for made in (torch, again, ours):
        assert [r.cached_tokens for r in made.records] == expected
        assert [r.output_ids for r in made.records] == [r.output_ids for r in cold.records]
    assert {r.cached_tokens for r in cold.records} == {0}
    assert compare(torch, ours).speedup > 0
    with pytest.raises(UnfairComparison, match=r"PAIR010.*the cache differs"):
        compare(cold, ours)
    silent = [dataclasses.replace(r, cached_tokens=None) for r in ours.records]
    with pytest.raises(RunUnsound, match="RUN019"):
        compare(torch, dataclasses.replace(ours, records=silent))
