"""Which trials are copies by the durations of their requests, to the nanosecond."""

from __future__ import annotations

from typing import Any

import pytest

from nanoserve_bench.records import Hold
from nanoserve_bench.results import ResultSet
from support.asking import Rows, findings, of, rows
from support.rebuild import BASE, replace, shifted_request


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


def _shared(count: int, twin: int) -> str:
    return (
        f"the durations of {count} of its 8 requests equal, to the nanosecond, those of {BASE} in "
        f"block {twin}: one of the two is a copy"
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
