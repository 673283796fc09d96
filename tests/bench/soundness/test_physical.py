"""Forward passes that a run took, or cannot have done without."""

from __future__ import annotations

import dataclasses

import pytest

from nanoserve_bench.soundness.physical import forward_passes
from support.ruler import concurrent, record, serial


def test_the_step_log_tells_the_passes() -> None:
    run = concurrent(4, slots=2)
    assert run.steps is not None
    one = run.steps[0]
    rows = ((0, 0), (2, 0), (0, 2), (1, 1))
    steps = [one._replace(prefill_rows=p, decode_rows=d) for p, d in rows]
    assert forward_passes(dataclasses.replace(run, steps=tuple(steps))) == 3


@pytest.mark.parametrize(
    ("lengths", "slots", "passes"),
    [((4, 4, 4, 4), 2, 8), ((4, 4, 5), 2, 7), ((9, 1, 1), 2, 9), ((1, 1, 1), 8, 1)],
)
def test_without_a_log_no_scheduler_undercuts_the_longest_and_the_mean(
    lengths: tuple[int, ...], slots: int, passes: int
) -> None:
    records = tuple(record(number, tokens=tokens) for number, tokens in enumerate(lengths))
    run = dataclasses.replace(concurrent(4), records=records, slots=slots, steps=None)
    assert forward_passes(run) == passes


def test_one_row_at_a_time_takes_a_pass_a_token() -> None:
    assert forward_passes(serial(3)) == 12
