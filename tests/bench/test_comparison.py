"""Comparing two runs: what is refused, by name, and the exact factors of what is not."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nanoserve_bench
from nanoserve_bench import (
    Comparison,
    RunUnsound,
    SystemRun,
    UnfairComparison,
    check_concurrent,
    check_serial,
    compare,
    first_divergence,
)
from nanoserve_bench.comparison import arrival_pattern
from nanoserve_bench.records import Hold
from nanoserve_bench.soundness.rule import PairRule
from nanoserve_bench.soundness.rules import pair_settings
from support.ruler import concurrent, edited, ns, serial

ids = st.lists(st.integers(0, 3), max_size=6).map(tuple)


def baseline() -> SystemRun:
    return serial(4, ms=100)


def candidate(**values: Any) -> SystemRun:
    return dataclasses.replace(concurrent(4, slots=2, ms=120), **values)


def test_the_factors_are_exact_and_multiply_to_the_speedup() -> None:
    found = compare(baseline(), candidate())
    assert found.speedup == Fraction(400, 240)
    assert found.batch_factor == 2
    assert found.slot_factor == Fraction(100, 120)
    assert found.batch_factor * found.slot_factor == found.speedup


def test_where_arrivals_differ_the_ratios_of_offered_load_are_holes() -> None:
    found = compare(baseline(), candidate())
    assert found.system_factor is None
    assert found.request_factor is None
    assert found.ttft_ratio is None
    assert found.e2el_ratio is None


def test_where_arrivals_are_alike_the_second_factorisation_is_exact_too() -> None:
    found = compare(concurrent(4, slots=1, ms=100), concurrent(4, slots=2, ms=120))
    assert found.system_factor is not None
    assert found.request_factor is not None
    assert found.system_factor * found.request_factor == found.speedup
    assert found.ttft_ratio is not None
    assert found.e2el_ratio == Fraction(100 + 200 + 300 + 400, 120 + 120 + 240 + 240)


def test_the_baselines_ttft_is_set_against_the_candidates_prefill() -> None:
    found = compare(baseline(), candidate())
    assert found.prefill_ratio == Fraction(25, 30)  # not the loaded TTFT, which is 30 and 150
    assert found.tpot_ratio == Fraction(75, 90)


def test_at_one_slot_the_factors_and_the_prefill_ratio_are_the_speedup() -> None:
    found = compare(baseline(), concurrent(4, slots=1, ms=100))
    assert found.speedup == found.batch_factor == found.slot_factor == found.prefill_ratio == 1


def test_a_system_without_holds_has_a_speedup_and_no_slot_factors() -> None:
    records = tuple(dataclasses.replace(r, holds=None) for r in candidate().records)
    found = compare(baseline(), candidate(records=records, steps=None))
    assert found.speedup == Fraction(400, 240)
    assert (found.batch_factor, found.slot_factor, found.prefill_ratio) == (None, None, None)


def test_rows_are_matched_by_prompt_and_not_by_place() -> None:
    turned = candidate(records=tuple(reversed(candidate().records)))
    assert compare(baseline(), turned).speedup == Fraction(400, 240)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"weights": "sha256:" + "b" * 64}, "PAIR006"),
        ({"weights": None}, "PAIR006"),
        ({"weights": "smollm2"}, "PAIR006"),
        ({"weights": "declared:"}, "PAIR006"),
        ({"dtype": "bfloat16"}, "PAIR007"),
        ({"dtype": None}, "PAIR007"),
        ({"matmul_precision": "tf32"}, "PAIR007"),
        ({"matmul_precision": None}, "PAIR007"),
        ({"threads": 1}, "PAIR008"),
        ({"threads": None}, "PAIR008"),
        ({"decoding": "greedy"}, "PAIR009"),
        ({"decoding": None}, "PAIR009"),
        ({"cache": "on"}, "PAIR010"),
        ({"cache": None}, "PAIR010"),
        ({"cache": ""}, "PAIR010"),
        ({"cache": "unknown"}, "PAIR010"),
        ({"machine": "m2"}, "PAIR011"),
        ({"machine": None}, "PAIR011"),
        ({"device": "cuda:0"}, "PAIR011"),
        ({"tokenizer": "sha256:" + "c" * 64}, "PAIR012"),
        ({"tokenizer": None}, "PAIR012"),
    ],
)
@pytest.mark.parametrize("side", ["candidate", "baseline"])
def test_settings_that_differ_or_are_unknown_are_unfair(
    changed: dict[str, Any], rule: str, side: str
) -> None:
    one, other = baseline(), candidate()
    if side == "candidate":
        other = candidate(settings=dataclasses.replace(other.settings, **changed))
    else:
        one = dataclasses.replace(one, settings=dataclasses.replace(one.settings, **changed))
    with pytest.raises(UnfairComparison) as caught:
        compare(one, other)
    lines = str(caught.value).splitlines()
    assert {line.split()[0] for line in lines} == {rule}
    assert len(lines) == 1


@pytest.mark.parametrize("field", ["weights", "threads", "machine", "cache", "tokenizer"])
def test_what_is_unknown_on_both_sides_is_refused_and_not_equal(field: str) -> None:
    one = serial(**{field: None})
    other = concurrent(**{field: None})
    with pytest.raises(UnfairComparison, match="baseline and candidate is unknown"):
        compare(one, other)


def test_a_declared_conversion_of_a_rival_is_accepted_and_said_to_be_unproven() -> None:
    found = compare(serial(), concurrent(weights="declared:F32 GGUF"))
    assert found.speedup == 2
    assert not found.weights_proven
    assert compare(serial(), concurrent()).weights_proven


@pytest.mark.parametrize("name", ["smollm2", "sha256:", "declared:", "sha1:abc"])
def test_weights_named_alike_on_both_sides_by_neither_form_are_unfair(name: str) -> None:
    with pytest.raises(UnfairComparison, match="neither a digest nor a declaration"):
        compare(serial(weights=name), concurrent(weights=name))


def test_what_a_declaration_says_may_hold_colons() -> None:
    assert compare(serial(), concurrent(weights="declared:gguf:F32")).speedup == 2


@pytest.mark.parametrize(
    ("rule", "name", "value", "message", "evidence"),
    [
        (
            pair_settings.PRECISION,
            "matmul_precision",
            "tf32",
            "the matmul precision differs: tf32 in the candidate, ieee in the baseline",
            "baseline ieee, candidate tf32",
        ),
        *(
            (
                pair_settings.CACHE,
                "cache",
                unknown,
                "the cache of the candidate is unknown, and what is unknown cannot be verified",
                "baseline off, candidate None",
            )
            for unknown in ("", "unknown", None)
        ),
        (
            pair_settings.WEIGHTS,
            "weights",
            None,
            "the weights of the candidate is unknown, and what is unknown cannot be verified",
            f"baseline {serial().settings.weights}, candidate None",
        ),
        (
            pair_settings.WEIGHTS,
            "weights",
            "smollm2",
            "the weights are named by neither a digest nor a declaration",
            f"baseline {serial().settings.weights}, candidate smollm2",
        ),
    ],
)
def test_a_difference_is_said_with_both_values(
    rule: PairRule, name: str, value: str | None, message: str, evidence: str
) -> None:
    (flaw,) = rule.check(serial(), concurrent(**{name: value}))
    assert (flaw.message, flaw.evidence) == (message, evidence)


def test_slot_factors_are_holes_where_a_slot_means_something_else() -> None:
    connections = dataclasses.replace(candidate(), slot="connection")
    found = compare(baseline(), connections)
    assert found.speedup == Fraction(400, 240)
    assert not found.slots_alike
    assert (found.batch_factor, found.slot_factor, found.prefill_ratio) == (None, None, None)
    among_themselves = compare(
        dataclasses.replace(concurrent(4, slots=1), slot="connection"), connections
    )
    assert among_themselves.slots_alike
    assert among_themselves.batch_factor == 2


def test_one_system_has_no_excuse_for_declared_weights() -> None:
    one = dataclasses.replace(serial(), system="same")
    other = dataclasses.replace(concurrent(weights="declared:F32 GGUF"), system="same")
    with pytest.raises(UnfairComparison, match="PAIR006"):
        compare(one, other)


def test_different_request_counts_are_unfair() -> None:
    with pytest.raises(UnfairComparison, match=r"PAIR001 .*3 requests, the baseline 4"):
        compare(baseline(), serial(3))


def test_different_prompts_are_unfair() -> None:
    with pytest.raises(UnfairComparison, match="PAIR002"):
        compare(baseline(), edited(candidate(), 1, prompt_ids=(9, 9, 9)))


def test_different_prompt_lengths_are_unfair() -> None:
    with pytest.raises(UnfairComparison, match=r"PAIR003 .*11 tokens .* 12"):
        compare(baseline(), edited(candidate(), 1, prompt_ids=(9, 9)))


def test_different_output_lengths_are_unfair() -> None:
    one = candidate().records[1]
    short = edited(
        candidate(), 1, output_ids=one.output_ids[:3], token_ns=(one.token_ns or ())[:3],
        max_tokens=3,
    )  # fmt: skip
    with pytest.raises(UnfairComparison, match=r"PAIR004 .*r1 has 3 output tokens"):
        compare(baseline(), short)


def test_different_lengths_asked_for_are_unfair() -> None:
    honoured = "greedy;eos=77"
    more = edited(
        concurrent(4, slots=2, ms=120, decoding=honoured), 1, max_tokens=9, finish_reason="stop",
        output_ids=(10, 11, 12, 77),
    )  # fmt: skip
    ended = edited(serial(4, ms=100, decoding=honoured), 1, output_ids=(10, 11, 12, 77))
    with pytest.raises(UnfairComparison, match=r"PAIR004 .*asked for 9 tokens, the baseline for 4"):
        compare(ended, more)


@pytest.mark.parametrize("position", [0, 2, 3])
def test_a_different_token_is_unfair_and_its_position_is_named(position: int) -> None:
    output = list(candidate().records[2].output_ids)
    output[position] = 999
    with pytest.raises(UnfairComparison) as caught:
        compare(baseline(), edited(candidate(), 2, output_ids=tuple(output)))
    assert f"request r2 differs from the baseline at position {position}: token 999" in str(
        caught.value
    )
    assert "triage not recorded" in str(caught.value)


def test_only_one_side_warm_is_unfair() -> None:
    warm = concurrent(cache="on")
    for number in range(4):
        warm = edited(warm, number, cached_tokens=2)
    with pytest.raises(UnfairComparison, match=r"PAIR010 .*8 cached tokens in the candidate, 0"):
        compare(serial(cache="on"), warm)
    with pytest.raises(UnfairComparison, match=r"PAIR010 .*0 cached tokens in the candidate, 8"):
        compare(warm, serial(cache="on"))
    assert compare(warm, warm).speedup == 1


def test_all_findings_come_at_once() -> None:
    other = edited(candidate(), 0, output_ids=(0, 1, 2, 7))
    other = dataclasses.replace(
        other, settings=dataclasses.replace(other.settings, threads=8, dtype="float16")
    )
    with pytest.raises(UnfairComparison) as caught:
        compare(baseline(), other)
    codes = {line.split()[0] for line in str(caught.value).splitlines()}
    assert codes == {"PAIR005", "PAIR007", "PAIR008"}


def test_an_unsound_run_is_unsound_before_it_is_unfair_and_says_both() -> None:
    other = edited(candidate(), 0, finished_ns=None, output_ids=(5, 5, 5, 5))
    with pytest.raises(RunUnsound) as caught:
        compare(baseline(), other)
    text = str(caught.value)
    assert "candidate RUN003 stamps-present: request r0 has no finish stamp" in text
    assert "PAIR005" in text


# The two shapes.


def test_a_serial_run_is_serial() -> None:
    check_serial(serial())
    check_serial(serial(1))


def test_a_serial_run_that_overlaps_is_refused() -> None:
    overlap = edited(serial(), 1, arrival_ns=ns(90), submitted_ns=ns(90))
    with pytest.raises(RunUnsound, match=r"RUN010 .*request r1 arrived 10000000 ns before"):
        check_serial(overlap)


@pytest.mark.parametrize(("gap", "sound"), [(2, True), (2.7, True), (3, False), (50, False)])
def test_a_serial_run_that_idles_is_refused(gap: float, sound: bool) -> None:
    """Four requests of 100 ms with three gaps: 0.98 is reached at a gap of 2.72 ms."""
    run = serial(4, ms=100, gap=gap)
    if sound:
        check_serial(run)
        return
    with pytest.raises(RunUnsound, match="RUN011"):
        check_serial(run)


def test_exactly_the_least_occupancy_is_accepted() -> None:
    run = edited(serial(2, ms=98), 1, arrival_ns=ns(102), submitted_ns=ns(102),
                 holds=(Hold(ns(102), ns(200)),), first_token_ns=ns(120),
                 token_ns=(ns(120), ns(140), ns(160), ns(200)), finished_ns=ns(200))  # fmt: skip
    assert run.batch_occupancy == Fraction(98, 100)
    check_serial(run)


def test_a_serial_run_without_holds_is_judged_by_its_residence() -> None:
    idle = dataclasses.replace(
        serial(gap=50),
        records=tuple(dataclasses.replace(r, holds=None) for r in serial(gap=50).records),
    )
    with pytest.raises(RunUnsound, match="RUN011"):
        check_serial(idle)


def test_a_batching_run_is_concurrent() -> None:
    check_concurrent(concurrent())
    check_concurrent(concurrent(3, slots=8))


def test_one_row_where_four_were_asked_for_is_refused_whatever_the_queue_reads() -> None:
    """The run whose system occupancy reads like a batch: 4.83 requests, and one row."""
    run = edited(concurrent(8, slots=4, used=1), 0, first_token_ns=ns(20))
    durations = [183.28, *[100.0] * 7]
    start = 0.0
    records = []
    for one, ms in zip(run.records, durations, strict=True):
        stamps = tuple(ns(start + ms * part) for part in (0.25, 0.5, 0.75, 1))
        records.append(
            dataclasses.replace(
                one, holds=(Hold(ns(start), ns(start + ms)),), first_token_ns=stamps[0],
                token_ns=stamps, finished_ns=stamps[-1],
            )
        )  # fmt: skip
        start += ms
    run = dataclasses.replace(run, records=tuple(records), steps=None)
    assert float(run.system_occupancy) == pytest.approx(4.83, abs=0.005)
    assert run.batch_occupancy == 1
    with pytest.raises(RunUnsound, match=r"RUN012 .*batch occupancy reads 1\.0000 .*reads 4\.83"):
        check_concurrent(run)
    check_concurrent(dataclasses.replace(run, slots=1))  # one slot was all that was asked for


def test_a_single_request_cannot_batch_and_is_accepted() -> None:
    check_concurrent(concurrent(1, slots=4))


def test_a_little_batching_is_batching() -> None:
    short = concurrent(2, slots=2)
    one = dataclasses.replace(
        short.records[1], holds=(Hold(ns(0), ns(1)),), finished_ns=ns(1), first_token_ns=ns(1),
        token_ns=(ns(1),), output_ids=(1,), max_tokens=1,
    )  # fmt: skip
    run = dataclasses.replace(short, records=(short.records[0], one), steps=None)
    assert run.batch_occupancy == Fraction(101, 100)
    check_concurrent(run)


def test_requests_too_far_apart_to_meet_are_not_asked_to_batch() -> None:
    spread = dataclasses.replace(concurrent(4, slots=2), records=serial(4, gap=50).records)
    spread = dataclasses.replace(spread, steps=None)
    assert arrival_pattern(spread) == "spread"
    check_concurrent(spread)


def test_requests_that_met_and_never_shared_are_refused_however_they_came() -> None:
    records = [
        dataclasses.replace(one, arrival_ns=ns(50 * i), submitted_ns=ns(50 * i))
        for i, one in enumerate(concurrent(4, slots=2, used=1).records)
    ]
    run = dataclasses.replace(concurrent(4, slots=2), records=tuple(records), steps=None)
    with pytest.raises(RunUnsound, match="RUN012"):
        check_concurrent(run)


@pytest.mark.parametrize("check", [check_serial, check_concurrent])
def test_an_empty_run_is_refused(check: Any) -> None:
    shape = serial() if check is check_serial else concurrent()
    with pytest.raises(RunUnsound, match="RUN001"):
        check(dataclasses.replace(shape, records=()))


def test_the_wrong_shape_is_refused() -> None:
    with pytest.raises(RunUnsound, match="is concurrent, not serial"):
        check_serial(concurrent(4, slots=1))
    with pytest.raises(RunUnsound, match="is serial, not concurrent"):
        check_concurrent(serial())


# Divergence.


@pytest.mark.parametrize(
    ("one", "other", "position"),
    [
        ((), (), None),
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 2, 4), 2),
        ((9, 2, 3), (1, 2, 3), 0),
        ((1, 2), (1, 2, 3), 2),
        ((1, 2, 3), (1, 2), 2),
        ((), (1,), 0),
        ([1, 2], (1, 2), None),
    ],
)
def test_the_first_divergence(one: Any, other: Any, position: int | None) -> None:
    assert first_divergence(one, other) == position


@given(ids, ids)
def test_two_streams_agree_up_to_their_first_divergence(
    one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    position = first_divergence(one, other)
    assert position == first_divergence(other, one)
    if position is None:
        assert one == other
    else:
        assert one[:position] == other[:position]
        assert one[position : position + 1] != other[position : position + 1]


def test_the_names_of_the_measurement_are_exported() -> None:
    for name in nanoserve_bench.__all__:
        if name != "hf_generate_one":  # needs torch
            assert getattr(nanoserve_bench, name) is not None
    assert nanoserve_bench.Comparison is Comparison


@pytest.mark.parametrize(("late_ns", "pattern"), [(0, "burst"), (1, "burst"), (2, "spread")])
def test_arrivals_within_a_hundredth_of_the_wall_are_a_burst(late_ns: int, pattern: str) -> None:
    run = concurrent(2, slots=2)
    first, last = run.records
    first = dataclasses.replace(first, finished_ns=first.arrival_ns + 100)
    last = dataclasses.replace(
        last, arrival_ns=first.arrival_ns + late_ns, finished_ns=first.arrival_ns + 100
    )
    assert arrival_pattern(dataclasses.replace(run, records=(first, last))) == pattern


def test_a_burst_at_the_very_beginning_of_a_clock_is_a_burst() -> None:
    run = concurrent(1, slots=2)
    first = dataclasses.replace(run.records[0], arrival_ns=0, finished_ns=50)
    assert arrival_pattern(dataclasses.replace(run, records=(first,))) == "burst"


def test_a_serial_run_arrives_one_by_one() -> None:
    assert arrival_pattern(serial(2)) == "serial"
