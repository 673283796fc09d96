"""Logits to tokens, for the whole batch at once.

Greedy rows take the highest logit, the lowest id in a tie. From the others' distribution, once
``logits_processors`` has shaped it, one uniform number picks a token (inverse transform: the first
id whose cumulative probability exceeds it). That number is a hash of (seed, position), not the
state of a generator, so a request draws the same tokens alone, in company, and when it is computed
again after preemption.

A batch of plain greedy rows is one pass over the logits, and they are never written to: rows that
ask for more are copied out first.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence

import torch

from nanoserve.logits_processors import adjust, warp
from nanoserve.request import Request

Highest = Callable[[torch.Tensor], list[int | None]]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing else; 53 bits of a hash."""
    key = struct.pack("<QQ", seed, position)
    bits = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    return (bits >> 11) * 2.0**-53


def highest(logits: torch.Tensor) -> list[int | None]:
    """The greedy choice.

    Args:
        logits: ``[rows, vocab_size]``.

    Returns:
        The lowest id of each row's highest logit; None where that is no finite number, or the row
        holds a NaN.
    """
    tokens = logits.argmax(dim=-1)  # torch takes a NaN for the maximum
    peaks = logits.gather(1, tokens[:, None]).squeeze(1)
    # One copy from the device: it is what the host waits for.
    chosen = torch.where(peaks.isfinite(), tokens, -1).tolist()
    return [token if token >= 0 else None for token in chosen]


def sample(
    logits: torch.Tensor, requests: Sequence[Request], highest: Highest = highest
) -> list[int | None]:
    """One token for each row.

    Args:
        logits: ``[rows, vocab_size]``, any float dtype.
        requests: Whose rows they are.
        highest: Makes the greedy choice.

    Returns:
        Token ids; None for a row whose logits are not finite numbers, from which no token can be
        chosen.
    """
    logits = logits.float()
    special = [
        row
        for row, request in enumerate(requests)
        if request.adjustment is not None or not request.params.greedy
    ]
    if not special:
        return highest(logits)
    # Asked for before the host waits for the greedy ones.
    chosen = _choose(logits[special], [requests[row] for row in special])
    tokens = highest(logits)
    for row, token in zip(special, chosen.tolist(), strict=True):
        if tokens[row] is not None:
            tokens[row] = token
    return tokens


def _choose(logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
    """A token of each row, ``[rows]``, by everything that its request asks for."""
    adjust(logits, [request.adjustment for request in requests])
    tokens = logits.argmax(dim=-1)
    drawn = [row for row, request in enumerate(requests) if not request.params.greedy]
    if drawn:
        tokens[drawn] = _draw(logits[drawn], [requests[row] for row in drawn])
    return tokens


def _draw(logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
    """Token ids drawn from each row, ``[rows]``."""
    device = logits.device
    wide = torch.float32 if device.type == "mps" else torch.float64  # mps has no float64
    probabilities = warp(logits, [request.params for request in requests]).softmax(dim=-1)
    cumulative = probabilities.to(wide).cumsum(dim=-1)
    draws = [uniform(request.seed, len(request.token_ids)) for request in requests]
    total = cumulative[:, -1:]
    target = torch.tensor(draws, device=device, dtype=wide)[:, None] * total
    # Rounding may lift the target onto the total, beyond which there is no token.
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)
