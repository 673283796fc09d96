"""Rules about whole studies at their borders: the last value that passes, the first that does not.

Judged on rows in memory, by the rule in question alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.soundness import Finding
from nanoserve_bench.soundness.rules.stat_contention import JUDGED
from support import load_studies
from support.asking import asked, findings, line_of, of, of_blocks, rows, trial_of, without
from support.rebuild import AGAIN, BASE, engine, replace
from support.sound import MS

SECOND = 1_000 * MS


EXAMINED = {
    "RUN001": 48, "RUN002": 48, "RUN003": 48, "RUN004": 384, "RUN005": 48, "RUN006": 48,
    "RUN007": 384, "RUN008": 48, "RUN009": 48, "RUN010": 16, "RUN011": 16, "RUN012": 24,
    "RUN013": 32, "RUN014": 96, "RUN015": 48, "RUN016": 384, "RUN017": 48, "RUN018": 48,
    "RUN019": 48, "RUN020": 48, "RUN021": 24, "RUN022": 256, "RUN023": 256, "RUN024": 384,
    "RUN025": 1952,
    "PAIR001": 64, "PAIR002": 64, "PAIR003": 64, "PAIR004": 64, "PAIR005": 512, "PAIR006": 64,
    "PAIR007": 64, "PAIR008": 64, "PAIR009": 64, "PAIR010": 64, "PAIR011": 64, "PAIR012": 64,
    "PAIR013": 32, "STAT001": 14, "STAT002": 96, "STAT003": 6, "STAT004": 48,
    "STAT005": 5, "STAT006": 1, "STAT007": 96, "REP010": 48, "REP011": 97, "REP012": 6,
}  # fmt: skip
"""What rules look at in the sound study of 8 blocks: 6 cells of 8 requests, with their warm-ups."""


@pytest.mark.parametrize("code", EXAMINED)
def test_what_a_rule_looks_at_is_counted(results: ResultSet, code: str) -> None:
    inspection = asked(results, code)
    assert inspection.examined == EXAMINED[code]
    assert (inspection.not_applicable is None) == bool(EXAMINED[code])
    assert inspection.findings == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("PAIR005", "the plan states no ratio"),
        ("PAIR013", "no system is compared with itself"),
        ("STAT005", "the plan compares nothing"),
    ],
)
def test_where_nothing_is_compared_the_rules_of_pairs_say_so(
    results: ResultSet, code: str, reason: str
) -> None:
    cells = tuple(cell for cell in results.plan.cells if cell.id in {BASE, engine(8)})
    plan = replace(results.plan, cells=cells, comparisons=())
    kept = without(results, lambda row: row.cell not in {BASE, engine(8)})
    inspection = asked(results, code, plan=plan, **kept)
    assert (inspection.not_applicable, inspection.findings) == (reason, [])


# RUN014: the wall of the worker and that of its parent.


def lasting(results: ResultSet, inside: int, outside: int, started: int = -MS) -> list[Finding]:
    """One trial whose requests take `inside` and whose parent waited `outside` from `started`."""
    own = [row for row in results.requests if of(BASE)(row)]
    first = min(row.arrival_ns for row in own)
    last = max(own, key=lambda row: row.finished_ns)
    requests = rows(results.requests, of(BASE, request=last.request), finished_ns=first + inside)
    trials = rows(results.trials, of(BASE), wall_ns=outside, started_ns=first + started)
    return findings(results, "RUN014", requests=requests, trials=trials)


OUTSIDE = (
    "the parent waited 10000000000 ns, and the requests account for 9749999999 ns: 250000001 ns of "
    "work lie outside of the stamps"
)


@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        (10 * SECOND, 10 * SECOND, None),
        (
            10 * SECOND + 1,
            10 * SECOND,
            "the requests take 10000000001 ns, and the parent waited 10000000000 ns for all of it",
        ),
        (9_750 * MS, 10 * SECOND, None),
        (
            9_750 * MS - 1,
            10 * SECOND,
            OUTSIDE,
        ),
    ],
)
def test_the_wall_seen_from_outside_may_be_50_ms_and_2_percent_longer(
    results: ResultSet, inside: int, outside: int, message: str | None
) -> None:
    found = lasting(results, inside, outside)
    assert [f.message for f in found] == ([] if message is None else [message])
    for finding in found:
        assert (finding.file, finding.row) == ("trials.csv", line_of(results, BASE))
        assert finding.evidence == f"worker {inside} ns, parent {outside} ns, slack 250000000 ns"


@pytest.mark.parametrize(
    ("started", "refused"),
    [(50 * MS, False), (50 * MS + 1, True), (-250 * MS, False), (-250 * MS - 1, True)],
)
def test_the_requests_may_lie_50_ms_outside_of_the_wall(
    results: ResultSet, started: int, refused: bool
) -> None:
    found = lasting(results, 9_800 * MS, 10 * SECOND, started)
    assert len(found) == refused
    for finding in found:
        assert "they are the rows of another trial" in finding.message
        assert (finding.file, finding.row) == ("trials.csv", line_of(results, BASE))


def test_a_trial_without_a_wall_hides_no_other(results: ResultSet) -> None:
    requests = rows(results.requests, of(BASE, 2, "r1"), finished_ns=None)
    trials = rows(results.trials, of(BASE, 3), wall_ns=1)
    found = findings(results, "RUN014", requests=requests, trials=trials)
    assert [(f.block, f.file, f.row) for f in found] == [
        (2, "trials.csv", line_of(results, BASE, 2)),
        (3, "trials.csv", line_of(results, BASE, 3)),
    ]
    assert found[0].message == "the run has no wall to hold against the parent's"


# STAT004: the machine while a trial ran.


def disturbed(results: ResultSet, **values: Any) -> list[str]:
    trials = rows(results.trials, of(BASE), **values)
    return [finding.message for finding in findings(results, "STAT004", trials=trials)]


SLEPT = (
    "the worker used 0.70 cores while it ran: it slept, or was kept from its cores (least is 0.7)"
)


@pytest.mark.parametrize(("cpu_ns", "refused"), [(7 * SECOND, False), (7 * SECOND - 1, True)])
def test_a_worker_on_a_cpu_uses_seven_tenths_of_a_core(
    results: ResultSet, cpu_ns: int, refused: bool
) -> None:
    found = disturbed(results, wall_ns=10 * SECOND, cpu_ns=cpu_ns)
    assert found == ([SLEPT] if refused else [])


READINGS = (
    "other_cpu_ns", "steal_ns", "cpu_ns", "involuntary_switches", "load_before", "load_after",
    "peak_memory_bytes",
)  # fmt: skip


@pytest.mark.parametrize("column", READINGS)
def test_no_reading_of_the_machine_is_below_zero(results: ResultSet, column: str) -> None:
    trial = trial_of(results, BASE)
    values = tuple(-1 if name == column else getattr(trial, name) for name in READINGS)
    message = f"a reading of the machine is negative: {values}"
    assert message in disturbed(results, **{column: -1})
    assert column == "cpu_ns" or disturbed(results, **{column: 0}) == []
    blank = f"{column} is blank, and other trials of the arm tell it"
    assert disturbed(results, **{column: None}) == [blank] * (column in JUDGED)


def test_a_card_may_leave_its_worker_idle(results: ResultSet) -> None:
    cells = tuple(replace(cell, device="cuda:0") for cell in results.plan.cells)
    trials = rows(results.trials, of(BASE), cpu_ns=0)
    plan = replace(results.plan, cells=cells)
    assert findings(results, "STAT004", plan=plan, trials=trials) == []


def test_what_an_open_loop_idles_asks_for_no_cpu_time(tmp_path: Path) -> None:
    made = load_studies.study(0.1, slots=1, blocks=1)
    load = load_studies.cell(load_studies.loads(0.1, slots=1)[0])
    spans = sorted(
        (row.arrival_ns, row.finished_ns) for row in made.blocks[0].requests if of(load, 0)(row)
    )
    busy, until = 0, 0
    for arrival, finished in spans:
        busy += finished - max(until, arrival)
        until = finished
    results = read(made.write(tmp_path / "run"))
    assert busy < 0.5 * trial_of(results, load, 0).wall_ns
    for cpu_ns, refused in ((0.7 * busy + 1, False), (0.7 * busy - 1, True)):
        trials = rows(results.trials, of(load, 0), cpu_ns=round(cpu_ns))
        assert bool(findings(results, "STAT004", trials=trials)) == refused


# STAT005: one system twice.


@pytest.mark.parametrize("faster", [0.9, 1.1])
def test_an_a_a_pair_that_favours_either_side_is_refused(results: ResultSet, faster: float) -> None:
    """Of two blocks, the least from which an interval can be made."""
    kept = of_blocks(results, 2)

    def moved(row: Any) -> int:
        first = min(other.arrival_ns for other in kept["requests"] if of(AGAIN, row.block)(other))
        return round(first + (row.finished_ns - first) * faster)

    kept["requests"] = rows(
        kept["requests"],
        lambda row: row.cell == AGAIN and not row.warmup,
        finished_ns=moved,
    )
    (finding,) = findings(results, "STAT005", **kept)
    assert (finding.reference_cell, finding.cell, finding.block) == (BASE, AGAIN, None)
    assert finding.message == (
        "the same system measured twice differs: the whole interval of its ratio lies beyond 3%, "
        "so something favours a side"
    )


# STAT006: the ledger of starts.


@pytest.mark.parametrize(
    ("started_at", "refused"),
    [
        ("2026-01-01T00:00:01+00:00", False),
        ("2026-01-01T00:00:01", False),
        ("2026-01-01T00:00:00.999999+00:00", True),
        ("2026-01-01T00:00:00.999999", True),
        ("2026-01-01T01:00:01+01:00", False),
        ("2026-01-01T00:00:02+01:00", True),
    ],
)
def test_a_trial_may_start_with_the_first_start_and_not_before(
    results: ResultSet, started_at: str, refused: bool
) -> None:
    trials = rows(results.trials, of(BASE), started_at=started_at)
    found = findings(results, "STAT006", trials=trials)
    began = "before start 0, which ran its block (2026-01-01T00:00:01+00:00)"
    assert [f.message for f in found] == [f"it started at {started_at}, {began}"] * refused
    assert all((f.file, f.row) == ("trials.csv", line_of(results, BASE)) for f in found)


@pytest.mark.parametrize(
    ("started_at", "refused"),
    [("2026-01-01T04:00:00.999999+00:00", False), ("2026-01-01T04:00:01+00:00", True)],
)
def test_a_trial_starts_before_the_next_start_to_the_second(
    results: ResultSet, started_at: str, refused: bool
) -> None:
    (only,) = results.manifest.ledger
    ledger = (
        replace(only, outcome="interrupted"),
        replace(only, started_at="2026-01-01T04:00:00+00:00", first_block=4, outcome="interrupted"),
        replace(only, started_at="2026-01-01T06:00:00+00:00", first_block=6),
    )
    found = findings(
        results,
        "STAT006",
        manifest=replace(results.manifest, ledger=ledger),
        trials=rows(results.trials, of(BASE), started_at=started_at),
    )
    message = (
        f"it started at {started_at}, and start 0, which ran its block, had ended when the next "
        "one began (2026-01-01T04:00:00+00:00)"
    )
    assert [f.message for f in found] == [message] * refused


EMPTY_STARTS = "4 starts ended without a block, 3 are accounted for: what they measured is unknown"


def starts(results: ResultSet, *changes: dict[str, Any]) -> list[tuple[str, str | None]]:
    (only,) = results.manifest.ledger
    ends = [*["interrupted"] * (len(changes) - 1), "completed"]
    ledger = [
        replace(only, **{"outcome": end, **change})
        for end, change in zip(ends, changes, strict=True)
    ]
    manifest = replace(results.manifest, ledger=tuple(ledger))
    found = findings(results, "STAT006", manifest=manifest)
    assert all(finding.file == "manifest.json" for finding in found)
    return [(finding.message, finding.column) for finding in found]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (({}, {}), []),
        (({}, {"first_block": 8}), []),
        (
            ({"first_block": 1},),
            [("the first start begins at block 1: earlier ones are gone", "ledger[0]")],
        ),
        (({}, {"first_block": 9}), [("the last start begins at block 9 of 8", "ledger[1]")]),
        (
            ({"first_block": 1}, {"first_block": 1}),
            [("the first start begins at block 1: earlier ones are gone", "ledger[0]")],
        ),
        (
            ({}, {"first_block": 3}, {"first_block": 2}),
            [
                (
                    "start 2 goes back to block 2 from 3: measured blocks were thrown away",
                    "ledger[2]",
                )
            ],
        ),
        (({},) * 4, []),
        (
            ({},) * 5,
            [
                (EMPTY_STARTS, "ledger[4]"),
            ],
        ),
        (
            ({}, {"outcome": "running"}),
            [("the last start is 'running', not completed", "ledger[1]")],
        ),
        (
            ({}, {"started_at": "2026-01-01T00:00:00+00:00"}),
            [("start 1 (2026-01-01T00:00:00+00:00) is older than start 0", "ledger[1]")],
        ),
    ],
)
def test_how_starts_may_follow_each_other(
    results: ResultSet, changes: Any, expected: list[tuple[str, str]]
) -> None:
    assert starts(results, *changes) == expected


@pytest.mark.parametrize(
    ("outcome", "refused"),
    [
        ("interrupted", False),
        ("failed: no memory", False),
        ("completed", True),
        ("it failed", True),
    ],
)
def test_only_a_start_that_was_cut_off_is_followed_by_another(
    results: ResultSet, outcome: str, refused: bool
) -> None:
    (only,) = results.manifest.ledger
    ledger = (replace(only, outcome=outcome), replace(only, outcome="completed"))
    found = findings(results, "STAT006", manifest=replace(results.manifest, ledger=ledger))
    message = f"start 0 is {outcome!r}, and another start follows it"
    message = f"{message}: the study does not account for both"
    assert [(f.message, f.column) for f in found] == [(message, "ledger[0]")] * refused


def test_a_study_without_a_ledger_accounts_for_nothing(results: ResultSet) -> None:
    (finding,) = findings(results, "STAT006", manifest=replace(results.manifest, ledger=()))
    assert finding.message == "the rule examined nothing, and nothing proves nothing"


# STAT001: how many blocks there are.


@pytest.mark.parametrize(
    ("blocks", "least", "messages"),
    [
        (5, 5, set()),
        (5, 6, {"it was measured in 5 block(s), and 6 are the least"}),
        (4, 4, {"both sides were measured in 4 block(s): a ratio needs 5"}),
        (
            1,
            1,
            {
                "it was measured in 1 block(s), and 2 are the least",
                "both sides were measured in 1 block(s): a ratio needs 5",
            },
        ),
    ],
)
def test_five_blocks_make_a_ratio_and_two_a_cell(
    results: ResultSet, blocks: int, least: int, messages: set[str]
) -> None:
    kept = of_blocks(results, blocks)
    plan = replace(results.plan, blocks=replace(results.plan.blocks, least=least))
    found = findings(results, "STAT001", plan=plan, **kept)
    assert {finding.message for finding in found} == messages
    assert {finding.block for finding in found} <= {None}
