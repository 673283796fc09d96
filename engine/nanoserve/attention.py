"""Attention over the paged cache, for a batch that mixes prompts, parts of them and single tokens.

The tokens of a step lie flat, one sequence after the other. What each of them may see is worked
out once per step, in an ``AttentionPlan``, and used by every layer. It parts the sequences into
groups, and a group is one call for all of its sequences:

- ``SingleTokens``: one new token each, mostly decode rows. They see their whole past. Its blocks
  are fetched through the block tables in one operation, and one masked attention serves all; the
  query heads that share a KV head are laid out as if they were several queries of it.
- ``WholePrompts``: new from their first token on, and of one length. They see themselves, causally.
  Nothing needs to be fetched: their keys and values have just been computed.
- ``PartOfPrompt``: several new tokens behind a past.

A layer with a window has a plan of its own, in which nothing is fetched that no token can see.

No token can see another sequence: a table is padded with a block of the same sequence, and what a
mask hides has been cleaned (see ``kv_cache``). However long a prompt, no call needs memory for more
than ``_MASKED`` pairs of tokens, or for more than twice the keys and values that there are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention

from nanoserve.kv_cache import PagedKVCache
from nanoserve.scheduler import ScheduledRow

ATTENTION_PATH = "torch:sdpa over gathered blocks"

# Pairs of a new token and a token it may see or not, in one call.
_MASKED = 2**21
# Tokens of padding that cost less than another call.
_LITTLE = 512


class Attend(Protocol):
    """Attention of one step, its cache and its plan bound: what a model needs of it."""

    def __call__(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, layer: int
    ) -> torch.Tensor:
        """Store the keys and values in a layer of the cache, and attend, as ``paged_attention``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SingleTokens:
    """Neighbouring sequences with one new token each.

    Attributes:
        start: The first one's place among the step's tokens.
        count: How many.
        blocks: Block ids, the same number for each sequence, padded.
        mask: What is added to the scores, ``[count, 1, 1, blocks each * block_size]``: 0 where a
            token may look, else minus infinity.
    """

    start: int
    count: int
    blocks: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class WholePrompts:
    """``count`` prompts of ``length`` tokens each, from the step's token ``start`` on."""

    start: int
    count: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PartOfPrompt:
    """``length`` tokens of one sequence, from the step's token ``start`` on.

    Attributes:
        position: Place of the first one in its sequence.
        first: Position at which the first of ``blocks`` begins.
        blocks: Ids of the blocks that any of them can see.
        window: How many positions a token sees, itself the last of them; None for all.
    """

    start: int
    length: int
    position: int
    first: int
    blocks: torch.Tensor
    window: int | None


Group = SingleTokens | WholePrompts | PartOfPrompt


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPlan:
    """What the tokens of one step may see.

    Attributes:
        slots: Where each token's keys and values go, ``[tokens]``.
        groups: For each layer, the sequences of the step in groups, in their order.
    """

    slots: torch.Tensor
    groups: tuple[tuple[Group, ...], ...]

    @classmethod
    def build(
        cls,
        rows: Sequence[ScheduledRow],
        *,
        cache: PagedKVCache,
        windows: Sequence[int | None],
    ) -> "AttentionPlan":
        """Work out the plan of a step.

        Args:
            rows: The step's sequences.
            cache: Where they are cached.
            windows: For each layer, how many positions a token sees; None for all.
        """
        slots: list[int] = []
        for row in rows:
            slots += row.request.table.slots(row.start, row.start + row.length)
        groups = {window: tuple(_groups(rows, cache, window)) for window in set(windows)}
        return cls(
            slots=torch.tensor(slots, device=cache.keys.device, dtype=torch.int64),
            groups=tuple(groups[window] for window in windows),
        )


def _groups(
    rows: Sequence[ScheduledRow], cache: PagedKVCache, window: int | None
) -> Iterator[Group]:
    def kind(row: ScheduledRow) -> tuple[type[Group], int]:
        if row.length == 1:
            return SingleTokens, 1
        if row.start == 0 and (window is None or row.length <= window):
            return WholePrompts, row.length
        return PartOfPrompt, row.length

    start = 0
    for (group, length), neighbours in groupby(rows, key=kind):
        alike = list(neighbours)
        if group is SingleTokens:
            yield from _single_tokens(alike, start, cache, window)
        elif group is WholePrompts:
            yield WholePrompts(start=start, count=len(alike), length=length)
        else:
            yield from _parts(alike, start, cache, window)
        start += len(alike) * length


