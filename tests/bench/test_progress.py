"""What a sweep shows while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nanoserve_bench import progress
from nanoserve_bench.estimate import WARMUP_S, Costs, estimate
from nanoserve_bench.progress import BarProgress, Clock, PlainProgress, duration
from support.sound import study

COSTS = Costs(launch_s=5, ceilings_s=1, cells_s={"c": 10.0}, measured=frozenset())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min 01 s"), (3599.6, "1 h 00 min"), (7260, "2 h 01 min")],
)
def test_a_duration_is_said_as_people_do(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_time_left_follows_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    clock = Clock()
    clock.expect(40)
    assert clock.left_s() == 40
    clock.work(10)
    now[0] += 20
    assert clock.left_s() == pytest.approx(60)
    clock.expect(60)
    assert clock.left_s() == pytest.approx(120)
    clock.work(1000)
    assert clock.left_s() == 0


def test_a_log_has_a_line_for_each_block_and_each_disturbance() -> None:
    text = io.StringIO()
    with PlainProgress(Console(file=text, width=100), COSTS, block_s=20) as shown:
        shown.start_block(3, 4, left=2, again=False)
        shown.start("running c")
        shown.finish_launch()
        shown.finish_trial("c", 9.0, warmup=True)
        shown.finish_ceilings()
        shown.finish_trial("c", 9.0, warmup=False)
        shown.finish_block(3, None)
        shown.start_block(1, 4, left=2, again=True)
        shown.finish_block(1, "c: a neighbour")
        assert shown._clock.done_s == 5 + WARMUP_S + 1 + 10
        assert shown._clock.total_s == shown._clock.done_s + 2 * 20
    lines = text.getvalue().splitlines()
    assert lines[0] == "block 3 of 4; about 40 s left"
    assert lines[1].startswith("block 1 again; about")
    assert lines[2] == "block 1 was disturbed: c: a neighbour"


def test_a_bar_names_what_runs_and_draws_only_when_something_ended() -> None:
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True)
    with BarProgress(console, COSTS, block_s=16.5) as shown:
        assert shown._bar.live.auto_refresh is False
        shown.start_block(1, 2, left=2, again=False)
        _run_block(shown)
        assert " 50 %" in text.getvalue()
        shown.start_block(1, 2, left=1, again=True)
    assert "block 1 of 2" in text.getvalue()
    assert "running c" in text.getvalue()
    assert "block 1 again" in text.getvalue()


def test_a_bar_reaches_its_end_also_where_blocks_were_done_before() -> None:
    """Every part of a block counts, and blocks of an earlier start are no part of the work."""
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True)
    plan = study(blocks=1).plan
    costs = estimate(plan, weight_bytes=538_000_000, earlier=None)
    with BarProgress(console, costs, block_s=costs.block_s(plan)) as shown:
        shown.start_block(8, 8, left=1, again=False)
        for _ in plan.arms:
            shown.finish_launch()
        for cell in plan.cells:
            shown.finish_trial(cell.id, 1.0, warmup=True)
        shown.finish_ceilings()
        for cell in plan.cells:
            assert "100 %" not in text.getvalue()
            shown.finish_trial(cell.id, 1.0, warmup=False)
    assert "100 %" in text.getvalue()


def _run_block(shown: BarProgress) -> None:
    shown.start("running c")
    shown.finish_launch()
    shown.finish_trial("c", 0.5, warmup=True)
    shown.finish_ceilings()
    shown.finish_trial("c", 9.0, warmup=False)
