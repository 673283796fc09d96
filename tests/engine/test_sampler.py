"""Tokens from logits: exact cuts, honest draws, and no influence of the neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanoserve import SamplingParams
from nanoserve.logit_adjustment import LogitAdjustment
from nanoserve.sampler import highest, sample, uniform


def asks(position: int = 0, seed: int = 0, output: Sequence[int] = (), **wanted: Any) -> Any:
    """As much of a request as the sampler looks at."""
    params = SamplingParams(**wanted)
    adjustment = LogitAdjustment(params, []) if params.adjusts else None
    for token in output:
        if adjustment is not None:
            adjustment.count(token)
    return SimpleNamespace(
        params=params, seed=seed, token_ids=range(position), adjustment=adjustment
    )


def support(logits: list[float], draws: int = 400, **params: Any) -> set[int]:
    """The tokens that are ever drawn."""
    requests = [asks(position=position, **params) for position in range(draws)]
    return {t for t in sample(torch.tensor([logits] * draws), requests) if t is not None}


def test_greedy_takes_the_highest_logit_and_the_lowest_id_in_a_tie():
    logits = torch.tensor([[0.0, 3.0, 3.0, -1.0], [5.0, 5.0, 5.0, 5.0], [0.0, 1.0, 2.0, 3.0]])
    assert sample(logits, [asks(), asks(), asks()]) == [1, 0, 3]


def test_greedy_breaks_ties_downwards_in_a_large_vocabulary():
    logits = torch.zeros(1, 49_152)
    logits[0, [40_000, 17, 30_000]] = 9.0
    assert sample(logits, [asks()]) == [17]


def test_top_k_keeps_k_tokens_and_whatever_ties_with_the_last():
    assert support([0.0, 1.0, 2.0, 3.0], temperature=5.0, top_k=2) == {2, 3}
    assert support([2.0, 1.0, 2.0, 3.0], temperature=5.0, top_k=2) == {0, 2, 3}
    assert support([0.0, 1.0, 2.0, 3.0], temperature=5.0, top_k=99) == {0, 1, 2, 3}
    assert support([0.0, 1.0, 2.0, 3.0], temperature=5.0, top_k=0) == {0, 1, 2, 3}


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().tolist()
    assert support(logits, temperature=1.0, top_p=0.5) == {0}
    assert support(logits, temperature=1.0, top_p=0.51) == {0, 1}
    assert support(logits, temperature=1.0, top_p=0.79) == {0, 1}
    assert support(logits, temperature=1.0, top_p=0.94) == {0, 1, 2}
    assert support(logits, temperature=1.0, top_p=1.0) == {0, 1, 2, 3}
    assert support(logits, temperature=1.0, top_p=1e-9) == {0}


def test_top_p_keeps_the_most_likely_token_however_little_it_asks_for():
    """In float32 this top_p is 0."""
    assert support([0.0, 1.0, 2.0, 1.0], temperature=1.0, top_p=1e-60) == {2}


def test_top_p_keeps_the_lower_ids_of_a_tie():
    assert support([1.0] * 6, temperature=1.0, top_p=0.5) == {0, 1, 2}


def test_a_row_that_wants_all_tokens_keeps_the_rarest_beside_one_with_a_cut(
    monkeypatch: pytest.MonkeyPatch,
):
    """The likeliest token weighs 1 in float32, and yet it is not all there is."""
    monkeypatch.setattr("nanoserve.sampler.uniform", lambda seed, position: 1 - 2.0**-53)
    logits = torch.tensor([[20.0, 0.0, 0.0]]).expand(2, -1)
    plain, cut = asks(temperature=1.0), asks(temperature=1.0, top_p=0.5)
    assert sample(logits, [plain, cut]) == [2, 0]


def test_top_p_acts_on_what_top_k_left():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().tolist()
    assert support(logits, temperature=1.0, top_p=0.5) == {0, 1}
    assert support(logits, temperature=1.0, top_p=0.5, top_k=2) == {0}


def test_draws_follow_the_softmax_at_the_temperature():
    """Chi-squared over 20,000 draws: 24.3 is the 99.9 % point of 7 degrees, and nothing is random.

    The draws are hashes of fixed seeds and positions, so this either always or never holds.
    """
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 1.5, 0.3])
    temperature, draws = 1.7, 20_000
    requests = [asks(position=p, seed=7, temperature=temperature) for p in range(draws)]
    counts = Counter(sample(logits.expand(draws, -1), requests))
    expected = (logits / temperature).softmax(0) * draws
    chi_squared = sum((counts[i] - e) ** 2 / e for i, e in enumerate(expected.tolist()))
    assert chi_squared < 24.3


def test_a_draw_depends_on_seed_and_position_alone():
    torch.manual_seed(0)
    logits = torch.randn(6, 500) * 2
    params = {"temperature": 1.0, "top_k": 50, "top_p": 0.9}
    mine = asks(position=11, seed=3, **params)
    (alone,) = sample(logits[:1], [mine])
    others = [
        asks(position=4),
        asks(position=11, seed=3, temperature=0.5),
        asks(position=9, seed=8, temperature=1.0, top_k=7),
        asks(position=9, seed=9, temperature=1.0, top_p=0.3),
        asks(position=2, seed=1, temperature=9.0),
    ]
    for where in range(6):
        requests = [*others[:where], mine, *others[where:]]
        rows = torch.cat([logits[1 : where + 1], logits[:1], logits[where + 1 :]])
        assert sample(rows, requests)[where] == alone


def test_a_row_without_cuts_draws_the_same_beside_one_with_cuts():
    torch.manual_seed(1)
    logits = torch.randn(2, 300)
    for position in range(50):
        plain = asks(position=position, seed=5, temperature=1.0)
        cut = asks(position=position, seed=6, temperature=1.0, top_k=3, top_p=0.5)
        assert sample(logits, [plain, cut])[0] == sample(logits[:1], [plain])[0]


def test_seeds_and_positions_give_different_draws():
    logits = torch.zeros(64, 10_000)
    by_position = sample(logits, [asks(position=p, temperature=1.0) for p in range(64)])
    by_seed = sample(logits, [asks(seed=s, temperature=1.0) for s in range(64)])
    assert len(set(by_position)) > 60
    assert len(set(by_seed)) > 60


def test_the_uniform_number_is_one():
    numbers = [uniform(seed, position) for seed in (0, 1, 2**64 - 1) for position in range(3000)]
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.02
    assert max(numbers) > 0.999
    assert min(numbers) < 0.001


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_unit_interval_never_draw_an_impossible_token(
    number: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("nanoserve.sampler.uniform", lambda seed, position: number)
    logits = torch.full((1, 1000), -torch.inf)
    logits[0, 300:600] = torch.linspace(-1, 1, 300)
    (token,) = sample(logits, [asks(temperature=1.0)])
    assert token == (300 if number == 0 else 599)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_no_numbers_give_no_token_to_that_row_alone(bad: float, temperature: float):
    logits = torch.zeros(3, 10)
    logits[:, 4] = 1.0
    logits[1] = bad
    tokens = sample(logits, [asks(), asks(temperature=temperature, top_k=3, top_p=0.9), asks()])
    assert tokens == [4, None, 4]


def test_one_nan_among_good_logits_is_found():
    logits = torch.zeros(1, 10)
    logits[0, 7] = float("nan")
    assert sample(logits, [asks()]) == [None]


@pytest.mark.parametrize("temperature", [1e-6, 1e-40, 5e-324])
def test_a_tiny_temperature_is_greedy_and_finite(temperature: float):
    logits = torch.tensor([[0.0, 80.0, 79.0]])
    assert sample(logits, [asks(temperature=temperature)]) == [1]


def test_a_huge_temperature_is_uniform():
    assert support([0.0, 80.0, 79.0, -5.0], temperature=1e300) == {0, 1, 2, 3}


def test_plain_greedy_rows_are_chosen_in_one_pass_that_writes_nothing():
    calls = []

    def counted(logits: torch.Tensor) -> list[int | None]:
        calls.append(logits)
        return highest(logits)

    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(2))
    before = logits.clone()
    plain = [asks(top_p=0.5), asks(top_k=1, temperature=2.0), asks(min_p=0.3), asks(logprobs=3)]
    tokens = sample(logits[:4], plain, counted)
    assert tokens == before[:4].argmax(-1).tolist()
    assert [each.data_ptr() for each in calls] == [logits.data_ptr()]
    banned = asks(logit_bias={int(before[4].argmax()): -100})
    drawn = asks(temperature=1.0, repetition_penalty=3.0, output=[1, 2])
    sample(logits, [*plain[:3], drawn, banned], counted)
    assert torch.equal(logits, before), "the backend's logits are not the sampler's to change"


def test_rows_of_every_kind_in_one_batch_get_what_they_get_alone():
    logits = torch.randn(7, 400, generator=torch.Generator().manual_seed(3)) * 2
    best = logits.argmax(-1).tolist()
    requests = [
        asks(),
        asks(temperature=1.0, seed=4, position=9),
        asks(logit_bias={best[2]: -100.0}),
        asks(presence_penalty=2.0, frequency_penalty=2.0, output=[best[3]] * 3),
        asks(temperature=0.8, min_p=0.1, repetition_penalty=1.5, output=[5, best[4]], seed=6),
        asks(temperature=2.0, top_k=1, seed=8),
        asks(logprobs=2),
    ]
    tokens = sample(logits, requests)
    alone = [sample(logits[row : row + 1], [each])[0] for row, each in enumerate(requests)]
    assert tokens == alone
    assert [tokens[row] for row in (0, 5, 6)] == [best[row] for row in (0, 5, 6)]
    assert all(tokens[row] != best[row] for row in (2, 3))


def test_top_k_of_one_is_greedy_even_in_a_tie():
    logits = torch.zeros(40, 50)
    logits[:, [9, 30]] = 1.0
    requests = [asks(position=p, temperature=3.0, top_k=1) for p in range(40)]
    assert set(sample(logits, requests)) == {9}
    assert support([0.0, 1.0, 1.0], temperature=3.0, top_k=2) == {1, 2}


def test_a_greedy_row_with_penalties_takes_the_lowest_id_of_a_tie():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0]])
    assert sample(logits, [asks(presence_penalty=1.0, output=[1])]) == [1]
    assert sample(logits, [asks(presence_penalty=1.5, output=[1])]) == [2]


@pytest.mark.parametrize(
    ("cut", "kept"), [({"min_p": 0.2}, [0, 1, 3]), ({"logit_bias": {3: -100.0}}, [0, 1, 2, 4])]
)
def test_draws_follow_what_is_left_renormalised(cut: dict[str, Any], kept: list[int]):
    """Chi-squared over 8,000 draws of fixed seeds: 16.3 is the 99.9 % point of 3 degrees."""
    logits = torch.tensor([0.3, 0.2, 0.05, 0.4, 0.05]).log()
    draws = 8000
    requests = [asks(position=p, seed=11, temperature=1.0, **cut) for p in range(draws)]
    counts = Counter(sample(logits.expand(draws, -1), requests))
    assert set(counts) == set(kept)
    mass = logits.exp()[kept]
    expected = (mass / mass.sum() * draws).tolist()
    chi_squared = sum((counts[i] - e) ** 2 / e for i, e in zip(kept, expected, strict=True))
    assert chi_squared < 16.3


def test_the_same_seed_draws_the_same_in_other_company_with_everything_asked_for():
    generator = torch.Generator().manual_seed(6)
    logits = torch.randn(5, 300, generator=generator)
    everything = {
        "temperature": 0.9,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "logit_bias": {4: 2.0},
    }
    for position in range(20):
        mine = asks(position=position, seed=3, output=[7, 7, 9], **everything)
        others = [
            asks(),
            asks(seed=3, position=position, temperature=1.0, repetition_penalty=2.0, output=[1]),
            asks(logit_bias={0: 50.0}),
            asks(temperature=5.0, min_p=0.9),
        ]
        alone = sample(logits[:1], [mine])
        rows = torch.cat([logits[1:3], logits[:1], logits[3:]])
        assert sample(rows, [*others[:2], mine, *others[2:]])[2:3] == alone
