"""How long a sweep is said to take."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path

import pytest

from nanoserve_bench.estimate import CEILINGS_S, WARMUP_S, Costs, estimate
from nanoserve_bench.results import PLAN, read
from support.sound import study


def test_without_an_earlier_run_the_documented_costs_stand_in() -> None:
    plan = study().plan
    costs = estimate(plan, weight_bytes=538_000_000, earlier=None)
    baseline = next(cell for cell in plan.cells if cell.arm == plan.headline_baseline)
    assert costs.cells_s[baseline.id] == pytest.approx(8 * 16 * 0.062, rel=0.01)
    assert costs.measured == frozenset()


def test_more_slots_take_fewer_steps() -> None:
    plan = study().plan
    costs = estimate(plan, weight_bytes=538_000_000, earlier=None)
    seconds = [costs.cells_s[c.id] for c in plan.cells if c.system == "nanoserve"]
    assert len(seconds) >= 3
    assert seconds == sorted(seconds, reverse=True)


def test_an_earlier_run_of_the_same_model_says_it(tmp_path: Path) -> None:
    known = study()
    results = read(known.write(tmp_path / "earlier"))
    costs = estimate(known.plan, weight_bytes=538_000_000, earlier=tmp_path)
    cell = known.plan.cells[0].id
    walls = [t.wall_ns / 1e9 for t in results.trials if t.cell == cell and not t.warmup]
    assert costs.cells_s[cell] == pytest.approx(statistics.median(walls))
    assert cell in costs.measured
    other = dataclasses.replace(known.plan, model="another")
    assert estimate(other, weight_bytes=538_000_000, earlier=tmp_path).measured == frozenset()


def test_a_damaged_earlier_run_is_passed_over(tmp_path: Path) -> None:
    known = study()
    folder = known.write(tmp_path / "earlier")
    (folder / PLAN).write_text("{}")
    assert estimate(known.plan, weight_bytes=1, earlier=tmp_path).measured == frozenset()
    assert (
        estimate(known.plan, weight_bytes=1, earlier=tmp_path / "nowhere").measured == frozenset()
    )


def test_a_block_is_the_sum_of_its_parts() -> None:
    plan = study().plan
    costs = Costs(
        launch_s=10,
        ceilings_s=CEILINGS_S,
        cells_s={cell.id: 2.0 for cell in plan.cells},
        measured=frozenset(),
    )
    assert costs.block_s(plan) == pytest.approx(
        len(plan.arms) * 10 + CEILINGS_S + len(plan.cells) * (2 + WARMUP_S)
    )
