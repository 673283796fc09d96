"""What a sweep shows while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nanoserve_bench import progress
from nanoserve_bench.estimate import WARMUP_S, Costs
from nanoserve_bench.progress import BarProgress, Clock, PlainProgress, duration

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
    clock = Clock(total_s=40)
    assert clock.left_s() == 40
    clock.work(10)
    now[0] += 20
    assert clock.left_s() == pytest.approx(60)
    clock.work(1000)
    assert clock.left_s() == 0


def test_a_log_has_a_line_for_each_block_and_each_disturbance() -> None:
    text = io.StringIO()
    with PlainProgress(Console(file=text, width=100), COSTS, total_s=40) as shown:
        shown.start_block(0, 2, None)
        shown.start("running c")
        shown.finish_launch()
        shown.finish_trial("c", 9.0, warmup=True)
        shown.finish_trial("c", 9.0, warmup=False)
        shown.finish_block(0, None)
        shown.start_block(2, 2, 0)
        shown.finish_block(2, "c: a neighbour")
        assert shown._clock.done_s == 5 + WARMUP_S + 10
    lines = text.getvalue().splitlines()
    assert lines[0] == "block 1 of 2; about 40 s left"
    assert lines[1].startswith("block 3, which is block 1 again; about")
    assert lines[2] == "block 3 was disturbed: c: a neighbour"


def test_a_bar_names_what_runs_and_draws_only_when_something_ended() -> None:
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True)
    with BarProgress(console, COSTS, total_s=40) as shown:
        assert shown._bar.live.auto_refresh is False
        shown.start_block(0, 2, None)
        shown.start("running c")
        shown.finish_launch()
        shown.finish_trial("c", 9.0, warmup=False)
        shown.start_block(2, 2, 0)
    assert "block 1 of 2" in text.getvalue()
    assert "running c" in text.getvalue()
    assert "38 %" in text.getvalue()
    assert "which is block 1 again" in text.getvalue()
