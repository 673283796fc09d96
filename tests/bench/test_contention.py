"""When a trial counts as disturbed."""

from __future__ import annotations

import pytest

from nanoserve_bench.contention import contention
from nanoserve_bench.schema import TrialRow

S = 1_000_000_000


def trial(
    *, wall_ns: int = 10 * S, other_cpu_ns: int | None = 0, steal_ns: int | None = 0
) -> TrialRow:
    return TrialRow(
        block=0,
        replaces=None,
        launch=0,
        cell="c",
        order=0,
        warmup=False,
        started_at="2026-11-30T00:00:00+00:00",
        started_ns=0,
        wall_ns=wall_ns,
        load_before=None,
        load_after=None,
        involuntary_switches=None,
        steal_ns=steal_ns,
        cpu_ns=wall_ns,
        other_cpu_ns=other_cpu_ns,
        peak_memory_bytes=None,
    )


@pytest.mark.parametrize(
    ("row", "disturbed"),
    [
        (trial(), False),
        (trial(other_cpu_ns=S), False),
        (trial(other_cpu_ns=S + 1), True),
        (trial(steal_ns=S // 2), False),
        (trial(steal_ns=S // 2 + 1), True),
        (trial(wall_ns=S // 10, other_cpu_ns=40_000_000), False),
        (trial(wall_ns=S // 10, other_cpu_ns=50_000_000), True),
        (trial(other_cpu_ns=None, steal_ns=None), False),
        (trial(other_cpu_ns=None, steal_ns=S), True),
    ],
)
def test_a_tenth_of_a_core_and_a_twentieth_stolen_are_too_much(
    row: TrialRow, disturbed: bool
) -> None:
    assert (contention(row) is not None) is disturbed


def test_the_reason_says_who_and_how_much() -> None:
    assert contention(trial(other_cpu_ns=5 * S)) == (
        "other processes used 0.50 cores during the trial, and more than 0.10 disturb it"
    )
    assert "the hypervisor took 0.20 cores" in str(contention(trial(steal_ns=2 * S)))
