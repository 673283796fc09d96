"""Divergence triage: was it a tie that rounding broke, or does a system compute something else?

The reference model reads the other side's own tokens (teacher forcing), so that every position is
judged on the prefix the other side had, and an early tie cannot hide a late bug. How large a
difference rounding alone makes is not guessed: the same sequence is read once alone and once as a
row of a left-padded batch, and the largest difference of two logits is the noise floor.
"""

from __future__ import annotations

from typing import Any

import torch

from nanoserve_bench.protocol import Divergence, Triage

NEAR_TIE, BUG = "near-tie", "bug"
_PADDING = 5


@torch.inference_mode()
def triage(model: Any, divergence: Divergence, tokenizer: Any | None = None) -> Triage:
    """Judge the first position at which two outputs of one prompt differ, and all later ones.

    A `near-tie` is a divergence where every token of the other side, from that position on, is
    within twice the noise floor of the reference's best: each of the two logits may have moved by
    the floor. Anything else is a `bug`; so is an output that merely ends earlier or later.

    Raises:
        ValueError: The outputs do not differ.
    """
    output, reference = divergence.output_ids, divergence.reference_ids
    position = next(
        (i for i, (a, b) in enumerate(zip(output, reference, strict=False)) if a != b),
        min(len(output), len(reference)),
    )
    if output == reference:
        raise ValueError("the outputs do not differ")
    logits, noise_floor = _forced(model, divergence.prompt_ids, output)
    token_id = output[position] if position < len(output) else None
    reference_id = reference[position] if position < len(reference) else None
    first = logits[position]
    best = torch.topk(first, 2).values
    later = torch.tensor(output[position + 1 :], dtype=torch.long)
    agree = logits[position + 1 : len(output)].argmax(-1) == later
    forced = torch.tensor(output[position:], dtype=torch.long)
    rows = logits[position : len(output)]
    shortfall = rows.max(-1).values - rows.gather(-1, forced[:, None])[:, 0]
    tie = token_id is not None and reference_id is not None
    tie = tie and bool((shortfall <= 2 * noise_floor).all())
    return Triage(
        position=position,
        text=_text(tokenizer, token_id),
        reference_text=_text(tokenizer, reference_id),
        logit=None if token_id is None else float(first[token_id]),
        reference_logit=None if reference_id is None else float(first[reference_id]),
        top2_margin=float(best[0] - best[1]),
        noise_floor=noise_floor,
        later_agreement=float(agree.float().mean()) if len(later) else None,
        kind=NEAR_TIE if tie else BUG,
    )


def _forced(
    model: Any, prompt: tuple[int, ...], output: tuple[int, ...]
) -> tuple[torch.Tensor, float]:
    """Logits of every output position and of one more, `[len(output) + 1, vocab]`; noise floor."""
    ids = torch.tensor([[*prompt, *output]])
    length, first = ids.shape[1], len(prompt) - 1
    alone = model(input_ids=ids.to(model.device)).logits[0, first:].float().cpu()
    padded = torch.cat([ids[:, :1].repeat(1, _PADDING), ids], dim=1)
    # The row beside it is as long as the batch, so that this one is padded.
    beside = torch.cat([ids, ids[:, -1:].repeat(1, _PADDING)], dim=1)
    mask = torch.ones(2, length + _PADDING, dtype=torch.long)
    mask[0, :_PADDING] = 0
    in_company = model(
        input_ids=torch.cat([padded, beside]).to(model.device),
        attention_mask=mask.to(model.device),
        position_ids=(mask.cumsum(-1) - 1).clamp(min=0).to(model.device),
    ).logits[0, _PADDING + first :]
    return alone, float((alone - in_company.float().cpu()).abs().max())


def _text(tokenizer: Any | None, token_id: int | None) -> str | None:
    return None if tokenizer is None or token_id is None else str(tokenizer.decode([token_id]))
