"""Points, intervals and words."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from nanoserve_bench.statistics import (
    Estimate,
    Outcome,
    Worth,
    compare_verdict,
    envelope,
    estimate,
    estimate_linear,
    geometric_mean,
    log_of,
    outliers,
    ratio_of_independent,
    t_quantile,
    t_upper_tail,
    worth_verdict,
)

positive = st.fractions(min_value=Fraction(1, 1000), max_value=1000)


def interval(low: float, high: float) -> Estimate:
    return Estimate(point=math.sqrt(low * high), low=low, high=high, n=8)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (4, 2.776), (7, 2.365), (30, 2.042)]
)
def test_student_quantiles_are_those_of_the_table(degrees: int, quantile: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(quantile, abs=5e-4)
    assert t_upper_tail(quantile, degrees) == pytest.approx(0.025, abs=1e-4)


def test_an_estimate_is_the_geometric_mean_with_t_on_the_logs() -> None:
    found = estimate([1.0, 2.0, 4.0])
    assert found.point == pytest.approx(2.0)
    half = 4.303 * math.log(2) / math.sqrt(3)
    assert found.high == pytest.approx(2 * math.exp(half), rel=1e-3)
    assert found.low == pytest.approx(2 / math.exp(half), rel=1e-3)
    assert (found.n, found.confidence, found.scale) == (3, 0.95, "log")


def test_a_wider_confidence_is_wider() -> None:
    values = [1.0, 1.1, 0.9, 1.05]
    assert estimate(values, confidence=0.99).high > estimate(values).high


def test_what_may_be_zero_is_averaged_as_it_is() -> None:
    found = estimate_linear([0.0, 0.5, 1.0])
    assert found.point == 0.5
    assert found.high - found.point == pytest.approx(4.303 * 0.5 / math.sqrt(3), rel=1e-3)
    assert found.scale == "linear"


@pytest.mark.parametrize("values", [[], [1.0]])
def test_one_block_has_no_interval(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least 2 blocks"):
        estimate(values)
    with pytest.raises(ValueError, match="at least 2 blocks"):
        estimate_linear(values)


@pytest.mark.parametrize("value", [0.0, -1.0, Fraction(0)])
def test_a_ratio_that_is_not_positive_is_refused(value: float | Fraction) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        estimate([1.0, value])


def test_nothing_has_no_mean() -> None:
    with pytest.raises(ValueError, match="nothing"):
        geometric_mean([])


def test_logs_of_huge_fractions_are_finite() -> None:
    assert log_of(Fraction(10**400, 10**399)) == pytest.approx(math.log(10))


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=12))
def test_the_points_of_factors_multiply_to_the_products(
    factors: list[tuple[Fraction, Fraction]],
) -> None:
    one = estimate(a for a, _ in factors)
    other = estimate(b for _, b in factors)
    product = estimate(a * b for a, b in factors)
    assert one.point * other.point == pytest.approx(product.point, rel=1e-9)


@given(st.lists(positive, min_size=2, max_size=12))
def test_turning_a_ratio_round_turns_its_interval_round(values: list[Fraction]) -> None:
    found, turned = estimate(values), estimate(1 / value for value in values)
    assert turned.point == pytest.approx(1 / found.point, rel=1e-9)
    assert turned.low == pytest.approx(1 / found.high, rel=1e-6)
    assert found.low <= found.point * (1 + 1e-12)
    assert found.point <= found.high * (1 + 1e-12)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(1)
    studies = 2000
    held = 0
    for _ in range(studies):
        found = estimate([math.exp(math.log(1.05) + 0.02 * rng.gauss(0, 1)) for _ in range(8)])
        held += found.low <= 1.05 <= found.high
    assert 0.935 <= held / studies <= 0.965


@pytest.mark.parametrize(
    ("ratio", "around_one", "word"),
    [
        (interval(1.2, 1.4), (0.99, 1.01), Outcome.FASTER),
        (interval(1.005, 1.4), (0.99, 1.01), Outcome.UNDECIDED),
        (interval(1.2, 1.4), (0.7, 1.3), Outcome.UNDECIDED),
        (interval(1.3, 1.4), (1 / 1.3, 1.3), Outcome.UNDECIDED),
        (interval(0.6, 0.8), (0.99, 1.01), Outcome.SLOWER),
        (interval(0.6, 0.995), (0.99, 1.01), Outcome.UNDECIDED),
        (interval(0.99, 1.02), (0.99, 1.01), Outcome.NO_DIFFERENCE),
        (interval(0.99, 1.04), (0.99, 1.01), Outcome.UNDECIDED),
        (interval(0.96, 1.01), (0.99, 1.01), Outcome.UNDECIDED),
        (interval(1 / 1.03, 1.03), (0.9, 1.1), Outcome.NO_DIFFERENCE),
        (interval(0.9, 1.1), (1.0, 1.0), Outcome.UNDECIDED),
        (interval(1.0, 1.4), (1.0, 1.0), Outcome.UNDECIDED),
    ],
)
def test_a_speedup_is_called_one_only_outside_of_one_and_the_envelope(
    ratio: Estimate, around_one: tuple[float, float], word: Outcome
) -> None:
    assert compare_verdict(ratio, around_one) == word


def test_the_envelope_is_the_widest_a_a_interval_on_both_sides() -> None:
    assert envelope([interval(0.98, 1.01), interval(0.99, 1.03)]) == (1 / 1.03, 1.03)
    low, high = envelope([interval(0.9, 0.95)])
    assert (low, high) == (pytest.approx(0.9), pytest.approx(1 / 0.9))
    assert envelope([]) == (1.0, 1.0)


def test_an_envelope_never_calls_its_own_a_a_a_speedup() -> None:
    for ratio in (interval(1.05, 1.2), interval(0.8, 0.9), interval(0.99, 1.01)):
        word = compare_verdict(ratio, envelope([ratio]))
        assert word in {Outcome.UNDECIDED, Outcome.NO_DIFFERENCE}


@pytest.mark.parametrize(
    ("product", "word"),
    [
        (interval(1.01, 1.2), Worth.WORTH_IT),
        (interval(0.8, 0.99), Worth.NOT_WORTH_IT),
        (interval(0.99, 1.2), Worth.UNDECIDED),
        (interval(1.0, 1.2), Worth.UNDECIDED),
        (interval(0.9, 1.0), Worth.UNDECIDED),
    ],
)
def test_a_doubling_is_worth_what_its_whole_interval_says(product: Estimate, word: Worth) -> None:
    assert worth_verdict(product) == word


def test_relative_half_width() -> None:
    assert Estimate(point=2.0, low=1.9, high=2.1, n=3).relative_half_width == pytest.approx(0.05)
    assert Estimate(point=0.0, low=-1, high=1, n=3).relative_half_width == math.inf


def test_outliers_are_flagged_by_their_place() -> None:
    assert outliers([1.0, 1.01, 0.99, 1.0, 1.5, 1.0]) == (4,)
    assert outliers([1.0, 1.0, 1.0, 1.04]) == ()
    assert outliers([1.0, 1.0, 1.0, 1.06]) == (3,)
    assert outliers([1.0, 2.0, 3.0, 4.0]) == ()


def test_the_ratio_of_two_unpaired_samples_is_welchs_t_on_the_logs() -> None:
    rng = random.Random(7)
    above = [math.exp(rng.gauss(0.3, 0.02)) for _ in range(5)]
    below = [math.exp(rng.gauss(0.1, 0.10)) for _ in range(9)]
    found = ratio_of_independent(above, below)
    reference = ttest_ind(
        [math.log(v) for v in above], [math.log(v) for v in below], equal_var=False
    ).confidence_interval(0.95)
    assert math.log(found.low) == pytest.approx(reference.low)
    assert math.log(found.high) == pytest.approx(reference.high)
    assert found.point == pytest.approx(geometric_mean(above) / geometric_mean(below))
    assert found.n == 14
    back = ratio_of_independent(below, above)
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_unpaired_samples_without_scatter_have_no_width_and_one_block_has_no_interval() -> None:
    found = ratio_of_independent([2.0, 2.0], [1.0, 1.0])
    assert (found.low, found.point, found.high) == pytest.approx((2.0, 2.0, 2.0))
    for sides in (([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0])):
        with pytest.raises(ValueError, match="at least 2 blocks on both sides"):
            ratio_of_independent(*sides)
