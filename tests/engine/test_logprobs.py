"""Log-probabilities are those of the model itself, whatever was done before a token was chosen."""

from __future__ import annotations

import torch

from nanoserve.logprobs import logprobs


def random_logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, 200, generator=torch.Generator().manual_seed(1)) * 4


def test_they_are_the_log_softmax_of_the_logits():
    logits = random_logits(3)
    wanted = logits.log_softmax(-1)
    for row, told in enumerate(logprobs(logits, [17, 3, 199], [5, 0, 20])):
        assert told is not None
        token = (17, 3, 199)[row]
        assert told.sampled.token_id == token
        assert told.sampled.logprob == wanted[row, token].item()
        values, ids = wanted[row].topk((5, 0, 20)[row])
        assert [each.token_id for each in told.top] == ids.tolist()
        assert [each.logprob for each in told.top] == values.tolist()


def test_rows_that_ask_for_none_or_have_no_token_get_none():
    logits = random_logits(4)
    logits[1] = float("nan")
    told = logprobs(logits, [4, None, 6, 7], [None, 3, 2, None])
    assert [each is None for each in told] == [True, True, False, True]
    assert logprobs(logits[:1], [4], [None]) == [None]
    assert logprobs(logits[:0], [], []) == []


def test_in_a_tie_the_lowest_ids_are_told():
    logits = torch.zeros(2, 300)
    logits[0, [250, 40, 90]] = 1.0
    told = logprobs(logits, [40, 0], [5, 3])
    assert told[0] is not None
    assert told[1] is not None
    assert [each.token_id for each in told[0].top] == [40, 90, 250, 0, 1]
    assert [each.token_id for each in told[1].top] == [0, 1, 2]


def test_no_more_are_told_than_there_are_tokens():
    (told,) = logprobs(torch.zeros(1, 4), [2], [20])
    assert told is not None
    assert [each.token_id for each in told.top] == [0, 1, 2, 3]


def test_a_row_is_told_the_same_in_any_company():
    logits = random_logits(6)
    together = logprobs(logits, list(range(6)), [0, 3, None, 20, 1, 7])
    for row in (0, 1, 3, 4, 5):
        wanted = (0, 3, None, 20, 1, 7)[row]
        assert logprobs(logits[row : row + 1], [row], [wanted]) == [together[row]]


def test_an_impossible_token_has_the_logarithm_of_zero():
    logits = torch.tensor([[0.0, -torch.inf, 0.0]])
    (told,) = logprobs(logits, [0], [3])
    assert told is not None
    assert [(each.token_id, each.logprob) for each in told.top][2] == (1, -torch.inf)
