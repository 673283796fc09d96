"""Whose noise agrees with whose: the spans of trials drawn here, and copies of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nanoserve_bench.soundness.likeness import (
    LEAST_SPANS,
    MOST_SPANS,
    Floats,
    _above,
    _least_chance,
    _ranks,
    copies,
    shared_ranks,
    shares_of,
    spans_of,
    usual,
)


def drawn(count: int, seed: int = 0) -> list[Floats]:
    """Trials of 60 spans with noise of their own."""
    return list(np.random.default_rng(seed).normal(1.0, 0.02, (count, 60)))


def shaken(spans: Floats, seed: int = 99) -> Floats:
    """The spans with a twentieth of their noise added."""
    moved: Floats = spans + np.random.default_rng(seed).normal(0.0, 0.001, len(spans))
    return moved


def found(trials: list[Floats], cells: str, things: str | None = None) -> list[tuple[int, int]]:
    """The pairs of trials that are alike; a letter for the cell, and for the thing, of each."""
    return [(one.earlier, one.later) for one in copies(trials, [*cells], [*(things or cells)])]


@pytest.mark.parametrize(
    ("tokens", "rows", "expected"),
    [
        (range(LEAST_SPANS), 1, None),
        (range(LEAST_SPANS + 1), 1, [1.0] * LEAST_SPANS),
        (range(LEAST_SPANS, -1, -1), 1, [1.0] * LEAST_SPANS),
        (range(2 * LEAST_SPANS + 1), 2, [1.0] * LEAST_SPANS),
        (range(2 * LEAST_SPANS), 2, None),
        (range(MOST_SPANS + 2), 1, [1.0] * MOST_SPANS),
        ([5] * 20, 1, None),
        ([0] * LEAST_SPANS + [1], 1, [0.0] * (LEAST_SPANS - 1) + [float(LEAST_SPANS)]),
        ([], 1, None),
    ],
)
def test_spans_are_shares_of_their_mean(
    tokens: list[int], rows: int, expected: list[float] | None
) -> None:
    spans = shares_of(spans_of(np.array(tokens, np.int64), rows))
    assert (None if spans is None else spans.tolist()) == expected


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    values = np.array([[3.0, 1.0, 3.0, 2.0], [1.0, 1.0, 1.0, 5.0], [4.0, 3.0, 0.0, 0.0]])
    assert shared_ranks(values).tolist() == [
        [2.5, 0.0, 2.5, 1.0],
        [1.0, 1.0, 1.0, 3.0],
        [3.0, 2.0, 0.5, 0.5],
    ]


@pytest.mark.parametrize(
    ("count", "places", "alike", "expected"),
    [
        (3, 45, 0, 1 / math.sqrt(45 / 1.5 - 3)),
        (3, 4, 0, 1.0),
        (3, 45, 1, math.atanh(0.9999) / 0.6745),
        (399, 45, 2, 1 / math.sqrt(45 / 1.5 - 3)),
        (400, 45, 2, math.atanh(0.9999) / 0.6745),
        (799, 45, 2, math.atanh(0.9999) / 0.6745),
        (800, 45, 3, math.atanh(0.9999) / 0.6745),
    ],
)
def test_the_usual_agreement_is_that_of_chance_or_what_is_seen(
    count: int, places: int, alike: int, expected: float
) -> None:
    """Of many trials a sample is seen; here each `alike`-th is the same, and others say nothing."""
    ranks = np.zeros((count, places), np.float32)
    if alike:
        ranks[::alike, 0] = 1
    assert usual(ranks) == pytest.approx(expected, rel=1e-4)


def test_a_copy_is_alike_and_nothing_else_is() -> None:
    trials = drawn(5)
    assert found(trials, "aaaaa") == []
    assert found([*trials, shaken(trials[0])], "aaaaaa") == [(0, 5)]
    assert found([*trials[:3], trials[0]], "aaaa") == [(0, 3)]
    assert found([*trials[:2], trials[0]], "aaa") == [], "of three the usual span is not known"


def test_every_pair_among_many_trials_is_found_once() -> None:
    trials = drawn(1_100)
    trials[1_099] = shaken(trials[3], 1)
    trials[1_000] = shaken(trials[600], 2)
    assert found(trials, "a" * 1_100) == [(3, 1_099), (600, 1_000)]


def test_a_shape_that_all_trials_of_a_cell_have_is_no_likeness() -> None:
    shape = 1 + np.arange(60) % 7 / 10
    assert found([spans * shape for spans in drawn(6)], "aaaaaa") == []


def test_a_cell_that_is_one_run_is_held_against_its_twin() -> None:
    """Its usual span is that run's, so that only the twin's leaves its noise to be seen."""
    own = drawn(4)
    copied = [shaken(drawn(1, 5)[0], seed) for seed in range(4)]
    pairs = [(4, 5), (4, 6), (4, 7), (5, 6), (5, 7), (6, 7)]
    assert found([*own, *copied], "aaaabbbb") == []
    assert found([*own, *copied], "aaaabbbb", "tttttttt") == pairs
    first = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert found([*copied, *own], "aaaabbbb", "tttttttt") == first
    assert found([*own[1:], *copied], "aaabbbb", "ttttttt") == []


def test_a_trial_without_noise_is_like_no_other() -> None:
    still = np.ones(60)
    with np.errstate(all="raise"):
        assert found([*drawn(5), still], "aaaaab") == []


def test_two_values_in_a_row_are_ranked_as_well() -> None:
    ranks = _ranks(np.array([[1.0, 2.0], [2.0, 2.0]]))
    assert ranks.dtype == np.float32, "as many again would not fit beside one another"
    assert ranks == pytest.approx(np.array([[-math.sqrt(0.5), math.sqrt(0.5)], [0.0, 0.0]]))


def test_pairs_agree_by_more_than_the_least() -> None:
    ranks = np.array([[1.0, 0.0], [0.5, 0.0]], np.float32)
    assert list(_above(ranks, 0.5)) == []
    assert list(_above(ranks, 0.49)) == [(0, 1, 0.5)]
    assert list(_above(ranks[[0, 0]], 1 - 1e-6)) == [(0, 1, 1.0)]


@pytest.mark.parametrize(
    ("hits", "expected"),
    [
        ([], (0, 1.0)),
        ([(1.0, 0, 0)], (0, 1.0)),
        ([(1.5, 0, 0)], (0, 1.0)),
        ([(0.25, 0, 0)], (1, 0.25)),
        ([(0.5, 1, 1), (0.25, 0, 0)], (2, 0.125)),
        ([(0.25, 0, 0), (0.5, 0, 1)], (1, 0.25)),
        ([(0.25, 0, 0), (0.5, 1, 0)], (1, 0.25)),
        ([(0.25, 0, 0), (0.5, 0, 1), (0.5, 1, 1)], (2, 0.125)),
    ],
)
def test_each_part_counts_once_and_the_most_surprising_number_of_them(
    hits: list[tuple[float, int, int]], expected: tuple[int, float]
) -> None:
    assert _least_chance(hits) == expected
