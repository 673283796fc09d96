"""Lengths of ragged workloads, drawn from a distribution that is written down.

Prompts and outputs of real traffic have long tails: most are short, some are many times longer. A
log-normal distribution, clipped so that no request outgrows the study, has that shape with two
numbers that can be read: the median, and the spread of the logarithm.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

from nanoserve_bench.plan import RequestLengths

_LEAST_SHARE = 2.0**-53
"""The quantile of 0 is infinitely far away; `random` returns 0 once in so many draws."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogNormal:
    """A log-normal number of tokens: `median x exp(sigma x z)`, rounded and clipped.

    Attributes:
        median: Half of the requests are shorter.
        sigma: Standard deviation of the natural logarithm.
        least: What is shorter becomes this long.
        most: What is longer becomes this long.
    """

    median: float
    sigma: float
    least: int
    most: int

    def draw(self, source: random.Random) -> int:
        """One length; uses one `random()`, the only method that Python keeps the same for ever."""
        deviate = NormalDist().inv_cdf(max(_LEAST_SHARE, source.random()))
        length = round(self.median * math.exp(self.sigma * deviate))
        return min(self.most, max(self.least, length))

    def __str__(self) -> str:
        """As it stands in a plan."""
        return (
            f"log-normal, median {self.median:g}, sigma {self.sigma:g}, clipped to "
            f"{self.least}-{self.most}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Ragged:
    """The distributions of a workload's prompts and outputs, which are drawn independently."""

    prompt: LogNormal
    new: LogNormal

    def draw(self, count: int, seed: str) -> tuple[RequestLengths, ...]:
        """Lengths of `count` requests, the same for the same seed."""
        source = random.Random(seed)  # noqa: S311 - nothing secret
        return tuple(
            RequestLengths(prompt_tokens=self.prompt.draw(source), new_tokens=self.new.draw(source))
            for _ in range(count)
        )

    def __str__(self) -> str:
        """As it stands in a plan."""
        return f"prompts {self.prompt}; outputs {self.new}"
