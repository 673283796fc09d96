"""Where trials have the same spans one behind the other, to the nanosecond.

One span may come twice by chance, and how easily shows in how often it does inside of a trial: a
clock that ticks coarsely, or a system without noise, repeats itself. So a number of spans in a row
is looked for that chance would not show twice in a million studies; a copy of any part of a trial,
shifted to wherever it was put, has it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nanoserve_bench.tables import Ints

MOST_ALIKE = 0.01
"""Share of a trial's pairs of spans that are equal, above which its clock says too little."""
LEAST_ALIKE = 1e-3
"""The same where none was seen to be equal: as often a pair may be by chance."""
CHANCE = 1e-6
"""Expected number of such rows of spans in a study that holds none."""
LEAST_ROW = 4
"""Fewer spans in a row are never enough."""


class Repeat(NamedTuple):
    """Two trials, by their places, that share `times` rows of `length` spans; it may be one."""

    earlier: int
    later: int
    length: int
    times: int


def repeats(trials: Sequence[Ints]) -> Iterator[Repeat]:
    """Pairs of trials that share spans in a row.

    Args:
        trials: The spans of each, ns, in the order in which they came.
    """
    shares = [alike(spans) for spans in trials]
    judged = [place for place, share in enumerate(shares) if share <= MOST_ALIKE]
    count = sum(len(trials[place]) for place in judged)
    if not count:
        return
    likely = max(LEAST_ALIKE, *(shares[place] for place in judged))
    length = max(LEAST_ROW, math.ceil(math.log(CHANCE / count**2) / math.log(likely)))
    judged = [place for place in judged if len(trials[place]) >= length]
    if not judged:
        return
    rows = np.concatenate([_rows(trials[place], length) for place in judged])
    owner = np.repeat(judged, [len(trials[place]) - length + 1 for place in judged])
    for (earlier, later), times in sorted(shared(rows, owner).items()):
        yield Repeat(earlier, later, length, times)


def tells_apart(spans: Ints) -> bool:
    """Whether the clock of a trial tells its spans apart, so that equal ones say something."""
    return alike(spans) <= MOST_ALIKE


def alike(spans: Ints) -> float:
    """The share of equal ones among the pairs of spans; 1 for a few, which tell nothing."""
    if len(spans) < LEAST_ROW:
        return 1.0
    counts = np.unique(spans, return_counts=True)[1]
    return float((counts * (counts - 1)).sum() / (len(spans) * (len(spans) - 1)))


def _rows(spans: Ints, length: int) -> npt.NDArray[np.uint64]:
    """A number for each place, equal where `length` spans from there on are."""
    count = len(spans) - length + 1
    return mixed(spans[place : place + count] for place in range(length))


def mixed(columns: Iterable[Ints]) -> npt.NDArray[np.uint64]:
    """A number for each row, equal where all columns are and, but for 64 bits' chance, only there.

    Every step can be undone, so that rows that differ in one column alone never get one number.
    """
    numbers = np.zeros(1, np.uint64)
    for column in columns:
        numbers = (numbers ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        numbers ^= numbers >> np.uint64(29)
    return numbers


def shared(numbers: npt.NDArray[np.uint64], owner: Ints) -> Counter[tuple[int, int]]:
    """How many numbers of an owner are there before: (first owner that has it, owner) to how many.

    Each number is held against the first of its kind alone, so that the work is that of sorting.

    Args:
        numbers: Of all owners, in the order of their owners.
        owner: Of each number, ascending.
    """
    order = np.argsort(numbers, kind="stable")
    numbers, owner = numbers[order], owner[order]
    again = np.zeros(len(numbers), np.bool_)
    again[1:] = numbers[1:] == numbers[:-1]
    first = owner[np.maximum.accumulate(np.where(again, 0, np.arange(len(numbers))))]
    return Counter(zip(first[again].tolist(), owner[again].tolist(), strict=True))
