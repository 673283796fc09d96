"""Which trials are copies by the durations of their requests, to the nanosecond."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from nanoserve_bench.plan import Option, RequestLengths
from nanoserve_bench.records import Hold
from nanoserve_bench.results import ResultSet
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rules import run_copies
from nanoserve_bench.soundness.rules.run_copies import _is_steady, _likenesses, _measures, _Noise
from support.asking import Rows, findings, of, rows
from support.rebuild import AGAIN, BASE, engine, replace, shifted_request


def _told(results: ResultSet, requests: Rows) -> list[tuple[str | None, int | None, str]]:
    found = findings(results, "RUN017", requests=requests)
    return [(one.cell, one.block, one.message) for one in found]


def _as(row: Any, source: Any) -> Any:
    """`row` with the durations of `source`, and without tokens, whose spans would tell as well."""
    moved = shifted_request(source, row.arrival_ns - source.arrival_ns)
    return replace(
        row,
        submitted_ns=moved.submitted_ns,
        finished_ns=moved.finished_ns,
        first_token_ns=moved.first_token_ns,
        holds_ns=moved.holds_ns,
        token_ns=None,
    )


def _copied(results: ResultSet, names: set[str]) -> Rows:
    """Requests of block 4 of the baseline with the durations that they have in block 3."""
    source = {row.request: row for row in results.requests if of(BASE, 3)(row)}
    return tuple(
        _as(row, source[row.request]) if of(BASE, 4)(row) and row.request in names else row
        for row in results.requests
    )


def _shared(count: int, twin: int, requests: int = 8) -> str:
    return (
        f"the durations of {count} of its {requests} requests equal, to the nanosecond, those of "
        f"{BASE} in block {twin}: one of the two is a copy"
    )


@pytest.mark.parametrize(
    ("names", "refused"), [({"r0", "r7"}, True), ({"r3"}, False), (set(), False)]
)
def test_a_quarter_of_its_durations_makes_a_trial_a_copy(
    results: ResultSet, names: set[str], refused: bool
) -> None:
    expected = [(BASE, block, _shared(len(names), twin)) for block, twin in ((3, 4), (4, 3))]
    assert _told(results, _copied(results, names)) == (expected if refused else [])


def test_rows_of_one_batch_count_as_often_as_both_have_them(results: ResultSet) -> None:
    (one,) = filter(of(BASE, 3, "r5"), results.requests)
    span = one.finished_ns - one.arrival_ns
    requests = rows(
        results.requests,
        of(BASE, 4),
        finished_ns=lambda row: row.arrival_ns + span,
        first_token_ns=lambda row: row.arrival_ns + one.first_token_ns - one.arrival_ns,
        holds_ns=lambda row: (Hold(row.arrival_ns, row.arrival_ns + span),),
        token_ns=None,
    )
    assert _told(results, requests) == []


def test_a_copy_does_not_hide_behind_earlier_trials_that_share_a_little(results: ResultSet) -> None:
    """Each of seven trials before it has one duration of the copied one, which is chance."""
    copied = _copied(results, {f"r{number}" for number in range(8)})
    source = {row.request: row for row in copied if of(BASE, 3)(row)}
    cells = list(dict.fromkeys(row.cell for row in copied))
    before = [(cell, block) for block in (1, 2) for cell in cells]
    taken = dict(zip(before, (f"r{number}" for number in range(7)), strict=False))
    assert len(taken) == 7

    def touched(row: Any) -> Any:
        name = taken.get((row.cell, row.block))
        return _as(row, source[name]) if name == row.request and not row.warmup else row

    told = _told(results, tuple(map(touched, copied)))
    assert told == [(BASE, 3, _shared(8, 4)), (BASE, 4, _shared(8, 3))]


def test_a_copy_does_not_hide_behind_a_trial_that_has_one_of_the_three_durations(
    results: ResultSet,
) -> None:
    copied = _copied(results, {f"r{number}" for number in range(8)})
    source = {row.request: row for row in copied if of(BASE, 3)(row)}

    def as_soon(row: Any) -> int:
        told = source[row.request]
        return int(row.arrival_ns + told.first_token_ns - told.arrival_ns)

    told = _told(results, rows(copied, of(BASE, 1), first_token_ns=as_soon))
    assert told == [(BASE, 3, _shared(8, 4)), (BASE, 4, _shared(8, 3))]


def test_one_request_of_four_is_a_quarter(results: ResultSet) -> None:
    few = tuple(row for row in _copied(results, {"r3"}) if row.request < "r4")
    assert _told(results, few) == [
        (BASE, block, _shared(1, twin, 4)) for block, twin in ((3, 4), (4, 3))
    ]


def test_what_is_too_little_is_not_looked_at_again(
    results: ResultSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work on a study of chance hits stays that of sorting."""
    looked: list[object] = []
    monkeypatch.setattr(run_copies, "durations", looked.append)
    assert _told(results, _copied(results, {"r3"})) == []
    assert looked == []


