"""How much the noise of two trials is alike: what a copy keeps when its stamps are shaken.

Two runs of one workload take the same shape of time and another noise. So of every trial the spans
between its tokens are taken, the usual span of its cell at each place is taken off, and what is
left is ranked from place to place. Between two runs these ranks have nothing to do with each other;
between a run and its copy they agree, whatever the copy was shifted by or stretched to, until the
shaking is as large as the noise itself. Of a trial that was copied in part, the parts agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nanoserve_bench.statistics import t_quantile, t_upper_tail
from nanoserve_bench.tables import Flags, Ints

Floats = npt.NDArray[np.float64]

LEAST_SPANS = 12
"""Fewer spans can agree by chance."""
MOST_SPANS = 512
"""Spans of a trial that are looked at: as many tell a copy from chance as surely as more would."""
SURE = 6.0
"""How many times its usual size an agreement must have.

Among 26,000 pairs of real trials of one cell the largest was 3.5 times the usual, and a copy shaken
by a hundredth of its spans' noise 15 times.
"""
PARTS = 1e-5
"""Chance at which parts of two trials, among all that a study has, agree as they do.

Among the 650,000 pairs of parts of real trials the least was 0.1, and half of a trial that was
copied and shaken by a tenth of its spans' noise has less than 1e-8.
"""
LEAST_PART = 14
"""Spans of a part: as many as a request has tokens, or as a few have, from here on."""
MOST_PARTS = 4096
"""Parts of trials of one shape that are held against one another."""
SHARED = 0.3
"""What all trials of a cell have in common when the usual span is another cell's: its error."""
LEAST_TRIALS = 4
"""Of fewer the usual span of a place is not known."""
_NEVER = 1 - 1e-6
_USUAL = 0.6745
"""Of a normal deviate, the size that half of all exceed."""
_OFTEN = 0.05
"""Pairs of parts of two trials that agree as much by chance: those beyond are looked at."""
_AT_ONCE = 512
_SAMPLE = 400


def spans_of(tokens: Ints, rows: int) -> Ints:
    """The time that each `rows` tokens of a trial took, ns.

    With as many rows as the trial has slots a span is a step, whatever the order of the requests.

    Args:
        tokens: All token stamps of the trial, ns.
        rows: Tokens that come at a time.
    """
    return np.diff(np.sort(tokens)[::rows])


def shares_of(spans: Ints) -> Floats | None:
    """At most `MOST_SPANS` spans as shares of their mean; None for a trial with too few."""
    shares = spans[:MOST_SPANS]
    return shares / shares.mean() if len(shares) >= LEAST_SPANS and shares.any() else None


class Likeness(NamedTuple):
    """Two trials whose noise agrees: Spearman's correlation, and the most by chance.

    `parts` counts the parts that agree; 0 is said of the whole.
    """

    earlier: int
    later: int
    agreement: float
    chance: float
    parts: int = 0


def copies(
    trials: Sequence[Floats], cells: Sequence[str], things: Sequence[Hashable]
) -> Iterator[Likeness]:
    """Pairs of trials whose noise agrees beyond chance, by their places.

    The usual span is taken from the trial's own cell; where another cell measures the same thing,
    its A/A, from there as well, because a cell all of whose trials are one has no noise of its own.

    Args:
        trials: `shares_of` each, of one length.
        cells: The cell of each.
        things: What each measures, equal for two cells that are an A/A.
    """
    if len(trials) < LEAST_TRIALS:
        return
    spans, names = np.stack(trials), np.array(cells)
    numbers = {thing: number for number, thing in enumerate(dict.fromkeys(things))}
    measures = np.array([numbers[thing] for thing in things])
    own, other = np.empty_like(spans), np.empty_like(spans)
    twins: dict[int, Flags] = defaultdict(lambda: np.zeros(len(trials), np.bool_))
    for cell, number in dict.fromkeys(zip(cells, measures.tolist(), strict=True)):
        mine = names == cell
        theirs = (measures == number) & ~mine
        own[mine] = spans[mine] - np.median(spans[mine], axis=0)
        if theirs.sum() >= LEAST_TRIALS:
            twins[number] |= mine
            other[mine] = spans[mine] - np.median(spans[theirs], axis=0)
    ranks = _ranks(np.diff(own))
    least = SURE * usual(ranks)
    yield from _alike(ranks, np.arange(len(trials)), math.tanh(least))
    for both in twins.values():
        ranks = _ranks(np.diff(other[both]))
        yield from _alike(ranks, np.flatnonzero(both), math.tanh(least + SHARED))


