"""What a rule clears, its check has nothing to say of, and the reverse: on damaged studies."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from nanoserve_bench.records import Hold, SystemRun, Totals
from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.soundness.catalogue import PAIR_RULES, RUN_RULES
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rules.run_shape import SERIAL_OVERLAP, SLOTS_EXCEEDED
from nanoserve_bench.soundness.rules.run_stamps import IN_ORDER, PRESENT
from nanoserve_bench.soundness.rules.run_steps import STEP_LOG
from support.rebuild import BASE, engine, replace
from support.sound import study

NUMBERS = ("arrival_ns", "submitted_ns", "first_token_ns", "finished_ns")
COUNTS = ("max_tokens", "discarded_tokens", "cached_tokens")
CLEARING = [rule for rule in RUN_RULES if rule.clear is not None]
CACHES = ("off", "on", "declared:on", "unknown", "", "warm")
DECODINGS = ("greedy;ignore_eos", "greedy;ignore_eos;eos=2", "greedy;eos=2", "greedy")
LEFT_TO_THE_CHECK: dict[str, Callable[[SystemRun], bool]] = {
    "RUN005": lambda run: any(
        len(record.holds or ()) > (record.first_token_ns is not None) for record in run.records
    ),
    "RUN008": lambda run: run.settings.decoding == "greedy;eos=2",
    "RUN010": lambda run: run.totals.unfinished > 0,
}
"""Runs that a rule never clears, sound or not: any other that is sound it does."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return read(study(blocks=2).write(tmp_path_factory.mktemp("sound") / "run"))


def damaged_request(row: Any, rng: random.Random) -> Any:  # noqa: PLR0911 - a way each
    """One thing changed, by a little or by a lot, or taken away."""
    kind = rng.randrange(8)
    if kind == 0:
        name = rng.choice(NUMBERS)
        return replace(row, **{name: getattr(row, name) + rng.choice((-1, 1, 10**6, -(10**12)))})
    if kind == 1:
        name = rng.choice(("first_token_ns", "finished_ns", "token_ns", "holds_ns"))
        return replace(row, **{name: () if name == "holds_ns" and rng.random() < 0.5 else None})
    if kind == 2:
        name = rng.choice(COUNTS)
        return replace(row, **{name: getattr(row, name) + rng.choice((-1, 1))})
    if kind == 3:
        stamps = list(row.token_ns)
        place = rng.randrange(len(stamps))
        stamps[place] += rng.choice((-(10**9), 10**9, 1))
        return replace(row, token_ns=tuple(stamps[: rng.choice((len(stamps), place + 1))]))
    if kind == 4:
        (hold,) = row.holds_ns
        middle = (hold.acquired_ns + hold.released_ns) // 2
        gap = rng.choice((-5, 0, 5, 10**8))
        return replace(
            row,
            holds_ns=(Hold(hold.acquired_ns, middle), Hold(middle + gap, hold.released_ns)),
        )
    if kind == 5:
        return replace(row, finish_reason=rng.choice(("stop", "abort", "length")), error="x")
    if kind == 6:
        return replace(row, cached_tokens=rng.choice((None, row.prompt_tokens)))
    return replace(row, finish_reason="stop")


def damaged_step(row: Any, rng: random.Random) -> Any:
    name = rng.choice(("start_ns", "prefill_rows", "decode_rows", "holders", "waiting"))
    return replace(row, **{name: getattr(row, name) + rng.choice((-1, 1))})


def damaged(results: ResultSet, rng: random.Random) -> Evidence:
    requests, steps = list(results.requests), list(results.steps)
    for rows, damage in ((requests, damaged_request), (steps, damaged_step)):
        for place in rng.sample(range(len(rows)), rng.randrange(1, 6)):
            rows[place] = damage(rows[place], rng)
    systems = tuple(
        replace(row, cache=rng.choice(CACHES), decoding=rng.choice(DECODINGS))
        for row in results.systems
    )
    if rng.random() < 0.3:
        one, other = rng.sample(range(len(requests)), 2)
        prompt = requests[other].prompt_sha256
        requests[one] = replace(requests[one], prompt_sha256=prompt)
    if rng.random() < 0.3:
        rng.shuffle(requests)
    changed = {"systems": systems, "requests": tuple(requests), "steps": tuple(steps)}
    return Evidence.of(replace(results, **changed))


@pytest.mark.parametrize("seed", range(25))
def test_a_rule_clears_what_its_check_accepts_and_nothing_else(
    results: ResultSet, seed: int
) -> None:
    evidence = damaged(results, random.Random(seed))
    cleared = 0
    for rule in CLEARING:
        assert rule.clear is not None
        clear = rule.clear(evidence.profile)
        for trial in evidence.trials:
            if rule.exempt(trial.run) is None:
                sound = list(rule.check(trial.run)) == []
                unsure = LEFT_TO_THE_CHECK.get(rule.code, lambda _: False)(trial.run)
                cleared += int(clear[trial.number])
                assert clear[trial.number] == (sound and not unsure), (rule.code, trial.row)
    assert cleared > 100
    for pair in evidence.pairs:
        for _, below, above in pair.blocks():
            if evidence.same_work(below, above):
                for rule in PAIR_RULES:
                    if rule.about_work:
                        assert list(rule.check(below.run, above.run)) == [], rule.code