def _single_tokens(
    rows: Sequence[ScheduledRow], start: int, cache: PagedKVCache, window: int | None
) -> Iterator[SingleTokens]:
    """Part them where padding all to the longest would double what is fetched, and that is much."""
    reaches = [_Reach.of(row, cache.block_size, window) for row in rows]
    few = -(-_LITTLE // cache.block_size)
    begin = 0
    while begin < len(rows):
        end, most, needed = begin, 0, 0
        while end < len(rows):
            most_then = max(most, len(reaches[end].blocks))
            needed_then = needed + len(reaches[end].blocks)
            if most_then * (end + 1 - begin) > 2 * needed_then + few:
                break
            end, most, needed = end + 1, most_then, needed_then
        yield _padded(reaches[begin:end], most, start + begin, cache, window)
        begin = end


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reach:
    """What the new tokens of one sequence see together.

    Attributes:
        first: Position at which the first of ``blocks`` begins.
        stop: Position behind the last new token.
        blocks: Ids.
    """

    first: int
    stop: int
    blocks: list[int]

    @classmethod
    def of(cls, row: ScheduledRow, block_size: int, window: int | None) -> "_Reach":
        stop = row.start + row.length
        first = 0 if window is None else max(0, row.start + 1 - window) // block_size
        return cls(
            first=first * block_size,
            stop=stop,
            blocks=row.request.table.blocks[first : -(-stop // block_size)],
        )


def _padded(
    reaches: Sequence[_Reach], most: int, start: int, cache: PagedKVCache, window: int | None
) -> SingleTokens:
    device, dtype = cache.keys.device, cache.keys.dtype
    blocks = [r.blocks + r.blocks[:1] * (most - len(r.blocks)) for r in reaches]
    firsts, stops = torch.tensor([[(r.first, r.stop) for r in reaches]], device=device).unbind(-1)
    positions = firsts.mT + torch.arange(most * cache.block_size, device=device)
    hidden = positions >= stops.mT
    if window is not None:
        hidden |= positions < stops.mT - window
    mask = torch.zeros(hidden.shape, device=device, dtype=dtype).masked_fill_(hidden, -torch.inf)
    return SingleTokens(
        start=start,
        count=len(reaches),
        blocks=torch.tensor(blocks, device=device).flatten(),
        mask=mask[:, None, None],
    )


def _parts(
    rows: Sequence[ScheduledRow], start: int, cache: PagedKVCache, window: int | None
) -> Iterator[PartOfPrompt]:
    for index, row in enumerate(rows):
        reach = _Reach.of(row, cache.block_size, window)
        yield PartOfPrompt(
            start=start + index * row.length,
            length=row.length,
            position=row.start,
            first=reach.first,
            blocks=torch.tensor(reach.blocks, device=cache.keys.device),
            window=window,
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
    seen = []
    for group in plan.groups[layer]:
        match group:
            case SingleTokens(start=start, count=count):
                seen.append(_attend_single(queries[start : start + count], cache, layer, group))
            case WholePrompts(start=start, count=count, length=length):
                tokens = slice(start, start + count * length)
                seen.append(_attend_whole(queries[tokens], keys[tokens], values[tokens], count))
            case PartOfPrompt(start=start, length=length):
                seen += _attend_part(queries[start : start + length], cache, layer, group)
    return seen[0] if len(seen) == 1 else torch.cat(seen)


def _attend_single(
    queries: torch.Tensor, cache: PagedKVCache, layer: int, group: SingleTokens
) -> torch.Tensor:
    keys, values = cache.read(layer, group.blocks, sequences=group.count)
    grouped = queries.view(group.count, keys.shape[1], -1, queries.shape[2])
    seen = scaled_dot_product_attention(grouped, keys, values, attn_mask=group.mask)
    return seen.reshape(group.count, -1)


def _attend_whole(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, count: int
) -> torch.Tensor:
    query, key, value = (
        flat.view(count, -1, *flat.shape[1:]).transpose(1, 2) for flat in (queries, keys, values)
    )
    seen = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return seen.transpose(1, 2).reshape(len(queries), -1)


def _attend_part(
    queries: torch.Tensor, cache: PagedKVCache, layer: int, part: PartOfPrompt
) -> Iterator[torch.Tensor]:
    """A few queries at a time, against the keys that any of them may see."""
    keys, values = cache.read(layer, part.blocks, sequences=1)
    device = keys.device
    at_once = max(1, _MASKED // keys.shape[2])
    for begin in range(0, part.length, at_once):
        query = queries[begin : begin + at_once]
        own = part.position + begin + torch.arange(len(query), device=device)[:, None]
        stop = part.position + begin + len(query)
        low = part.first
        if part.window is not None:
            low = max(low, part.position + begin + 1 - part.window)
        places = torch.arange(low, stop, device=device)
        mask = places <= own
        if part.window is not None:
            mask &= places > own - part.window
        there = slice(low - part.first, stop - part.first)
        seen = scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            keys[:, :, there],
            values[:, :, there],
            attn_mask=mask,
            enable_gqa=True,
        )
        yield seen.transpose(1, 2).reshape(len(query), -1)