def part_length(new_tokens: int) -> int:
    """How many spans a part has, so that it begins and ends with requests where it can."""
    fitting = [n for n in range(LEAST_PART, 2 * LEAST_PART) if new_tokens % n == 0]
    if new_tokens < LEAST_PART:
        return new_tokens * -(-LEAST_PART // max(1, new_tokens))
    return fitting[0] if fitting else min(new_tokens, 2 * LEAST_PART)


def partial_copies(
    trials: Sequence[Floats], things: Sequence[Hashable], length: int, *, alike: bool
) -> Iterator[Likeness]:
    """Pairs of trials of which parts agree beyond chance.

    Parts at one place are held against each other without what all trials of their kind take
    there; where all parts are alike, those of two places without what a part takes at each span.

    Args:
        trials: `shares_of` each, of one length.
        things: What each measures, as for `copies`.
        length: `part_length`.
        alike: Whether every part is one request, so that they may have changed places.
    """
    if len(trials) < LEAST_TRIALS:
        return
    places = min((len(trials[0]) + 1) // length, MOST_PARTS // len(trials))
    if places < 2:
        return  # a trial of one part is looked at as a whole
    spans = np.stack(trials)
    # The last span of a part is the prefill of the next request, which stands apart.
    parts = np.stack([spans[:, p * length :][:, : length - 1] for p in range(places)], axis=1)
    numbers = {thing: number for number, thing in enumerate(dict.fromkeys(things))}
    measures = np.array([numbers[thing] for thing in things])
    found: dict[tuple[int, int], list[tuple[float, int, int]]] = defaultdict(list)
    pairs = places**2 if alike else places
    for axes in (0, (0, 1)) if alike else (0,):
        left = np.empty_like(parts)
        for number in numbers.values():
            mine = measures == number
            left[mine] = parts[mine] - np.median(parts[mine], axis=axes)
        ranks = _ranks(np.diff(left.reshape(len(trials) * places, length - 1)))
        degrees = usual(ranks) ** -2 + 1  # of Student's t that a correlation of so many has
        value = t_quantile(1 - _OFTEN / pairs, degrees)
        for one, other, agreement in _above(ranks, value / math.hypot(value, math.sqrt(degrees))):
            (below, here), (above, there) = divmod(one, places), divmod(other, places)
            if below != above and (here == there) == (axes == 0):
                size = agreement * math.sqrt(degrees / (1 - min(agreement, _NEVER) ** 2))
                often = pairs * t_upper_tail(size, degrees)
                found[below, above].append((often, here, there))
    for (below, above), hits in sorted(found.items()):
        parts_alike, chance = _least_chance(hits)
        chance *= len(trials) * (len(trials) - 1) / 2
        if chance < PARTS:
            yield Likeness(below, above, chance, PARTS, parts_alike)


def _least_chance(hits: Sequence[tuple[float, int, int]]) -> tuple[int, float]:
    """How many parts that agree are the most surprising, and how likely so many are by chance.

    Args:
        hits: How many pairs of parts agree as much by chance, and the places of both parts.
    """
    least = (0, 1.0)
    ours: set[int] = set()
    theirs: set[int] = set()
    for often, here, there in sorted(hits):
        if here in ours or there in theirs:
            continue
        ours.add(here)
        theirs.add(there)
        chance = often ** len(ours) / math.factorial(len(ours))
        if chance < least[1]:
            least = (len(ours), chance)
    return least


def _above(ranks: npt.NDArray[np.float32], least: float) -> Iterator[tuple[int, int, float]]:
    """The pairs of rows that agree by more than this."""
    if least > _NEVER:
        return  # the trials are too short, or so much alike that they say nothing
    for start in range(0, len(ranks), _AT_ONCE):
        agreement = ranks[start : start + _AT_ONCE] @ ranks.T
        for row, other in np.argwhere(agreement > least).tolist():
            if start + row < other:
                yield start + row, other, float(agreement[row, other])


def _alike(ranks: npt.NDArray[np.float32], places: Ints, chance: float) -> Iterator[Likeness]:
    """The pairs among these trials; `places` says which they are."""
    for one, other, agreement in _above(ranks, chance):
        yield Likeness(int(places[one]), int(places[other]), agreement, chance)


def _ranks(values: Floats) -> npt.NDArray[np.float32]:
    """Ranks of each row, such that the product of two rows is Spearman's correlation."""
    ranks = shared_ranks(values)
    ranks -= ranks.mean()  # which is the mean of each row
    size = np.linalg.norm(ranks, axis=1, keepdims=True)
    return (ranks / np.where(size > 0, size, 1)).astype(np.float32)


def shared_ranks(values: Floats) -> Floats:
    """The rank of each value in its row, from 0 on; equal values share the mean of theirs.

    As SciPy's ``rankdata``, whose module takes the gate longer to import than a study to judge.
    """
    order = np.argsort(values)
    ordered = np.take_along_axis(values, order, axis=1)
    differs = ordered[:, 1:] != ordered[:, :-1]
    edge = np.ones((len(values), 1), np.bool_)
    places = np.arange(values.shape[1])
    first = np.where(np.hstack((edge, differs)), places, 0)
    last = np.where(np.hstack((differs, edge)), places, len(places))
    first = np.maximum.accumulate(first, axis=1)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, axis=1)
    return ranks


def usual(ranks: npt.NDArray[np.float32]) -> float:
    """The usual size of Fisher's transform of an agreement: by theory, or as seen if larger.

    Differences of neighbours are correlated among themselves, so that of n only n / 1.5 count.
    """
    expected = 1 / math.sqrt(max(1.0, ranks.shape[1] / 1.5 - 3))
    some = ranks[:: len(ranks) // _SAMPLE + 1]
    pairs = (some @ some.T)[np.triu_indices(len(some), 1)]
    seen = np.median(np.arctanh(np.minimum(np.abs(pairs), 0.9999)))
    return max(expected, float(seen) / _USUAL)
