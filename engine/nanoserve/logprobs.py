"""Log-probabilities of generated tokens and of their likeliest alternatives.

They are taken from the model's own distribution, ``log_softmax`` of the logits as they come out of
the model: before penalties, bias, temperature and cuts. So they say what the model thought, are
the same for every way of choosing, and can be set against another system's.
"""

from collections.abc import Sequence

import torch

from nanoserve.token_logprobs import Logprob, TokenLogprobs


def logprobs(
    logits: torch.Tensor, tokens: Sequence[int | None], wanted: Sequence[int | None]
) -> list[TokenLogprobs | None]:
    """Log-probabilities of each row that wants them.

    Args:
        logits: ``[rows, vocab_size]``, any float dtype, as the model gave them.
        tokens: What was generated; None for a row whose logits are not finite numbers.
        wanted: How many alternatives each row asked for; None for no log-probabilities at all.

    Returns:
        One for each row, None where none is wanted or there is no token.
    """
    found: list[TokenLogprobs | None] = [None] * len(tokens)
    asked = [
        (row, token, most)
        for row, (token, most) in enumerate(zip(tokens, wanted, strict=True))
        if token is not None and most is not None
    ]
    if not asked:
        return found
    values = logits[[row for row, _, _ in asked]].float().log_softmax(dim=-1)
    chosen = torch.tensor([[token] for _, token, _ in asked], device=values.device)
    own = values.gather(1, chosen).squeeze(1).tolist()
    ids, top = _top(values, min(max(most for _, _, most in asked), values.shape[-1]))
    for place, (row, token, most) in enumerate(asked):
        best = zip(ids[place][:most], top[place][:most], strict=True)
        found[row] = TokenLogprobs(
            sampled=Logprob(token_id=token, logprob=own[place]),
            top=tuple(Logprob(token_id=each, logprob=value) for each, value in best),
        )
    return found


def _top(values: torch.Tensor, most: int) -> tuple[list[list[int]], list[list[float]]]:
    """Ids and values of each row's highest, the lowest ids of a tie; ``topk`` takes any of them."""
    if most == 0:
        return [[]] * len(values), [[]] * len(values)
    least = values.topk(most, dim=-1).values[:, -1:]
    above, level = values > least, values == least
    room = most - above.sum(dim=-1, keepdim=True)
    kept = above | (level & (level.cumsum(dim=-1) <= room))
    ids = kept.nonzero()[:, 1].view(-1, most)  # exactly that many in each row, ascending
    top, order = values.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    return ids.gather(1, order).tolist(), top.tolist()
