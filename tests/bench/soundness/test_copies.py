"""What copies of trials are told from chance by: spans in a row, and the noise of parts."""

from __future__ import annotations

import numpy as np
import pytest

from nanoserve_bench.soundness import likeness
from nanoserve_bench.soundness.likeness import Likeness, part_length, partial_copies
from nanoserve_bench.soundness.repeats import (
    MOST_ALIKE,
    Repeat,
    alike,
    mixed,
    repeats,
    shared,
    tells_apart,
)

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


def test_a_hundredth_of_equal_pairs_is_borne() -> None:
    spans = np.array([7, 7, 7, *range(100, 122)])
    assert alike(spans) == MOST_ALIKE
    assert tells_apart(spans)
    assert list(repeats([spans, spans])) == [Repeat(0, 1, 5, 21)]
    assert not tells_apart(np.array([7, 7, 7, *range(100, 121)]))


@pytest.mark.parametrize(
    ("spans", "share"), [([], 1.0), ([1, 2, 3], 1.0), ([1, 2, 3, 4], 0.0), ([1, 1, 2, 3], 1 / 6)]
)
def test_the_share_of_equal_pairs(spans: list[int], share: float) -> None:
    assert alike(np.array(spans, np.int64)) == share


def test_a_trial_may_be_as_short_as_a_row() -> None:
    spans = np.array([11, 12, 13, 14])
    assert list(repeats([spans, spans])) == [Repeat(0, 1, 4, 1)]


def test_a_number_is_held_against_the_first_that_has_it() -> None:
    numbers = np.array([5, 3, 3, 5, 9, 3, 5], np.uint64)
    owner = np.array([0, 0, 0, 1, 1, 2, 2])
    assert shared(numbers, owner) == {(0, 0): 1, (0, 1): 1, (0, 2): 2}
    assert shared(numbers[:0], owner[:0]) == {}


def test_rows_that_differ_in_one_bit_or_in_much_get_two_numbers() -> None:
    bits = np.concatenate([[0], 1 << np.arange(63), [-(2**63)]]).astype(np.int64)
    assert len(np.unique(mixed([bits]))) == len(bits)
    drawn = np.random.default_rng(0).integers(0, 2**62, 1 << 20)
    assert len(np.unique(mixed([drawn]))) == len(drawn)
    assert mixed([bits, bits[::-1]]).tolist() != mixed([bits[::-1], bits]).tolist()


def test_nothing_is_nothing() -> None:
    assert list(repeats([])) == list(repeats([np.zeros(0, np.int64)])) == []


def _parts(
    where: dict[int, int], *, shake: float, alike: bool = True, trials: int = 8, parts: int = PARTS
) -> list[tuple[int, int]]:
    """Pairs that are found when parts of the last trial are the second's, shaken, by places."""
    return [(one.earlier, one.later) for one in _found(where, shake, alike, trials, parts)]


def _found(
    where: dict[int, int], shake: float, alike: bool, trials: int = 8, parts: int = PARTS
) -> list[Likeness]:
    noise = [(spans / spans.mean())[: LENGTH * parts - 1] for spans in _trials(trials)]
    rng = np.random.default_rng(99)
    for target, source in where.items():
        part = noise[1][source * LENGTH :][: LENGTH - 1]
        shaken = part * (1 + shake * rng.standard_normal(len(part)))
        noise[-1][target * LENGTH :][: LENGTH - 1] = shaken
    return list(partial_copies(noise, ["one"] * trials, LENGTH, alike=alike))


@pytest.mark.parametrize("shake", [0.0005, 0.001])
def test_half_of_a_trial_is_seen_until_it_is_shaken_too_much(shake: float) -> None:
    assert _parts({0: 0, 1: 1, 2: 2, 3: 3}, shake=shake) == [(1, 7)]


def test_noise_of_its_own_hides_a_copy() -> None:
    assert _parts({0: 0, 1: 1, 2: 2, 3: 3}, shake=0.02) == []


def test_parts_may_have_changed_places_where_all_are_alike() -> None:
    moved = {0: 4, 1: 5, 2: 6, 3: 7}
    assert _parts(moved, shake=0.001) == [(1, 7)]
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


def test_the_fewest_trials_and_the_fewest_parts_are_looked_at() -> None:
    assert _parts({0: 0, 1: 1}, shake=0, trials=4) == [(1, 3)]
    assert _parts({0: 0, 1: 1}, shake=0, trials=3) == []
    assert _parts({0: 0}, shake=0, parts=2) == [(1, 7)]
    assert _parts({0: 0}, shake=0, parts=1) == []


def test_of_many_trials_the_first_parts_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "MOST_PARTS", 47)
    assert _parts({4: 4}, shake=0, alike=False) == [(1, 7)]
    assert _parts({5: 5}, shake=0, alike=False) == []


def test_parts_that_may_have_changed_places_agree_more_often_by_chance() -> None:
    (at_their_place,), (anywhere,) = _found({3: 3}, 0, False), _found({3: 3}, 0, True)
    assert at_their_place.parts == anywhere.parts == 1
    assert anywhere.agreement / at_their_place.agreement == pytest.approx(PARTS)
