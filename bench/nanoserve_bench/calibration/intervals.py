"""Other intervals beside Student's t on the logs, on the same simulated studies.

The percentile bootstrap of the mean and the signed-rank interval (Hodges and Lehmann's, from the
Walsh averages) are what is most often used instead. They are here to be compared and for nothing
else: no figure of a study is made of them.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from nanoserve_bench.statistics import CONFIDENCE, mean_interval

RESAMPLES = 999

Interval = tuple[float, float]


def student_t(values: Sequence[float]) -> Interval:
    """What the project uses."""
    mean, half = mean_interval(values, CONFIDENCE)
    return mean - half, mean + half


def bootstrap(values: Sequence[float]) -> Interval:
    """The percentile bootstrap of the mean, over 999 resamples."""
    means = np.sort(np.asarray(values)[_resamples(len(values))].mean(axis=1))
    reach = round((1 - CONFIDENCE) / 2 * (RESAMPLES + 1))
    return float(means[reach - 1]), float(means[RESAMPLES - reach])


def signed_rank(values: Sequence[float]) -> Interval:
    """The Walsh averages between which Wilcoxon's signed-rank test does not reject.

    Of fewer than six values all averages together hold less than 95 %, and are all there is.
    """
    averages = sorted(
        (one + other) / 2 for one, other in itertools.combinations_with_replacement(values, 2)
    )
    cut = _critical(len(values))
    return averages[cut], averages[-1 - cut]


METHODS: Mapping[str, Callable[[Sequence[float]], Interval]] = {
    "Student t on the logs": student_t,
    "percentile bootstrap of the mean": bootstrap,
    "signed-rank": signed_rank,
}


@functools.cache
def _resamples(count: int) -> npt.NDArray[np.intp]:
    """The same resamples for every study of so many blocks: their error is shared, not added."""
    rng = random.Random(f"resamples/{count}")  # noqa: S311 - nothing secret
    drawn = [[int(rng.random() * count) for _ in range(count)] for _ in range(RESAMPLES)]
    return np.asarray(drawn, dtype=np.intp)


@functools.cache
def _critical(count: int) -> int:
    """How many Walsh averages may be cut off at each end: exact, from all signs of the ranks."""
    ways = [1]
    for rank in range(1, count + 1):
        longer = [0] * (len(ways) + rank)
        for total, number in enumerate(ways):
            longer[total] += number
            longer[total + rank] += number
        ways = longer
    tail, cut = 0, 0
    for total, number in enumerate(ways):
        tail += number
        if tail / math.ldexp(1, count) > (1 - CONFIDENCE) / 2:
            break
        cut = total
    return cut
