"""Numbers as they are printed: the one place where a value becomes text.

Three significant digits for measured quantities, two or three decimals for ratios, and an interval
always printed to the digits of its point. A missing value never becomes a digit; `tables.Hole`
stands in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nanoserve_bench.calibration.records import Share
from nanoserve_bench.statistics import Estimate

DASH = "\N{EM DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
EN = "\N{EN DASH}"
PERCENT = "\N{NO-BREAK SPACE}%"


def significant(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits without an exponent: 2.44, 16.4, 164, 12,300."""
    if not math.isfinite(value):
        raise ValueError(f"a number that is not finite cannot be printed: {value!r}")
    return f"{value:,.{_decimals(value, digits)}f}"


def _decimals(value: float, digits: int) -> int:
    if value == 0:
        return digits - 1
    magnitude = math.floor(math.log10(abs(value)))
    if round(abs(value), digits - 1 - magnitude) >= 10 ** (magnitude + 1):
        magnitude += 1
    return max(0, digits - 1 - magnitude)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """An estimate as text: its point, its interval, and the value to sort by."""

    value: float
    point: str
    interval: str
    unit: str

    @property
    def words(self) -> str:
        """Point and interval as they stand in a sentence."""
        return f"{self.point}{self.unit} ({self.interval})"


def shown(estimate: Estimate, unit: str = "", *, scale: float = 1.0) -> Shown:
    """A measured quantity; `scale` converts to the printed unit (1000 for s to ms)."""
    point, low, high = (scale * value for value in (estimate.point, estimate.low, estimate.high))
    return _shown(point, low, high, unit, _decimals(point, 3))


def ratio(estimate: Estimate) -> Shown:
    """A ratio, with its multiplication sign: two decimals, as one reads a percent."""
    places = 3 if estimate.point < 0.1 else 2 if estimate.point < 100 else 1
    return _shown(estimate.point, estimate.low, estimate.high, TIMES, places)


def _shown(point: float, low: float, high: float, unit: str, places: int) -> Shown:
    return Shown(
        value=point,
        point=f"{point:,.{places}f}",
        interval=f"{low:,.{places}f}{EN}{high:,.{places}f}",
        unit=unit,
    )


def percent(estimate: Estimate) -> Shown:
    """A share, in percent."""
    point, low, high = (100 * value for value in (estimate.point, estimate.low, estimate.high))
    return _shown(point, low, high, PERCENT, 1)


def simulated(share: Share) -> Shown:
    """A share of simulated studies, in percent, with its Monte Carlo interval."""
    low, high = share.interval
    return _shown(100 * share.point, 100 * low, 100 * high, PERCENT, 1)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 finding`, `3 findings`, `no findings`."""
    word = noun if number == 1 else plural or f"{noun}s"
    return f"{number or 'no'} {word}"


def enumerate_words(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