def one_request(row: Any, **values: Any) -> Any:
    """A request of which nothing but its arrival, submission and finish is stamped."""
    return replace(row, **{"holds_ns": None, "first_token_ns": None, "token_ns": None, **values})


def holding(*bounds: int) -> Callable[[Any], Any]:
    """A request with holds between these instants, from its submission on, and its finish."""

    def held(row: Any) -> Any:
        start = row.submitted_ns
        edges = [start + bound for bound in bounds] or [start, row.finished_ns]
        holds = tuple(map(Hold, edges[::2], edges[1::2]))
        return one_request(row, holds_ns=holds, finished_ns=edges[-1])

    return held


def beginning(after_ns: int, *bounds: int) -> Callable[[Any], Any]:
    """A request with such holds, and its first token so long after its submission."""
    return lambda row: replace(holding(*bounds)(row), first_token_ns=row.submitted_ns + after_ns)


def giving(*after_ns: int, **values: Any) -> Callable[[Any], Any]:
    """A request without holds that finished after 100 ns, with tokens so long after it came."""

    def given(row: Any) -> Any:
        stamps = tuple(row.submitted_ns + after for after in after_ns)
        ends = {"finished_ns": row.submitted_ns + 100, "token_ns": stamps}
        return one_request(row, **{**ends, **values})

    return given


@pytest.mark.parametrize(
    ("change", "cleared"),
    [
        (lambda row: replace(row, arrival_ns=0), True),
        (lambda row: replace(row, arrival_ns=-1), False),
        (lambda row: replace(row, arrival_ns=row.submitted_ns + 1), False),
        (one_request, True),
        (lambda row: one_request(row, finished_ns=row.submitted_ns + 1), True),
        (lambda row: one_request(row, finished_ns=row.submitted_ns), False),
        (lambda row: one_request(row, finished_ns=None), True),
        (lambda row: one_request(row, first_token_ns=row.submitted_ns + 1), True),
        (lambda row: one_request(row, first_token_ns=row.submitted_ns), False),
        (lambda row: one_request(row, first_token_ns=row.finished_ns), True),
        (lambda row: one_request(row, first_token_ns=row.finished_ns + 1), False),
        (lambda row: one_request(row, first_token_ns=2**62, finished_ns=None), True),
        (holding(), True),
        (holding(-1, 100), False),
        (holding(1, 100), True),
        (holding(0, 0, 0, 100), False),
        (holding(0, 40, 40, 100), True),
        (holding(0, 40, 39, 100), False),
        (lambda row: replace(holding(0, 100)(row), finished_ns=row.submitted_ns + 99), False),
        (lambda row: replace(holding(0, 100)(row), finished_ns=row.submitted_ns + 101), False),
        (lambda row: replace(holding(0, 100)(row), finished_ns=None), True),
        (beginning(10, 9, 100), True),
        (beginning(10, 10, 100), False),
        (beginning(10, 11, 100), False),
        (beginning(10, 0, 10, 20, 100), True),
        (beginning(11, 0, 10, 20, 100), False),
        (giving(1, 50, 100), True),
        (giving(0, 50, 100), False),
        (giving(1, 50, 101), False),
        (giving(1, 50, 101, finished_ns=None), True),
        (giving(1, 1, 1), True),
        (giving(2, 1, 100), False),
        (lambda row: giving(5, 50, first_token_ns=row.submitted_ns + 5)(row), True),
        (lambda row: giving(5, 50, first_token_ns=row.submitted_ns + 6)(row), False),
        (lambda row: giving(5, 50, first_token_ns=row.submitted_ns + 4)(row), False),
    ],
)
def test_the_order_of_stamps_is_cleared_to_the_nanosecond(
    results: ResultSet, change: Callable[[Any], Any], cleared: bool
) -> None:
    number = next(n for n, row in enumerate(results.requests) if row.request == "r4")
    requests = list(results.requests)
    requests[number] = change(requests[number])
    evidence = Evidence.of(replace(results, requests=tuple(requests)))
    (trial,) = (one for one in evidence.trials if _is_of(one, requests[number]))
    assert IN_ORDER.clear is not None
    assert IN_ORDER.clear(evidence.profile)[trial.number] == cleared
    assert (list(IN_ORDER.check(trial.run)) == []) == cleared


def test_a_trial_with_a_request_that_never_held_a_slot_is_not_cleared(results: ResultSet) -> None:
    requests = (replace(results.requests[0], holds_ns=()), *results.requests[1:])
    evidence = Evidence.of(replace(results, requests=requests))
    (trial,) = (one for one in evidence.trials if _is_of(one, requests[0]))
    assert PRESENT.clear is not None
    assert not PRESENT.clear(evidence.profile)[trial.number]


def idle(row: Any, **values: Any) -> Any:
    return replace(row, **{"prefill_rows": 0, "decode_rows": 0, "holders": 0, **values})


