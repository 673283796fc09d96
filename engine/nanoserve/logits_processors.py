"""What changes logits before a token is chosen from them, for the whole batch at once.

::

    penalties -> bias -> temperature -> top_k -> top_p -> min_p -> draw

- *Penalties first*: they are defined on the logits that the model gives. The repetition penalty
  comes before the other two because it multiplies: it must see the model's own sign and size.
- *Bias after penalties*, so that a bias is worth what it says. Before them, the repetition penalty
  would scale it, and turn a ban into a lesser one or a worse one by its sign.
- *Temperature before the cuts*: ``top_p`` and ``min_p`` are probabilities, of the distribution
  that is drawn from.
- *top_k, top_p, min_p*: each acts on what the one before has left, renormalised; ``min_p`` is a
  ratio to the most likely token, which no cut removes. Hugging Face's order.

A greedy row needs only the first two, since the rest never changes which logit is the highest.

Every operation works on rows by themselves. Tokens are cut by masking them where they stand, never
by reordering, and a row that does not want a cut is masked nowhere, so whether a neighbour wants
one makes no difference.
"""

import math
from array import array
from collections.abc import Sequence

import torch

from nanoserve.logit_adjustment import LARGE, SMALL, LogitAdjustment
from nanoserve.sampling_params import SamplingParams


def adjust(logits: torch.Tensor, adjustments: Sequence[LogitAdjustment | None]) -> None:
    """Apply penalties and bias.

    Args:
        logits: ``[rows, vocab_size]``, float32; changed in place.
        adjustments: Each row's; None leaves it as it is.
    """
    rows = [(row, each) for row, each in enumerate(adjustments) if each is not None]
    if any(each.seen for _, each in rows):
        _penalise(logits, rows)
    if any(each.biased for _, each in rows):
        index, ids = _places(logits, [(row, each.biased) for row, each in rows])
        bias = array("f")
        for _, each in rows:
            bias.extend(each.bias)
        logits[index, ids] += _tensor(bias, torch.float32, logits.device)


def _penalise(logits: torch.Tensor, rows: Sequence[tuple[int, LogitAdjustment]]) -> None:
    device = logits.device
    index, ids = _places(logits, [(row, each.seen) for row, each in rows])
    counts = array("i")
    for _, each in rows:
        counts.extend(each.counts)
    count = _tensor(counts, torch.int32, device).float()
    lengths = torch.tensor([len(each.seen) for _, each in rows], device=device)
    settings = torch.tensor(
        [(each.repetition, each.presence, each.frequency) for _, each in rows],
        device=device,
        dtype=torch.float32,
    )
    repetition, presence, frequency = settings.repeat_interleave(lengths, dim=0).unbind(1)
    values = logits[index, ids]
    values = torch.where(values < 0, values * repetition, values / repetition)
    logits[index, ids] = values - frequency * count - presence * (count > 0)


def _places(
    logits: torch.Tensor, rows: "Sequence[tuple[int, array[int]]]"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and id of every logit that is touched, each ``[places]``; no place comes twice."""
    ids, device = array("q"), logits.device
    for _, some in rows:
        ids.extend(some)
    lengths = torch.tensor([len(some) for _, some in rows], device=device)
    index = torch.tensor([row for row, _ in rows], device=device).repeat_interleave(lengths)
    return index, _tensor(ids, torch.int64, device)


def _tensor(
    values: "array[int] | array[float]", dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    return torch.frombuffer(values, dtype=dtype).to(device)


def warp(logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Apply temperature, ``top_k``, ``top_p`` and ``min_p``.

    Args:
        logits: ``[rows, vocab_size]``, float32.
        params: Each row's; none has a temperature of 0.

    Returns:
        Logits of the distribution to draw from, 0 at the most likely token and -inf where it was
        cut, ``[rows, vocab_size]``.
    """

    def column(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, device=logits.device, dtype=torch.float32)[:, None]

    temperatures = column([min(max(p.temperature, SMALL), LARGE) for p in params])
    scaled = (logits - logits.amax(dim=-1, keepdim=True)) / temperatures
    if any(p.top_k for p in params):
        scaled = keep_top_k(scaled, [p.top_k for p in params])
    if any(p.top_p < 1 for p in params):
        scaled = keep_top_p(scaled, column([p.top_p for p in params]))
    if any(p.min_p > 0 for p in params):
        # The most likely token's logit is 0: probabilities relative to it are exponentials.
        least = column([math.log(p.min_p) if p.min_p else -math.inf for p in params])
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    return scaled


def keep_top_k(logits: torch.Tensor, top_k: Sequence[int]) -> torch.Tensor:
    """Mask what is below each row's k-th highest logit; 0 masks nothing."""
    vocab = logits.shape[-1]
    kept = [min(k, vocab) if k else vocab for k in top_k]
    largest = max((k for k, asked in zip(kept, top_k, strict=True) if asked), default=1)
    highest = logits.topk(largest, dim=-1).values
    kth = torch.tensor([min(k, largest) - 1 for k in kept], device=logits.device)
    threshold = highest.gather(1, kth[:, None])
    unlimited = torch.tensor([not asked for asked in top_k], device=logits.device)
    return logits.masked_fill((logits < threshold) & ~unlimited[:, None], -torch.inf)


def keep_top_p(logits: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Mask all but the most likely tokens whose mass first reaches ``top_p``; 1 masks nothing.

    Args:
        logits: ``[rows, vocab_size]``.
        top_p: ``[rows, 1]``.
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ordered.softmax(dim=-1)
    mass_before = mass.cumsum(dim=-1) - mass
    surplus = (mass_before >= top_p) & (top_p < 1)
    surplus[:, 0] = False  # the most likely token stays, however little it weighs
    return logits.masked_fill(surplus.scatter(1, order, surplus), -torch.inf)
