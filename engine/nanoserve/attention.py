"""Attention over the paged cache, for a batch that mixes prompts and single tokens.

The tokens of a step lie flat, one after the other: first one token of each decoding sequence,
then the prompts. What each of them may see is worked out once per step, in an ``AttentionPlan``,
and used by every layer:

- A decode row sees its whole past. The blocks of all decoding sequences are fetched by their
  block tables in one operation, and one masked attention serves all of them; the query heads that
  share a KV head are laid out as if they were several queries of it.
- A prompt sees itself, causally. Nothing needs to be fetched: its keys and values have just been
  computed. Neighbouring prompts of one length share one call.

No token can see another sequence: a table is padded with the sequence's own first block, and
what a mask hides has been cleaned (see ``kv_cache``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention

from nanoserve.kv_cache import PagedKVCache
from nanoserve.scheduler import ScheduledRow

ATTENTION_PATH = "torch:sdpa over gathered blocks"


class Attend(Protocol):
    """Attention of one step, its cache and its plan bound: what a model needs of it."""

    def __call__(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, layer: int
    ) -> torch.Tensor:
        """Store the keys and values in a layer of the cache, and attend, as ``paged_attention``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptGroup:
    """``count`` prompts of ``length`` tokens each, from flat token ``start`` on."""

    start: int
    count: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPlan:
    """What the tokens of one step may see.

    Attributes:
        slots: Where each token's keys and values go, ``[tokens]``.
        tables: Block ids of the decode rows, ``[decode rows, blocks]``, padded.
        mask: True where a decode row may look, ``[decode rows, 1, 1, blocks * block_size]``.
        prompts: The prompts, in groups.
    """

    slots: torch.Tensor
    tables: torch.Tensor
    mask: torch.Tensor
    prompts: tuple[PromptGroup, ...]

    @classmethod
    def build(
        cls, rows: Sequence[ScheduledRow], *, block_size: int, device: torch.device
    ) -> "AttentionPlan":
        """Work out the plan of a step whose decode rows come first."""
        slots: list[int] = []
        for row in rows:
            slots += row.request.table.slots(row.start, row.start + row.length)
        decoding = [row for row in rows if not row.is_prefill]
        tables = [row.request.table.blocks for row in decoding]
        width = max((len(table) for table in tables), default=0)
        padded = [table + table[:1] * (width - len(table)) for table in tables]
        context = torch.tensor(
            [row.start + 1 for row in decoding], device=device, dtype=torch.int64
        )
        seen = torch.arange(width * block_size, device=device) < context[:, None]

        prompts = []
        start = len(decoding)
        for length, group in groupby(row.length for row in rows[len(decoding) :]):
            count = len(list(group))
            prompts.append(PromptGroup(start=start, count=count, length=length))
            start += count * length
        return cls(
            slots=torch.tensor(slots, device=device),
            tables=torch.tensor(padded, device=device, dtype=torch.int64).view(
                len(decoding), width
            ),
            mask=seen[:, None, None],
            prompts=tuple(prompts),
        )


def paged_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    cache: PagedKVCache,
    layer: int,
    plan: AttentionPlan,
) -> torch.Tensor:
    """Store the step's keys and values, and let every token look at what it may see.

    Args:
        queries: ``[tokens, heads, head_dim]``, rotated.
        keys: ``[tokens, kv_heads, head_dim]``, rotated.
        values: ``[tokens, kv_heads, head_dim]``.
        cache: The pool.
        layer: Which layer of it.
        plan: What the tokens may see.

    Returns:
        ``[tokens, heads * head_dim]``: softmax(q k^T / sqrt(head_dim)) v for each token.
    """
    cache.write(layer, keys, values, plan.slots)
    parts = []
    decoding = len(plan.tables)
    if decoding:
        parts.append(_attend_decode(queries[:decoding], cache, layer, plan))
    for group in plan.prompts:
        tokens = slice(group.start, group.start + group.count * group.length)
        parts.append(_attend_prompts(queries[tokens], keys[tokens], values[tokens], group.count))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend_decode(
    queries: torch.Tensor, cache: PagedKVCache, layer: int, plan: AttentionPlan
) -> torch.Tensor:
    keys, values = cache.read(layer, plan.tables)
    rows, kv_heads, _, head_dim = keys.shape
    grouped = queries.view(rows, kv_heads, -1, head_dim)
    seen = scaled_dot_product_attention(grouped, keys, values, attn_mask=plan.mask)
    return seen.reshape(rows, -1)


def _attend_prompts(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, count: int
) -> torch.Tensor:
    query, key, value = (
        flat.reshape(count, -1, *flat.shape[1:]).transpose(1, 2) for flat in (queries, keys, values)
    )
    seen = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return seen.transpose(1, 2).reshape(len(queries), -1)
