"""From choices to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from nanoserve_bench import systems
from nanoserve_bench.errors import PlanError
from nanoserve_bench.ordering import orders
from nanoserve_bench.plan import AcknowledgedRefusal, Plan, SkippedDevice
from nanoserve_bench.planning import Choices, build_plan
from nanoserve_bench.soundness.rules.report_form import READ_RULES


def plan_of(choices: Choices, devices: tuple[str, ...] = ("cpu",)) -> Plan:
    return build_plan(
        choices,
        run_id="a-run",
        created_at="2026-11-30T00:00:00+00:00",
        model="a-model",
        devices=devices,
        skipped_devices=(SkippedDevice(device="mps", reason="not there"),),
        revision="abc",
        dirty=False,
        find_system=systems.find,
    )


DEFAULT = plan_of(Choices())


def test_the_default_study() -> None:
    assert [(arm.name, arm.system) for arm in DEFAULT.arms] == [
        ("hf-generate", "hf-generate"),
        ("hf-generate-again", "hf-generate"),
        ("nanoserve", "nanoserve"),
    ]
    assert DEFAULT.headline_baseline == "hf-generate"
    assert [cell.id for cell in DEFAULT.cells] == [
        "hf-generate/cpu/float32/1/day44",
        "hf-generate-again/cpu/float32/1/day44",
        "nanoserve/cpu/float32/1/day44",
        "nanoserve/cpu/float32/2/day44",
        "nanoserve/cpu/float32/4/day44",
        "nanoserve/cpu/float32/8/day44",
    ]
    assert (DEFAULT.blocks.least, DEFAULT.blocks.most, DEFAULT.blocks.most_reruns) == (8, 8, 2)
    assert DEFAULT.skipped_devices[0].reason == "not there"


def test_every_other_cell_is_compared_with_the_headline_baseline() -> None:
    assert {(c.candidate, c.kind) for c in DEFAULT.comparisons} == {
        ("hf-generate-again/cpu/float32/1/day44", "self"),
        *((f"nanoserve/cpu/float32/{n}/day44", "rival") for n in (1, 2, 4, 8)),
    }
    assert {c.baseline for c in DEFAULT.comparisons} == {"hf-generate/cpu/float32/1/day44"}


def test_comparisons_stay_on_one_device_dtype_and_workload() -> None:
    plan = plan_of(
        Choices(workloads=("day44", "day44x32"), dtypes=("float32", "bfloat16")),
        devices=("cpu", "cuda:0"),
    )
    cells = {cell.id: cell for cell in plan.cells}
    assert len(plan.comparisons) == 2 * 2 * ((1 + 4) + (1 + 6))
    for comparison in plan.comparisons:
        one, other = cells[comparison.baseline], cells[comparison.candidate]
        assert (one.device, one.dtype, one.workload) == (other.device, other.dtype, other.workload)


def test_a_variant_counts_as_the_system_itself_and_is_no_a_a() -> None:
    """What the stamps cost: the variant beside the baseline, which takes part once more."""
    plan = plan_of(Choices(arms=("hf-generate", "hf-generate-untimed")))
    assert [(arm.name, arm.system) for arm in plan.arms] == [
        ("hf-generate", "hf-generate"),
        ("hf-generate-untimed", "hf-generate-untimed"),
        ("hf-generate-again", "hf-generate"),
    ]
    assert [(c.kind, c.candidate) for c in plan.comparisons] == [
        ("self", "hf-generate-untimed/cpu/float32/1/day44"),
        ("self", "hf-generate-again/cpu/float32/1/day44"),
    ]
    again = plan_of(Choices(arms=("hf-generate", "b=hf-generate", "hf-generate-untimed")))
    assert [arm.name for arm in again.arms] == ["hf-generate", "b", "hf-generate-untimed"]


def test_a_baseline_that_would_stand_alone_takes_part_once_more() -> None:
    plan = plan_of(Choices(arms=("base=hf-generate", "nanoserve")))
    assert [(arm.name, arm.system) for arm in plan.arms][-1] == ("base-again", "hf-generate")
    assert plan.headline_baseline == "base"


def test_every_baseline_is_measured_against_itself() -> None:
    """Two baselines: each gets its own A/A, and meets every arm that is neither."""
    plan = plan_of(
        Choices(
            arms=("nanoserve", "other=hf-generate-untimed", "hf-generate"),
            baselines=("hf-generate", "nanoserve"),
            slots=(1, 2),
        )
    )
    assert plan.headline_baseline == "hf-generate"
    assert [arm.name for arm in plan.arms][3:] == ["hf-generate-again", "nanoserve-again"]
    pairs = [
        (c.baseline.split("/")[0], c.candidate.split("/")[0], c.candidate.split("/")[3], c.kind)
        for c in plan.comparisons
    ]
    assert pairs == [
        ("hf-generate", "nanoserve", "1", "rival"),
        ("hf-generate", "nanoserve", "2", "rival"),
        ("hf-generate", "other", "1", "self"),
        ("hf-generate", "hf-generate-again", "1", "self"),
        ("nanoserve", "other", "1", "rival"),
        ("nanoserve", "nanoserve-again", "1", "self"),
        ("nanoserve", "nanoserve-again", "2", "self"),
    ]


def test_two_arms_of_a_baselines_system_need_no_third() -> None:
    arms = ("hf-generate", "b=hf-generate", "nanoserve", "mine=nanoserve")
    plan = plan_of(Choices(arms=arms, baselines=("hf-generate", "mine")))
    assert len(plan.arms) == 4
    kinds = {
        (c.baseline.split("/")[0], c.candidate.split("/")[0]): c.kind for c in plan.comparisons
    }
    assert kinds == {
        ("hf-generate", "b"): "self",
        ("hf-generate", "nanoserve"): "rival",
        ("hf-generate", "mine"): "rival",
        ("mine", "b"): "rival",
        ("mine", "nanoserve"): "self",
    }


def test_a_concurrent_baseline_is_met_at_the_same_slots() -> None:
    plan = plan_of(Choices(arms=("nanoserve", "b=nanoserve", "hf-generate"), slots=(1, 4)))
    assert {(c.baseline.split("/")[3], c.candidate) for c in plan.comparisons} == {
        ("1", "b/cpu/float32/1/day44"),
        ("4", "b/cpu/float32/4/day44"),
        ("1", "hf-generate/cpu/float32/1/day44"),
    }


@pytest.mark.usefixtures("fake_systems")
def test_an_arm_that_may_be_missing_is_a_hole_with_its_reason() -> None:
    plan = plan_of(Choices(arms=("hf-generate", "rival=fake-optional", "nanoserve")))
    assert [arm.name for arm in plan.arms] == ["hf-generate", "nanoserve", "hf-generate-again"]
    (hole,) = plan.skipped_arms
    assert (hole.arm, hole.system, hole.device) == ("rival", "fake-optional", None)
    assert hole.reason == "not installed: no_such_module"
    assert not any(cell.arm == "rival" for cell in plan.cells)


@pytest.mark.usefixtures("fake_systems")
def test_an_arm_is_a_hole_where_it_does_not_run() -> None:
    choices = Choices(arms=("fake", "n=fake-narrow"), dtypes=("float32", "bfloat16"))
    plan = plan_of(choices, devices=("cpu", "cuda:0"))
    assert [cell.id for cell in plan.cells if cell.arm == "n"] == ["n/cpu/float32/1/day44"]
    assert {(hole.device, hole.dtype) for hole in plan.skipped_arms} == {
        ("cpu", "bfloat16"),
        ("cuda:0", "float32"),
        ("cuda:0", "bfloat16"),
    }
    assert {hole.reason for hole in plan.skipped_arms} == {"it runs on cpu in float32 only"}
    nowhere = plan_of(choices, devices=("cuda:0",))
    assert "n" not in {arm.name for arm in nowhere.arms}


@pytest.mark.usefixtures("fake_systems")
@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (("fake-optional", "fake"), "cannot run here"),
        (("fake", "fake-needy"), "cannot run here"),
        (("fake-narrow", "fake"), "is a baseline, and runs on cpu in float32 only"),
    ],
)
def test_neither_the_baseline_nor_an_arm_that_is_no_rival_may_be_missing(
    arms: tuple[str, ...], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        plan_of(Choices(arms=arms, dtypes=("float32", "bfloat16")))


@pytest.mark.parametrize("blocks", [1, 2, 8, 11])
def test_an_order_holds_every_cell_once(blocks: int) -> None:
    ids = sorted(cell.id for cell in DEFAULT.cells)
    all_orders = list(orders(DEFAULT.cells, blocks, seed=1))
    assert len(all_orders) == blocks
    assert all(sorted(order) == ids for order in all_orders)


def test_neither_side_of_a_pair_comes_first_more_often() -> None:
    assert len(DEFAULT.orders) == 8 + 2
    for comparison in DEFAULT.comparisons:
        first = [
            order.index(comparison.baseline) < order.index(comparison.candidate)
            for order in DEFAULT.orders[:8]
        ]
        assert sum(first) == 4


def test_every_cell_has_the_same_mean_place() -> None:
    places = {
        cell.id: sum(order.index(cell.id) for order in DEFAULT.orders[:8]) for cell in DEFAULT.cells
    }
    assert set(places.values()) == {8 * 5 // 2}


def test_orders_follow_from_the_seed() -> None:
    assert list(orders(DEFAULT.cells, 8, 44)) == list(DEFAULT.orders[:8])
    assert list(orders(DEFAULT.cells, 8, 45)) != list(DEFAULT.orders[:8])
    assert len(set(DEFAULT.orders[:8:2])) > 1


def test_cells_of_one_device_and_dtype_stay_together() -> None:
    plan = plan_of(Choices(dtypes=("float32", "bfloat16")), devices=("cpu", "cuda:0"))
    cells = {cell.id: cell for cell in plan.cells}
    for order in plan.orders:
        grounds = [(cells[cell].device, cells[cell].dtype) for cell in order]
        assert len(list(itertools.groupby(grounds))) == 4


def test_a_target_lets_a_sweep_stop_between_least_and_most() -> None:
    plan = plan_of(Choices(least_blocks=8, most_blocks=16, target=0.02))
    assert (plan.blocks.least, plan.blocks.most, plan.blocks.target_half_width) == (8, 16, 0.02)
    assert len(plan.orders) == 16 + plan.blocks.most_reruns


def test_acknowledged_refusals_stand_in_the_plan() -> None:
    refusal = AcknowledgedRefusal(
        cell="nanoserve/cpu/float32/8/day44", rule="PAIR005", reason="known"
    )
    assert plan_of(Choices(acknowledged=(refusal,))).acknowledged == (refusal,)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("PAIR05", "no rule has the code 'PAIR05'; `nanoserve-bench rules` lists them"),
        ("pair005", "no rule has the code 'pair005'"),
        *((rule.code, "is about the whole study") for rule in READ_RULES),
        ("STAT006", "is about the whole study"),
        ("STAT007", "is about the whole study"),
        ("REP013", "is about the whole study"),
    ],
)
def test_only_a_refusal_of_a_cell_or_pair_can_be_acknowledged(rule: str, message: str) -> None:
    refusal = AcknowledgedRefusal(cell="nanoserve/cpu/float32/8/day44", rule=rule, reason="why")
    with pytest.raises(PlanError, match=message):
        plan_of(Choices(acknowledged=(refusal,)))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (lambda: Choices(arms=("nope",)), "no system is called 'nope'"),
        (lambda: Choices(arms=("a=",)), "is no arm"),
        (lambda: Choices(arms=("a/b=nanoserve",)), "is no arm"),
        (lambda: Choices(arms=("+b=nanoserve",)), "its name would be run as a formula"),
        (lambda: Choices(arms=("-=nanoserve",)), "its name would be run as a formula"),
        (lambda: Choices(arms=("@b=nanoserve",)), "its name would be run as a formula"),
        (lambda: Choices(arms=("a\tb=nanoserve",)), "its name holds a control character"),
        (lambda: Choices(arms=("nanoserve", "nanoserve")), "arm 'nanoserve' is there twice"),
        (lambda: Choices(arms=("hf-continuous",)), "can measure what the device does at best"),
        (lambda: Choices(baselines=("vllm",)), "no arm is called 'vllm'; there are: hf-generate"),
        (lambda: Choices(baselines=("nanoserve", "nanoserve")), "baseline 'nanoserve' is there"),
        (lambda: Choices(workloads=("day45",)), "no workload is called 'day45'"),
        (lambda: Choices(workloads=("day44", "day44")), "is there twice"),
        (lambda: Choices(dtypes=("float32", "float32")), "is there twice"),
        (lambda: Choices(slots=(16,)), "16 slots do not suit day44"),
        (lambda: Choices(slots=(0,)), "0 slots do not suit"),
        (lambda: Choices(least_blocks=9), "no number is both"),
        (lambda: Choices(most_blocks=9), "give a target width"),
        (lambda: Choices(most_blocks=9, target=2.0), "a share such as 0.02"),
        (lambda: Choices(target=0.02), "give --most-blocks above --blocks"),
        (
            lambda: Choices(acknowledged=(AcknowledgedRefusal(cell="x", rule="r", reason="w"),)),
            "no cell is called 'x'",
        ),
        (
            lambda: Choices(
                acknowledged=(
                    AcknowledgedRefusal(
                        cell="nanoserve/cpu/float32/8/day44", rule="PAIR005", reason=" "
                    ),
                )
            ),
            "say why",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(choices: Callable[[], Choices], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_of(choices())


def test_an_option_that_a_system_does_not_have_is_refused() -> None:
    with pytest.raises(PlanError, match="hf-generate has no option 'beams'; there are: none"):
        plan_of(Choices(arms=("hf-generate,beams=2",)))
