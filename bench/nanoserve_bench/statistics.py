"""From the blocks of a study to a point, an interval and a word.

Rates and ratios multiply, so they are averaged over their logarithms: the point is a geometric
mean, and the interval is Student's t on the logs, block by block. The logs of a product's factors
add up to the product's log in every block, therefore the points multiply exactly as well (up to the
rounding of a float). Quantities that may be zero, such as a queue share, are averaged as they are.

The percentile bootstrap is not used on purpose: below twenty blocks its nominal 95 % interval holds
the truth in 82 to 93 % of studies, Student's t on the logs in 94 to 98 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from scipy.special import betaincinv, stdtr, stdtrit

CONFIDENCE = 0.95
EQUIVALENCE = 0.03
"""Ratios between 1 / 1.03 and 1.03 are declared to make no difference worth a word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A point with its interval, over the blocks of a study.

    Attributes:
        point: Geometric mean on the `log` scale, arithmetic mean on the `linear` one.
        low: Lower end of the interval.
        high: Upper end of the interval.
        n: Blocks that it is made of, at least 2.
        confidence: Of the interval, such as 0.95.
        scale: `log` or `linear`.
    """

    point: float
    low: float
    high: float
    n: int
    confidence: float = CONFIDENCE
    scale: str = "log"

    @property
    def relative_half_width(self) -> float:
        """Half the width of the interval as a share of the point: what a stopping rule watches."""
        return (self.high - self.low) / (2 * self.point) if self.point else math.inf


class Outcome(StrEnum):
    """What a comparison may be said to show."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    UNDECIDED = "undecided"


class Worth(StrEnum):
    """What a doubling of the slots may be said to be."""

    WORTH_IT = "worth it"
    NOT_WORTH_IT = "not worth it"
    UNDECIDED = "undecided"


def log_of(value: Fraction | float) -> float:
    """Natural logarithm of a positive number, exact operands of any size included.

    Raises:
        ValueError: The value is not positive.
    """
    if value <= 0:
        raise ValueError(f"{value} has no logarithm: a rate or ratio must be positive")
    if isinstance(value, Fraction):
        return math.log(value.numerator) - math.log(value.denominator)
    return math.log(value)


def t_quantile(probability: float, degrees: float) -> float:
    """The quantile of Student's t distribution."""
    return float(stdtrit(degrees, probability))


def t_upper_tail(value: float, degrees: float) -> float:
    """The probability that Student's t exceeds `value`."""
    return float(stdtr(degrees, -value))


def mean_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Mean and half-width of Student's t interval.

    Raises:
        ValueError: Fewer than two values: one block has no spread to judge by.
    """
    if len(values) < 2:
        raise ValueError(f"an interval needs at least 2 blocks, there are {len(values)}")
    spread = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), t_quantile((1 + confidence) / 2, len(values) - 1) * spread


def estimate(values: Iterable[Fraction | float], *, confidence: float = CONFIDENCE) -> Estimate:
    """Geometric mean and t interval on the logs, one value per block.

    Raises:
        ValueError: Fewer than two values, or one that is not positive.
    """
    logs = [log_of(value) for value in values]
    mean, half = mean_interval(logs, confidence)
    return Estimate(
        point=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        n=len(logs),
        confidence=confidence,
    )


def ratio_of_independent(
    above: Sequence[Fraction | float],
    below: Sequence[Fraction | float],
    *,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Geometric mean of `above` over that of `below`, of blocks that are not paired.

    The interval is Welch's t on the logs, with his degrees of freedom: the two samples may scatter
    differently. B. L. Welch, "The generalization of Student's problem when several different
    population variances are involved", Biometrika 34 (1947).

    Raises:
        ValueError: Fewer than two values on a side, or one that is not positive.
    """
    sides = [[log_of(value) for value in values] for values in (above, below)]
    if min(map(len, sides)) < 2:
        raise ValueError("an interval needs at least 2 blocks on both sides")
    difference = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
    errors = [statistics.variance(logs) / len(logs) for logs in sides]
    half = 0.0
    if sum(errors) > 0:
        shares = sum(e**2 / (len(logs) - 1) for e, logs in zip(errors, sides, strict=True))
        degrees = sum(errors) ** 2 / shares
        half = t_quantile((1 + confidence) / 2, degrees) * math.sqrt(sum(errors))
    return Estimate(
        point=math.exp(difference),
        low=math.exp(difference - half),
        high=math.exp(difference + half),
        n=sum(map(len, sides)),
        confidence=confidence,
    )


def estimate_linear(
    values: Iterable[Fraction | float], *, confidence: float = CONFIDENCE
) -> Estimate:
    """Arithmetic mean and t interval, for quantities that may be zero.

    Raises:
        ValueError: Fewer than two values.
    """
    numbers = [float(value) for value in values]
    mean, half = mean_interval(numbers, confidence)
    return Estimate(
        point=mean,
        low=mean - half,
        high=mean + half,
        n=len(numbers),
        confidence=confidence,
        scale="linear",
    )


def share_interval(hits: int, of: int, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson), for counts such as simulated studies.

    Raises:
        ValueError: The hits are not among so many.
    """
    if not 0 <= hits <= of or of == 0:
        raise ValueError(f"{hits} of {of} is no share")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, of - hits + 1, tail))
    high = 1.0 if hits == of else float(betaincinv(hits + 1, of - hits, 1 - tail))
    return low, high


def geometric_mean(values: Sequence[Fraction | float]) -> float:
    """Geometric mean of positive numbers.

    Raises:
        ValueError: No value, or one that is not positive.
    """
    if not values:
        raise ValueError("the geometric mean of nothing does not exist")
    return math.exp(statistics.fmean(log_of(value) for value in values))


def envelope(self_comparisons: Iterable[Estimate]) -> tuple[float, float]:
    """How far a ratio of a thing to itself strays here: the hull of the A/A intervals and 1.

    It is widened to be symmetric in the logs, because which side of an A/A pair is called the
    baseline means nothing.
    """
    reach = 1.0
    for ratio in self_comparisons:
        reach = max(reach, ratio.high, 1 / ratio.low)
    return 1 / reach, reach


def compare_verdict(ratio: Estimate, around_one: tuple[float, float]) -> Outcome:
    """What a speedup may be called.

    `faster` and `slower` need the whole interval on one side of 1 and outside the A/A envelope
    `around_one`; `no difference` needs the whole interval within the equivalence margin.
    """
    low, high = around_one
    if ratio.low > max(1.0, high):
        return Outcome.FASTER
    if ratio.high < min(1.0, low):
        return Outcome.SLOWER
    if ratio.low >= 1 / (1 + EQUIVALENCE) and ratio.high <= 1 + EQUIVALENCE:
        return Outcome.NO_DIFFERENCE
    return Outcome.UNDECIDED


def worth_verdict(product: Estimate) -> Worth:
    """What a doubling may be called, from the interval of its throughput ratio."""
    if product.low > 1:
        return Worth.WORTH_IT
    if product.high < 1:
        return Worth.NOT_WORTH_IT
    return Worth.UNDECIDED


def outliers(values: Sequence[Fraction | float]) -> tuple[int, ...]:
    """Indices of values that stray from the median: flagged, never dropped.

    A value strays when its log is more than 5 robust standard deviations (1.4826 times the median
    absolute deviation) and more than 5 % away.
    """
    logs = [log_of(value) for value in values]
    middle = statistics.median(logs)
    distances = [abs(log - middle) for log in logs]
    reach = max(5 * 1.4826 * statistics.median(distances), math.log(1.05))
    return tuple(index for index, distance in enumerate(distances) if distance > reach)