def test_a_trial_that_repeats_itself_is_told_once(results: ResultSet) -> None:
    (one,) = filter(of(BASE, 3, "r2"), results.requests)

    def again(row: Any) -> tuple[int, ...]:
        return tuple(stamp + row.arrival_ns - one.arrival_ns for stamp in one.token_ns)

    told = _told(results, rows(results.requests, of(BASE, 3, "r5"), token_ns=again))
    message = (
        "its steps take, one behind the other and to the nanosecond, the time of those of "
        f"{BASE} in block 3: a part of it is a copy"
    )
    assert told == [(BASE, 3, message)]


def test_a_step_has_as_many_tokens_as_requests_can_be_served(results: ResultSet) -> None:
    """Four requests in eight slots come four tokens at a time; warm-ups are left out."""
    cell = engine(8)
    gone = of(BASE, 2)
    requests = tuple(
        row
        for row in results.requests
        if not gone(row) and (not of(cell)(row) or row.request < "r4")
    )
    told = run_copies._spans(Evidence.of(replace(results, requests=requests)))
    measured = [(row.block, row.cell) for row in results.trials if not row.warmup]
    assert [(trial.block, trial.cell.id) for trial, _ in told] == [
        place for place in measured if place != (2, BASE)
    ]
    (spans,) = (spans for trial, spans in told if of(cell)(trial.row))
    stamps = sorted(stamp for row in filter(of(cell), requests) for stamp in row.token_ns)
    assert spans.tolist() == np.diff(stamps[::4]).tolist()


def test_two_arms_measure_the_same_where_they_are_told_the_same(results: ResultSet) -> None:
    some = Option(name="threads", value="2"), Option(name="cache", value="1")

    def measured(options: tuple[Option, ...], again: tuple[Option, ...]) -> list[object]:
        told = {BASE.split("/")[0]: options, AGAIN.split("/")[0]: again}
        arms = tuple(replace(a, options=told.get(a.name, a.options)) for a in results.plan.arms)
        study = Evidence.of(replace(results, plan=replace(results.plan, arms=arms)))
        return [
            _measures(next(trial for trial in study.trials if trial.cell.id == cell))
            for cell in (BASE, AGAIN)
        ]

    for options, again, same in ((some, some[::-1], True), (some, some[:1], False)):
        one, other = measured(options, again)
        assert (one == other) == same


def test_a_workload_of_one_length_each_is_steady(results: ResultSet) -> None:
    (workload,) = results.plan.workloads
    one = RequestLengths(prompt_tokens=6, new_tokens=16)
    for count, steady in ((0, True), (8, True), (9, False)):
        assert _is_steady(replace(workload, lengths=(one,) * count)) == steady


@pytest.mark.parametrize(
    ("rows", "lengths", "moved"), [(1, 0, True), (2, 0, False), (1, 8, False), (2, 8, False)]
)
def test_parts_are_looked_for_in_trials_whose_clock_tells_spans_apart(
    results: ResultSet, rows: int, lengths: int, moved: bool
) -> None:
    """Only in a slot alone is a part one request, which may stand elsewhere if all are alike."""
    (workload,) = results.plan.workloads
    lengths_of_each = (RequestLengths(prompt_tokens=6, new_tokens=16),) * lengths
    trial = cast("Trial", SimpleNamespace(cell=SimpleNamespace(id="a")))
    for target, seen in ((2, True), (5, moved)):
        spans = np.random.default_rng(0).normal(1.0, 0.01, (9, 127))
        for copy in (0, 6):
            spans[copy, target * 16 :][:15] = spans[3, 32:47]
        group = [_Noise(trial, shares, "t", place > 0) for place, shares in enumerate(spans)]
        found = _likenesses(group, rows, replace(workload, lengths=lengths_of_each))
        assert [(one.earlier, one.later) for one in found] == [(3, 6)] * seen