def emptied(log: list[Any]) -> list[Any]:
    return [idle(row) for row in log]


@pytest.mark.parametrize(
    ("change", "values", "cleared"),
    [
        (lambda log: log, {}, True),
        (lambda log: [idle(log[0], start_ns=0), *log], {}, True),
        (lambda log: [idle(log[0], start_ns=-1), *log], {}, False),
        (lambda log: [*log[:-1], replace(log[-1], prefill_rows=-1)], {}, False),
        (lambda log: [*log[:-1], replace(log[-1], decode_rows=-1)], {}, False),
        (lambda log: [*log[:-1], replace(log[-1], waiting=-1)], {}, False),
        (lambda log: [*log[:-1], replace(log[-1], decode_rows=1)], {}, False),
        (lambda log: [*log[:2], *log[1:]], {}, False),
        (lambda log: log[:-1], {}, False),
        (lambda log: [*log, idle(log[-1], start_ns=2**62)], {}, True),
        (emptied, {"holds_ns": ()}, True),
        (emptied, {"holds_ns": None}, False),
        (emptied, None, False),
    ],
)
def test_a_step_log_is_cleared_row_by_row(
    results: ResultSet,
    change: Callable[[list[Any]], list[Any]],
    values: dict[str, Any] | None,
    cleared: bool,
) -> None:
    """`values` are those of the requests of the same trial; without any they are gone."""
    place = results.steps[0]

    def own(row: Any) -> bool:
        return (row.block, row.cell, row.warmup) == (place.block, place.cell, place.warmup)

    steps = (*change([*filter(own, results.steps)]), *(r for r in results.steps if not own(r)))
    requests = [
        replace(row, **(values or {})) if own(row) else row
        for row in results.requests
        if values is not None or not own(row)
    ]
    for first in (True, False):
        trials = tuple(sorted(results.trials, key=lambda trial: own(trial) != first))
        changed = {"trials": trials, "steps": steps, "requests": tuple(requests)}
        evidence = Evidence.of(replace(results, **changed))
        trial = evidence.trials[0 if first else -1]
        assert STEP_LOG.clear is not None
        assert STEP_LOG.clear(evidence.profile)[trial.number] == cleared
        assert (list(STEP_LOG.check(trial.run)) == []) == cleared


def test_a_log_of_more_holders_than_slots_is_not_cleared(results: ResultSet) -> None:
    cells = tuple(replace(cell, slots=1) for cell in results.plan.cells)
    plan = replace(results.plan, cells=cells)
    evidence = Evidence.of(replace(results, plan=plan))
    for rule in (STEP_LOG, SLOTS_EXCEEDED):
        assert rule.clear is not None
        clear = rule.clear(evidence.profile)
        logged = [trial for trial in evidence.trials if trial.run.steps is not None]
        assert {trial.cell.id for trial in logged if clear[trial.number]} == {engine(1)}


@pytest.mark.parametrize(("early_ns", "cleared"), [(0, True), (1, False)])
def test_a_serial_request_may_arrive_the_instant_the_last_one_finished(
    results: ResultSet, early_ns: int, cleared: bool
) -> None:
    (_, before), (number, row) = (
        (n, r)
        for n, r in enumerate(results.requests)
        if (r.block, r.cell, r.warmup) == (0, BASE, False) and r.request in {"r3", "r4"}
    )
    requests = list(results.requests)
    requests[number] = replace(row, arrival_ns=before.finished_ns - early_ns)
    evidence = Evidence.of(replace(results, requests=tuple(requests)))
    (trial,) = (one for one in evidence.trials if _is_of(one, row))
    assert SERIAL_OVERLAP.clear is not None
    assert SERIAL_OVERLAP.clear(evidence.profile)[trial.number] == cleared
    assert (list(SERIAL_OVERLAP.check(trial.run)) == []) == cleared


def _is_of(trial: Trial, row: Any) -> bool:
    return (trial.block, trial.cell.id, trial.row.warmup) == (row.block, row.cell, row.warmup)


def test_a_sound_study_is_cleared_whole(results: ResultSet) -> None:
    evidence = Evidence.of(results)
    for rule in CLEARING:
        assert rule.clear is not None
        clear = rule.clear(evidence.profile)
        for trial in evidence.trials:
            assert clear[trial.number] or rule.exempt(trial.run) is not None, rule.code


@pytest.mark.parametrize("seed", range(10))
def test_sums_over_columns_are_those_over_records(results: ResultSet, seed: int) -> None:
    evidence = damaged(results, random.Random(seed))
    for trial in evidence.trials:
        assert trial.run.totals == Totals.of(list(trial.run.records))


def test_stamps_near_the_end_of_64_bits_are_summed_up_exactly(results: ResultSet) -> None:
    rows = [
        replace(row, arrival_ns=-(2**63) + 1, finished_ns=2**63 - 1) for row in results.requests
    ]
    evidence = Evidence.of(replace(results, requests=tuple(rows)))
    run = evidence.trials[0].run
    assert run.totals.resident_ns == len(run.records) * (2**64 - 2)
