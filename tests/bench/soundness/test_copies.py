"""What copies of trials are told from chance by: spans in a row, and the noise of parts."""

from __future__ import annotations

import numpy as np
import pytest

from nanoserve_bench.soundness.likeness import part_length, partial_copies
from nanoserve_bench.soundness.repeats import MOST_ALIKE, Repeat, alike, repeats

LENGTH = 16
PARTS = 8


def _spans(count: int, seed: int, unit_ns: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spans = 60e6 * (1 + 0.01 * rng.standard_normal(count))
    return np.round(spans / unit_ns).astype(np.int64) * unit_ns


def _trials(count: int, unit_ns: int = 1) -> list[np.ndarray]:
    return [_spans(LENGTH * PARTS - 1, seed, unit_ns) for seed in range(count)]


def test_spans_in_a_row_are_found_wherever_they_stand() -> None:
    trials = _trials(6)
    trials[4][100:105] = trials[1][10:15]
    assert list(repeats(trials)) == [Repeat(1, 4, 4, 2)]


def test_a_trial_may_repeat_itself() -> None:
    trials = _trials(3)
    trials[2][60:70] = trials[2][20:30]
    ((earlier, later, _, _),) = repeats(trials)
    assert (earlier, later) == (2, 2)


def test_a_few_equal_spans_are_chance() -> None:
    trials = _trials(6)
    trials[4][100:103] = trials[1][10:13]
    assert list(repeats(trials)) == []


def test_the_coarser_the_clock_the_more_spans_in_a_row_it_takes() -> None:
    trials = _trials(8, unit_ns=10_000)
    trials[4][100:104] = trials[1][10:14]
    assert max(map(alike, trials)) > 1e-3
    assert list(repeats(trials)) == []
    trials[4][100:108] = trials[1][10:18]
    assert [(found.earlier, found.later) for found in repeats(trials)] == [(1, 4)]


@pytest.mark.parametrize("unit_ns", [1_000_000, 60_000_000])
def test_a_clock_that_tells_no_spans_apart_is_not_judged(unit_ns: int) -> None:
    trials = [_spans(127, 1, unit_ns) for _ in range(4)]
    assert alike(trials[0]) > MOST_ALIKE
    assert list(repeats(trials)) == []


def test_nothing_is_nothing() -> None:
    assert list(repeats([])) == list(repeats([np.zeros(0, np.int64)])) == []


def _parts(
    where: dict[int, int], *, shake: float, alike: bool = True, trials: int = 8
) -> list[tuple[int, int]]:
    """Pairs that are found when parts of trial 5 are those of trial 1, shaken, by their places."""
    noise = [spans / spans.mean() for spans in _trials(trials)]
    rng = np.random.default_rng(99)
    for target, source in where.items():
        part = noise[1][source * LENGTH :][: LENGTH - 1]
        shaken = part * (1 + shake * rng.standard_normal(len(part)))
        noise[5][target * LENGTH :][: LENGTH - 1] = shaken
    found = partial_copies(noise, ["one"] * trials, LENGTH, alike=alike)
    return [(likeness.earlier, likeness.later) for likeness in found]


@pytest.mark.parametrize("shake", [0.0005, 0.001])
def test_half_of_a_trial_is_seen_until_it_is_shaken_too_much(shake: float) -> None:
    assert _parts({0: 0, 1: 1, 2: 2, 3: 3}, shake=shake) == [(1, 5)]


def test_noise_of_its_own_hides_a_copy() -> None:
    assert _parts({0: 0, 1: 1, 2: 2, 3: 3}, shake=0.02) == []


def test_parts_may_have_changed_places_where_all_are_alike() -> None:
    moved = {0: 4, 1: 5, 2: 6, 3: 7}
    assert _parts(moved, shake=0.001) == [(1, 5)]
    assert _parts(moved, shake=0.001, alike=False) == []


def test_of_three_trials_the_usual_span_is_not_known() -> None:
    noise = [_trials(1)[0] / 60e6] * 3
    assert list(partial_copies(noise, ["one"] * 3, LENGTH, alike=True)) == []


@pytest.mark.parametrize("seed", range(3))
def test_trials_of_their_own_are_no_copies(seed: int) -> None:
    noise = [_spans(511, 100 * seed + n) / 60e6 for n in range(20)]
    assert list(partial_copies(noise, ["one"] * 20, LENGTH, alike=True)) == []


@pytest.mark.parametrize(
    ("tokens", "length"),
    [(1, 14), (4, 16), (5, 15), (13, 26), (14, 14), (16, 16), (64, 16), (100, 20), (31, 28)],
)
def test_a_part_begins_and_ends_with_requests_where_it_can(tokens: int, length: int) -> None:
    assert part_length(tokens) == length
