"""Rules about one run, on stamps placed by hand: the last accepted and the first refused value."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pytest

from nanoserve_bench.records import Hold, Shape, StepRecord, SystemRun
from nanoserve_bench.soundness.rule import RunRule
from nanoserve_bench.soundness.rules import (
    pair_work,
    run_cache,
    run_prompts,
    run_requests,
    run_shape,
    run_stamps,
    run_steps,
)
from nanoserve_bench.soundness.rules.run_requests import declared_eos
from nanoserve_bench.soundness.rules.stat_settled import first_block_tail, first_request_logs
from nanoserve_bench.statistics import t_upper_tail
from support.rebuild import replace
from support.ruler import concurrent, edited, ns, record, serial


def messages(rule: RunRule, run: SystemRun) -> list[str]:
    assert rule.exempt(run) is None
    return [flaw.message for flaw in rule.check(run)]


def with_steps(*rows: tuple[int, int, int, int, int], run: SystemRun | None = None) -> SystemRun:
    steps = tuple(StepRecord(ns(row[0]), *row[1:]) for row in rows)
    return replace(run or concurrent(4, slots=2), steps=steps)


# The step log: two pairs of requests hold two slots from 0 to 100 and from 100 to 200 ms.


@pytest.mark.parametrize(
    "rows",
    [
        ((0, 2, 0, 2, 2), (100, 2, 0, 2, 0), (200, 0, 0, 0, 0)),
        ((0, 2, 0, 2, 2), (50, 0, 2, 2, 2), (100, 2, 0, 2, 0), (200, 0, 0, 0, 0)),
        ((0, 0, 0, 2, 2), (100, 0, 1, 2, 0), (200, 0, 0, 0, 0)),
    ],
)
def test_a_log_that_tells_the_same_story_is_accepted(rows: Sequence[Any]) -> None:
    assert messages(run_steps.STEP_LOG, with_steps(*rows)) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ((0, 2, 0, 2, 2), (100, 2, 0, 2, 0), (150, 1, 0, 1, 0)),
            "the log ends while 1 slots are held: the last row must have none",
        ),
        (
            ((0, 2, 0, 2, 2), (100, 1, 0, 1, 0), (100, 0, 2, 2, 0), (200, 0, 0, 0, 0)),
            f"step 2 starts at {ns(100)} ns, not after step 1",
        ),
        (
            ((0, 2, 0, 3, 2), (100, 2, 0, 2, 0), (200, 0, 0, 0, 0)),
            "step 0 counts 3 holders for 2 slots",
        ),
        (
            ((0, 2, 1, 2, 2), (100, 2, 0, 2, 0), (200, 0, 0, 0, 0)),
            "step 0 ran 3 rows for 2 holders of a slot",
        ),
        *(
            (((0, 2, 0, 2, 2), row, (200, 0, 0, 0, 0)), "step 1 has a negative entry")
            for row in (
                (100, -1, 0, 2, 0),
                (100, 0, -1, 2, 0),
                (100, 0, 0, -1, 0),
                (100, 0, 0, 2, -1),
            )
        ),
        (((-1001, 0, 0, 0, 0), (0, 2, 0, 2, 2), (200, 0, 0, 0, 0)), "step 0 has a negative entry"),
    ],
)
def test_a_log_that_cannot_be_one_is_refused(rows: Sequence[Any], message: str) -> None:
    run = with_steps(*rows)
    first = next(iter(run_steps.STEP_LOG.check(run)))
    assert first.message == message
    of_a_row = re.match("step ([01]) [^s]", message)
    assert first.evidence == (str((run.steps or ())[int(of_a_row[1])]) if of_a_row else "")


def test_rows_of_one_instant_are_wrong_for_that_alone() -> None:
    run = with_steps((0, 2, 0, 2, 2), (100, 1, 0, 1, 0), (100, 0, 2, 2, 0), (200, 0, 0, 0, 0))
    assert messages(run_steps.STEP_LOG, run) == [f"step 2 starts at {ns(100)} ns, not after step 1"]


def test_a_log_that_disagrees_says_from_when_on_and_by_how_much() -> None:
    run = with_steps((0, 2, 0, 2, 2), (100, 1, 0, 1, 0), (200, 0, 0, 0, 0))
    (flaw,) = list(run_steps.STEP_LOG.check(run))
    assert f"disagree from {ns(100)} ns on" in flaw.message
    assert "the log adds up to 300000000 slot-ns, the holds to 400000000" in flaw.message
    assert flaw.evidence == f"instants at which they differ: {ns(100)} {ns(200)}"


def test_of_the_instants_that_disagree_five_are_shown() -> None:
    changes = ((0, 2), (10, 1), (20, 2), (30, 1), (40, 2), (50, 1), (60, 2), (200, 0))
    run = with_steps(*((start, 0, 0, holders, 0) for start, holders in changes))
    (flaw,) = run_steps.STEP_LOG.check(run)
    shown = " ".join(str(ns(start)) for start in (10, 20, 30, 40, 50))
    assert flaw.evidence == f"instants at which they differ: {shown}"


def test_equal_sums_are_not_enough() -> None:
    run = with_steps((0, 1, 0, 1, 2), (50, 2, 0, 2, 0), (150, 1, 0, 1, 0), (250, 0, 0, 0, 0))
    assert run.served_ns == 400_000_000
    assert any("disagree" in text for text in messages(run_steps.STEP_LOG, run))


def test_an_empty_log_is_refused() -> None:
    assert messages(run_steps.STEP_LOG, with_steps()) == ["the step log has no rows"]


def test_a_log_without_holds_proves_nothing() -> None:
    run = concurrent()
    for number in range(4):
        run = edited(run, number, holds=None)
    assert messages(run_steps.STEP_LOG, run) == [
        "there is a step log, and the requests tell no holds to hold it against"
    ]


def test_a_run_without_a_log_is_exempt() -> None:
    assert run_steps.STEP_LOG.exempt(serial()) == "no system of the study keeps a step log"


# Stamps in order: one request, 0 to 100 ms, tokens at 25, 50, 75 and 100 ms.


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, None),
        ({"arrival_ns": 0}, None),
        ({"arrival_ns": -1}, "the arrival is negative (-1)"),
        ({"submitted_ns": ns(0) - 1}, "before it arrived"),
        ({"submitted_ns": ns(100)}, "not after it was submitted"),
        ({"submitted_ns": ns(0) + 1}, "it held a slot at"),
        ({"holds": (Hold(ns(0), ns(0)), Hold(ns(0), ns(100)))}, "not after it began"),
        ({"holds": (Hold(ns(0), ns(60)), Hold(ns(50), ns(100)))}, "before the last one ended"),
        ({"holds": (Hold(ns(0), ns(50)), Hold(ns(50), ns(100)))}, None),
        ({"holds": (Hold(ns(0), ns(99)),)}, "and left its slot at"),
        ({"finished_ns": ns(101)}, "and left its slot at"),
        ({"first_token_ns": ns(0)}, "lies outside of"),
        ({"first_token_ns": ns(101)}, "lies outside of"),
        ({"first_token_ns": ns(26)}, "token 0 is stamped"),
        ({"holds": (Hold(ns(25), ns(100)),)}, "came while it held no slot"),
        (
            {"holds": (Hold(ns(25), ns(100)),), "first_token_ns": None},
            f"token 0 is stamped {ns(25)}, while it held no slot",
        ),
        ({"holds": (Hold(ns(0), ns(20)), Hold(ns(30), ns(100)))}, "came while it held no slot"),
        ({"holds": (Hold(ns(0), ns(40)), Hold(ns(60), ns(100)))}, "token 1 is stamped"),
        ({"holds": (Hold(ns(0), ns(50)), Hold(ns(60), ns(100)))}, None),
        ({"token_ns": (ns(25), ns(25), ns(75), ns(100))}, None),
        ({"token_ns": (ns(25), ns(75), ns(74), ns(100))}, "run backwards"),
        (
            {"token_ns": (ns(25), ns(50), ns(75), ns(100) + 1)},
            f"stamped {ns(100) + 1}, after the finish at",
        ),
        (
            {"first_token_ns": None, "token_ns": (ns(0), ns(1), ns(2), ns(3))},
            f"stamped {ns(0)}, not after",
        ),
        ({"holds": None, "finished_ns": None}, None),
        ({"holds": None, "token_ns": None, "first_token_ns": None}, None),
        ({"token_ns": ()}, None),
    ],
)
def test_the_order_of_the_stamps(values: dict[str, Any], message: str | None) -> None:
    run = edited(serial(1), 0, **values)
    found = messages(run_stamps.IN_ORDER, run)
    assert (found == []) == (message is None)
    if message is not None:
        assert message in found[0]
        assert found[0].startswith("request r0: ")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"finished_ns": None}, "request r1 has no finish stamp"),
        ({"holds": ()}, "request r1 never held a slot"),
        ({"holds": None}, "request r1 has no holds, and {others}"),
        ({"first_token_ns": None}, "request r1 has no first-token stamp, and {others}"),
        ({"token_ns": None}, "request r1 has no token stamps, and {others}"),
    ],
)
def test_what_one_request_stamps_all_of_them_do(values: dict[str, Any], message: str) -> None:
    (flaw,) = run_stamps.PRESENT.check(edited(serial(), 1, **values))
    others = "others of the run have (1 of 4 lack it)"
    assert (flaw.message, flaw.request) == (message.format(others=others), "r1")


def test_what_no_request_stamps_is_a_property_of_the_system() -> None:
    run = serial()
    for number in range(4):
        run = edited(run, number, holds=None, first_token_ns=None, token_ns=None)
    assert messages(run_stamps.PRESENT, run) == []


# Requests.


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, None),
        ({"finish_reason": "stop"}, None),
        ({"finish_reason": "abort"}, "request r1 failed: abort"),
        ({"finish_reason": ""}, "request r1 failed"),
        ({"error": "boom"}, "request r1 failed: length"),
        ({"output_ids": ()}, "says length and has no output token"),
    ],
)
def test_a_request_that_failed_is_named(values: dict[str, Any], message: str | None) -> None:
    found = messages(run_requests.FAILED, edited(serial(), 1, **values))
    assert len(found) == (message is not None)
    assert message is None or message in found[0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_tokens": 5}, None),
        ({"max_tokens": 3}, "has 4 output tokens, 3 were asked for"),
        ({"token_ns": (1, 2, 3)}, "has 3 token stamps for 4 output tokens"),
        ({"token_ns": None}, None),
        ({"discarded_tokens": 7}, None),
        ({"discarded_tokens": -1}, "discarded -1 tokens"),
    ],
)
def test_output_is_what_was_asked_for(values: dict[str, Any], message: str | None) -> None:
    found = messages(run_requests.OUTPUT_AS_ASKED, edited(serial(), 1, **values))
    assert len(found) == (message is not None)
    assert message is None or message in found[0]


@pytest.mark.parametrize(
    ("decoding", "values", "message"),
    [
        ("greedy;ignore_eos", {}, None),
        ("greedy;ignore_eos", {"max_tokens": 5}, "ended by length at 4 tokens, and 5"),
        (
            "greedy;ignore_eos",
            {"max_tokens": 5, "finish_reason": "stop"},
            "stopped at 4 tokens of 5, and the decoding ignores EOS",
        ),
        ("greedy;ignore_eos;eos=11", {}, None),
        ("greedy;eos=13", {}, None),
        ("greedy;eos=10", {}, "goes on behind the EOS id 10"),
        ("greedy;eos=3,11", {}, "goes on behind the EOS id 11"),
        ("greedy;eos=13", {"max_tokens": 9, "finish_reason": "stop"}, None),
        ("greedy;eos=13", {"output_ids": (10, 11, 13, 13)}, "goes on behind the EOS id 13"),
        (None, {}, None),
    ],
)
def test_outputs_end_where_the_decoding_says(
    decoding: str | None, values: dict[str, Any], message: str | None
) -> None:
    run = edited(serial(2, decoding=decoding), 1, **values)
    found = messages(run_requests.EOS, run)
    assert len(found) == (message is not None)
    assert message is None or message in found[0]


# Slots.

NS = 1e-6
"""A nanosecond in milliseconds."""


def held(*holds: tuple[float, float], arrivals: Sequence[float] = ()) -> SystemRun:
    """Requests that hold slots for so long, handed over at once if nothing else is said."""
    arrivals = arrivals or (0,) * len(holds)
    records = tuple(
        record(number, arrival=arrival, holds=(hold,))
        for number, (arrival, hold) in enumerate(zip(arrivals, holds, strict=True))
    )
    return replace(concurrent(2), slots=len(holds), records=records, steps=None)


def without_holds(run: SystemRun) -> SystemRun:
    return replace(run, records=tuple(replace(one, holds=None) for one in run.records))


def test_a_slot_passes_from_one_request_to_the_next_in_an_instant() -> None:
    assert messages(run_shape.SLOTS_EXCEEDED, concurrent(8, slots=2)) == []


def test_one_nanosecond_of_a_third_holder_is_refused() -> None:
    run = edited(concurrent(4, slots=2), 2, holds=(Hold(ns(100) - 1, ns(200)),))
    (found,) = messages(run_shape.SLOTS_EXCEEDED, run)
    assert found == f"at {ns(100) - 1} ns 3 requests hold a slot, and there are 2"


def test_without_holds_nothing_is_said_about_slots() -> None:
    run = edited(concurrent(), 0, holds=None)
    assert run_shape.SLOTS_EXCEEDED.exempt(run) == "the systems tell no holds"
    assert run_shape.CONCURRENT_BATCHES.exempt(run) is not None
    assert run_shape.peak(concurrent(6, slots=3)) == 3
    assert run_shape.peak(without_holds(concurrent())) == 0


def test_a_run_without_a_wall_is_left_to_the_rules_about_its_stamps() -> None:
    broken = edited(serial(), 0, finished_ns=None)
    assert run_shape.SERIAL_IDLE.exempt(broken) == "no serial run has a wall"
    batch = edited(concurrent(), 0, finished_ns=None)
    assert run_shape.CONCURRENT_BATCHES.exempt(batch) == "no concurrent run has a wall"
    flat = replace(concurrent(), records=(record(0, holds=((0, 0),)), record(1, holds=((0, 0),))))
    assert run_shape.CONCURRENT_BATCHES.exempt(flat) == "no concurrent run has a wall"


@pytest.mark.parametrize(
    ("rule", "run", "reason"),
    [
        (
            run_shape.CONCURRENT_BATCHES,
            edited(concurrent(), 0, holds=None),
            "the systems tell no holds, so nothing is said about their slots",
        ),
        (
            run_shape.CONCURRENT_BATCHES,
            replace(concurrent(), slot="connection"),
            "the systems' slots are no rows, so nothing is said about their batch",
        ),
        (run_shape.SERIAL_OVERLAP, concurrent(), "no run is serial"),
        (run_shape.SERIAL_IDLE, concurrent(), "no run is serial"),
        (run_shape.CONCURRENT_BATCHES, serial(), "no run is concurrent"),
        (
            run_shape.CONCURRENT_BATCHES,
            concurrent(4, slots=1),
            "no run has slots and requests for two rows",
        ),
        (
            run_shape.CONCURRENT_BATCHES,
            concurrent(1, slots=4),
            "no run has slots and requests for two rows",
        ),
    ],
)
def test_a_rule_that_does_not_apply_says_why(rule: RunRule, run: SystemRun, reason: str) -> None:
    assert rule.exempt(run) == reason


IDLED = (
    "the only slot was held for 0.9800 of the wall, below 0.98: the run idled between its requests"
)


@pytest.mark.parametrize(
    ("run", "evidence"),
    [
        (held((2, 100)), None),
        (held((2 + NS, 100)), "served 97999999 ns of 100000000 ns"),
        (held((0, 49), (51, 100)), None),
        (held((0, 49), (51 + NS, 100)), "served 97999999 ns of 100000000 ns"),
        (without_holds(held((0, 49), (51, 100), arrivals=(0, 51))), None),
        (
            without_holds(held((0, 49), (51, 100), arrivals=(0, 51 + NS))),
            "served 97999999 ns of 100000000 ns",
        ),
    ],
)
def test_a_serial_run_holds_its_slot_for_98_percent(run: SystemRun, evidence: str | None) -> None:
    """Where nothing tells of holds, a request is served while it is in the system."""
    run = replace(run, shape=Shape.SERIAL, slots=1)
    flaws = list(run_shape.SERIAL_IDLE.check(run))
    assert [(flaw.message, flaw.evidence) for flaw in flaws] == (
        [] if evidence is None else [(IDLED, evidence)]
    )


@pytest.mark.parametrize(
    ("run", "refused"),
    [
        (held((0, 10), (0, 10), (20, 40)), True),
        (held((0, 10), (0, 10), (20 - NS, 40)), False),
        (held((0, 10), (0, 10), (20, 40), arrivals=(0, 0, 20)), False),
        (held((0, 100), (100, 200)), True),
        (held((0, 80), *[(0, 2)] * 20, (80, 80), arrivals=(*[0] * 22,)), False),
    ],
)
def test_what_is_no_batch(run: SystemRun, refused: bool) -> None:
    assert bool(messages(run_shape.CONCURRENT_BATCHES, run)) == refused


def test_a_batch_without_holds_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match=r"^the run tells no holds$"):
        list(run_shape.CONCURRENT_BATCHES.check(edited(concurrent(), 0, holds=None)))


def overlapping(ms: float) -> SystemRun:
    """Two requests handed over at once, of which the second takes its slot `ms` early."""
    records = (record(0, holds=((0, 100),)), record(1, holds=((100 - ms, 200),)))
    return replace(concurrent(2, slots=2), records=records, steps=None)


@pytest.mark.parametrize(("ms", "flaws"), [(0, 1), (1, 1), (4.99, 1), (5, 0), (60, 0)])
def test_an_overlap_of_a_moment_is_no_batch(ms: float, flaws: int) -> None:
    found = messages(run_shape.CONCURRENT_BATCHES, overlapping(ms))
    assert len(found) == flaws
    assert all("the run never batched" in text for text in found)


def test_a_short_request_beside_a_long_one_is_a_batch() -> None:
    records = (record(0, holds=((0, 1000),)), record(1, holds=((0, 10),)))
    run = replace(concurrent(2, slots=2), records=records, steps=None)
    assert run.batch_occupancy is not None
    assert 1 < run.batch_occupancy < 1.02
    assert messages(run_shape.CONCURRENT_BATCHES, run) == []


def honouring(*ids: int, reason: str = "stop") -> SystemRun:
    """A request of 4 tokens whose decoding declares 7 as EOS."""
    run = serial(1, decoding="greedy;eos=7,8")
    stamps = (run.records[0].token_ns or ())[: len(ids)]
    return edited(run, 0, output_ids=ids, token_ns=stamps, finish_reason=reason)


@pytest.mark.parametrize(
    ("ids", "reason", "message"),
    [
        ((1, 2, 7), "stop", None),
        ((8,), "stop", None),
        ((1, 2, 3, 4), "length", None),
        ((1, 2, 3, 4), "stop", None),
        ((1, 2, 3), "stop", "stopped at 3 tokens of 4 with 3"),
        ((1, 7, 3, 4), "length", "goes on behind the EOS id 7"),
        ((1, 2, 7), "length", "ended by length at 3 tokens"),
        ((), "stop", None),
    ],
)
def test_an_output_ends_where_the_decoding_says(
    ids: tuple[int, ...], reason: str, message: str | None
) -> None:
    found = messages(run_requests.EOS, honouring(*ids, reason=reason))
    assert len(found) == (message is not None)
    assert message is None or message in found[0]


@pytest.mark.parametrize("state", [None, "", "unknown", "off", "on"])
def test_a_cache_state_is_known_or_said_to_be_unknown(state: str | None) -> None:
    assert messages(run_cache.CACHE, serial(cache=state)) == []
    (found,) = messages(run_cache.CACHE, serial(cache=f"{state} perhaps"))
    assert "neither off nor on" in found


@pytest.mark.parametrize(
    ("state", "cached", "message"),
    [
        ("off", 0, None),
        ("off", None, None),
        (None, None, None),
        ("on", 0, None),
        ("on", 3, None),
        ("on", None, "request r1 does not say how much of its prompt was cached"),
        ("on", 4, "request r1 has 4 cached tokens in a prompt of 3"),
        ("on", -1, "request r1 has -1 cached tokens in a prompt of 3"),
        ("off", 4, "request r1 has 4 cached tokens in a prompt of 3"),
        ("off", 1, "request r1 took 1 tokens from a prefix cache that is declared off"),
        ("declared:off", 1, "request r1 took 1 tokens from a prefix cache that is declared off"),
        ("", 1, "request r1 took 1 tokens from a prefix cache that is declared unknown"),
        (None, 1, "request r1 took 1 tokens from a prefix cache that is declared unknown"),
    ],
)
def test_what_a_request_may_have_from_the_cache(
    state: str | None, cached: int | None, message: str | None
) -> None:
    run = edited(serial(cache=state), 1, cached_tokens=cached)
    found = [(flaw.message, flaw.request, flaw.file) for flaw in run_cache.CACHE.check(run)]
    assert found == ([] if message is None else [(message, "r1", None)])


def test_a_state_of_the_cache_that_is_none_is_shown_with_its_file() -> None:
    (flaw,) = run_cache.CACHE.check(serial(cache="warm"))
    assert flaw.message == "the prefix cache is declared 'warm', which is neither off nor on"
    assert flaw.file == "systems.csv"


def test_of_a_long_prompt_the_beginning_is_shown() -> None:
    long = tuple(range(40))
    beginning = " ".join(map(str, range(16)))
    twice = edited(edited(serial(), 1, prompt_ids=long), 3, prompt_ids=long)
    (flaw,) = run_prompts.DISTINCT.check(twice)
    assert flaw.message == "request r3 has the prompt of request r1"
    assert (flaw.request, flaw.evidence) == ("r3", beginning)
    other = edited(serial(), 1, prompt_ids=long)
    ours, gone = pair_work.PROMPTS.check(serial(), other)
    assert ours.message == "the baseline never ran the prompt of request r1"
    assert (ours.request, ours.evidence) == ("r1", beginning)
    assert gone.message == "1 prompt(s) of the baseline are not among the candidate's"
    assert (gone.request, gone.evidence) == (None, "1 1 2")
    _, theirs = pair_work.PROMPTS.check(other, serial())
    assert theirs.evidence == beginning


def test_the_first_block_is_held_against_the_prediction_interval_of_the_others() -> None:
    distance, tail = first_block_tail([-1.0, 0.0, 0.1, -0.1, 0.0])
    assert distance == pytest.approx(1.0)
    spread = math.sqrt((0.01 + 0.01) / 3) * math.sqrt(1 + 1 / 4)
    assert tail == pytest.approx(t_upper_tail(1.0 / spread, 3))
    assert first_block_tail([0.0, 1.0, 1.0]) == (1.0, 0.0)
    assert first_block_tail([1.0, 1.0, 1.0]) == (0.0, 1.0)


def test_the_first_request_is_the_one_that_came_first() -> None:
    run = edited(serial(4), 0, arrival_ns=ns(-100))  # 200 ms, and the others 100
    assert first_request_logs(run) == pytest.approx(math.log(2))
    turned = replace(run, records=tuple(reversed(run.records)))
    assert first_request_logs(turned) == pytest.approx(math.log(2))
    assert first_request_logs(serial(1)) is None
    assert first_request_logs(edited(serial(), 1, output_ids=())) is None
    of_one_token = edited(serial(2), 1, output_ids=(1,))
    assert first_request_logs(of_one_token) == pytest.approx(math.log(1 / 4))
    assert first_request_logs(edited(serial(2), 0, finished_ns=ns(0))) is None
    assert first_request_logs(edited(serial(2), 0, finished_ns=ns(0) + 1)) is not None


@pytest.mark.parametrize(
    ("decoding", "expected"),
    [
        ("greedy;ignore_eos", (True, frozenset())),
        ("greedy;eos=0,2", (False, frozenset({0, 2}))),
        ("greedy;eos=0, 2", (False, frozenset({0, 2}))),
        ("greedy", (False, frozenset())),
        (None, (False, frozenset())),
        ("greedy;eos=", (False, frozenset())),
    ],
)
def test_what_a_decoding_declares(
    decoding: str | None, expected: tuple[bool, frozenset[int]]
) -> None:
    assert declared_eos(decoding) == expected
