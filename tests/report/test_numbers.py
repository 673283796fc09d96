"""Numbers as text: digits, intervals, and what may never be printed."""

from __future__ import annotations

import pytest

from nanoserve_bench.statistics import Estimate
from nanoserve_report import numbers


def estimate(point: float, low: float, high: float) -> Estimate:
    return Estimate(point=point, low=low, high=high, n=8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.4449, "2.44"),
        (16.44, "16.4"),
        (164.4, "164"),
        (12_345.6, "12,346"),
        (0.04567, "0.0457"),
        (9.996, "10.0"),
        (99.96, "100"),
        (0.0, "0.00"),
        (-3.14159, "-3.14"),
    ],
)
def test_significant_keeps_three_digits_without_an_exponent(value: float, text: str) -> None:
    assert numbers.significant(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        numbers.significant(value)


def test_a_quantity_prints_its_interval_to_the_digits_of_its_point() -> None:
    shown = numbers.shown(estimate(16.44, 15.96, 17.0249))
    assert (shown.point, shown.interval) == ("16.4", "16.0\N{EN DASH}17.0")


def test_scale_converts_the_unit_of_point_and_interval() -> None:
    shown = numbers.shown(estimate(0.0621, 0.0600, 0.0650), scale=1000)
    assert (shown.value, shown.point, shown.interval) == (
        pytest.approx(62.1),
        "62.1",
        "60.0\N{EN DASH}65.0",
    )


@pytest.mark.parametrize(
    ("point", "text"), [(1.636, "1.64"), (12.34, "12.34"), (123.4, "123.4"), (0.0123, "0.012")]
)
def test_a_ratio_has_two_decimals_where_they_say_something(point: float, text: str) -> None:
    assert numbers.ratio(estimate(point, point, point)).point == text


def test_a_share_is_printed_in_percent() -> None:
    shown = numbers.percent(estimate(0.7777, 0.77, 0.78))
    assert (shown.point, shown.unit, shown.interval) == (
        "77.8",
        "\N{NO-BREAK SPACE}%",
        "77.0\N{EN DASH}78.0",
    )


@pytest.mark.parametrize(
    ("number", "text"), [(0, "no findings"), (1, "1 finding"), (2, "2 findings")]
)
def test_counts_agree_with_their_noun(number: int, text: str) -> None:
    assert numbers.count(number, "finding") == text


def test_words_are_enumerated_as_one_writes_them() -> None:
    assert numbers.enumerate_words(["a", "b", "c"]) == "a, b and c"
    assert numbers.enumerate_words(["a"]) == "a"
    assert numbers.enumerate_words([]) == ""
