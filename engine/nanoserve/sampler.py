"""Logits to tokens, for the whole batch at once.

Greedy rows take the highest logit, the lowest id in a tie. The others are cut down to their
``top_k`` and ``top_p``, and one uniform number picks a token from the distribution that is left
(inverse transform: the first id whose cumulative probability exceeds it). That number is a hash
of (seed, position), not the state of a generator, so a request draws the same tokens alone, in
company, and when it is computed again after preemption.

Every operation works on rows by themselves. Tokens are cut by masking them where they stand,
never by reordering, so whether a neighbour wants a cut makes no difference to a row's draw.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence

import torch

from nanoserve.request import Request

Highest = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing else; 53 bits of a hash."""
    key = struct.pack("<QQ", seed, position)
    bits = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    return (bits >> 11) * 2.0**-53


def highest(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The greedy choice.

    Args:
        logits: ``[rows, vocab_size]``.

    Returns:
        The lowest id of each row's highest logit, and that logit; NaN if the row holds one. Both
        are ``[rows]``.
    """
    tokens = logits.argmax(dim=-1)  # torch takes a NaN for the maximum
    return tokens, logits.gather(1, tokens[:, None]).squeeze(1)


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
    tokens, peaks = highest(logits)
    drawn = [row for row, request in enumerate(requests) if not request.params.greedy]
    if drawn:
        tokens[drawn] = _draw(logits[drawn], [requests[row] for row in drawn])
    finite = peaks.isfinite().tolist()
    return [token if ok else None for token, ok in zip(tokens.tolist(), finite, strict=True)]


def _draw(logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
    """Token ids drawn from each row, ``[rows]``."""
    device = logits.device
    params = [request.params for request in requests]
    # Beyond these bounds float32 has no room, and the distribution no longer changes.
    temperatures = torch.tensor(
        [min(max(p.temperature, 1e-30), 1e30) for p in params],
        device=device,
        dtype=torch.float32,
    )
    scaled = (logits - logits.amax(dim=-1, keepdim=True)) / temperatures[:, None]
    if any(p.top_k for p in params):
        scaled = _keep_top_k(scaled, [p.top_k for p in params])
    if any(p.top_p < 1 for p in params):
        top_p = torch.tensor([p.top_p for p in params], device=device, dtype=torch.float32)
        scaled = _keep_top_p(scaled, top_p)

    wide = torch.float32 if device.type == "mps" else torch.float64  # mps has no float64
    cumulative = scaled.softmax(dim=-1).to(wide).cumsum(dim=-1)
    draws = [uniform(request.seed, len(request.token_ids)) for request in requests]
    total = cumulative[:, -1:]
    target = torch.tensor(draws, device=device, dtype=wide)[:, None] * total
    # Rounding may lift the target onto the total, beyond which there is no token.
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)


def _keep_top_k(logits: torch.Tensor, top_k: Sequence[int]) -> torch.Tensor:
    """Mask what is below each row's k-th highest logit; 0 masks nothing."""
    vocab = logits.shape[-1]
    kept = [min(k, vocab) if k else vocab for k in top_k]
    largest = max((k for k, asked in zip(kept, top_k, strict=True) if asked), default=1)
    highest = logits.topk(largest, dim=-1).values
    kth = torch.tensor([min(k, largest) - 1 for k in kept], device=logits.device)
    threshold = highest.gather(1, kth[:, None])
    unlimited = torch.tensor([not asked for asked in top_k], device=logits.device)
    return logits.masked_fill((logits < threshold) & ~unlimited[:, None], -torch.inf)


def _keep_top_p(logits: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Mask all but the most likely tokens whose mass first reaches ``top_p``; 1 masks nothing."""
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ordered.softmax(dim=-1)
    mass_before = mass.cumsum(dim=-1) - mass
    surplus = (mass_before >= top_p[:, None]) & (top_p < 1)[:, None]
    surplus[:, 0] = False  # the most likely token stays, however little it weighs
    return logits.masked_fill(surplus.scatter(1, order, surplus), -torch.inf)
