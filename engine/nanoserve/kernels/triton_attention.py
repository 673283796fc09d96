"""Attention on a card that reads keys and values through the block table, in place.

A program serves one KV head of one *tile*: a few neighbouring new tokens of one sequence, with all
query heads that share that KV head. It walks over the sequence's blocks up to the position of its
last token and keeps a running softmax, so nothing is gathered, nothing is copied, and a prompt, a
part of one and a single decoded token are the same thing. Only places that some token has been
written to are ever read; what else lies in the pool does not matter.

Products are taken in the dtype of the cache and summed in float32; float32 ones are IEEE products,
never TF32. Under ``TRITON_INTERPRET=1`` the kernels run on the CPU, which is how they are tested
where there is no card. The twin is ``nanoserve.attention``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from nanoserve.kernels.library import KernelsUnavailable
from nanoserve.kv_cache import PagedKVCache
from nanoserve.models.model_config import ModelConfig

ATTENTION_PATH = "triton:through block tables"

# tl.dot wants at least this many of everything.
_LEAST = 16
# Rows of a tile of prompt tokens (tokens times the query heads that share a KV head), and cached
# tokens looked at in one go. float32 has no matrix units, and its tiles have to stay in registers.
_PROMPT_ROWS, _SPAN = 64, 64
_PROMPT_ROWS_FLOAT32, _SPAN_FLOAT32 = 16, 32
# These differ from step to step, and a kernel is not to be compiled anew for each of their kinds.
_INDICES = ("positions", "tables", "sequences", "starts", "lengths")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiles:
    """What the new tokens of one step may see, on the device.

    Attributes:
        positions: Place of each token in its sequence, ``[tokens]``.
        slots: Where each token's keys and values go, ``[tokens]``.
        tables: Block ids of each sequence, ``[sequences, blocks]``; what lies behind the block of
            a sequence's last token is not read.
        sequences: Whose each tile is, ``[tiles]``.
        starts: Its first token, ``[tiles]``.
        lengths: Its tokens, ``[tiles]``; neighbours in the batch and in the sequence.
        tokens: Tokens a tile has room for: 1 where all tiles are single tokens.
    """

    positions: torch.Tensor
    slots: torch.Tensor
    tables: torch.Tensor
    sequences: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    tokens: int


def tile_tokens(longest: int, *, group: int, dtype: torch.dtype) -> int:
    """How many tokens a tile of a step should have room for.

    Args:
        longest: Most new tokens of one sequence in the step.
        group: Query heads that share a KV head.
        dtype: Dtype of the cache.
    """
    if longest == 1:
        return 1
    rows = _PROMPT_ROWS_FLOAT32 if dtype == torch.float32 else _PROMPT_ROWS
    return max(1, rows // int(triton.next_power_of_2(group)))


def paged_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    cache: PagedKVCache,
    layer: int,
    tiles: Tiles,
    windows: Sequence[int | None],
) -> torch.Tensor:
    """Store the step's keys and values, and let every token look at its past and at itself.

    Args:
        queries: ``[tokens, heads, head_dim]``, rotated.
        keys: ``[tokens, kv_heads, head_dim]``, rotated.
        values: ``[tokens, kv_heads, head_dim]``.
        cache: The pool.
        layer: Which layer of it.
        tiles: What the tokens may see.
        windows: For each layer, how many positions a token sees, itself the last of them; None
            for all.

    Returns:
        ``[tokens, heads * head_dim]``: softmax(q k^T / sqrt(head_dim)) v for each token.
    """
    tokens, heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    queries, keys, values = map(_dense_tokens, (queries, keys, values))
    pool_keys, pool_values = cache.keys[layer], cache.values[layer]
    features = kv_heads * head_dim
    _store[(tokens,)](
        keys,
        values,
        pool_keys,
        pool_values,
        tiles.slots,
        keys.stride(0),
        values.stride(0),
        FEATURES=features,
        LANES=triton.next_power_of_2(features),
    )
    seen = torch.empty(tokens, heads * head_dim, device=queries.device, dtype=queries.dtype)
    group = heads // kv_heads
    _attend[(len(tiles.starts), kv_heads)](
        queries,
        pool_keys,
        pool_values,
        seen,
        tiles.positions,
        tiles.tables,
        tiles.sequences,
        tiles.starts,
        tiles.lengths,
        queries.stride(0),
        seen.stride(0),
        tiles.tables.stride(0),
        head_dim**-0.5,
        BLOCK_SIZE=cache.block_size,
        KV_HEADS=kv_heads,
        GROUP=group,
        GROUP_LANES=max(triton.next_power_of_2(group), _LEAST // tiles.tokens),
        HEAD_DIM=head_dim,
        HEAD_LANES=max(triton.next_power_of_2(head_dim), _LEAST),
        TILE_TOKENS=tiles.tokens,
        WINDOW=windows[layer] or 0,
        # The interpreter cannot multiply bfloat16. The products are the same in float32.
        WIDEN=queries.device.type == "cpu",
        SPAN=_SPAN_FLOAT32 if queries.dtype == torch.float32 else _SPAN,
    )
    return seen


def check(config: ModelConfig, *, device: torch.device, dtype: torch.dtype) -> None:
    """Compile and run the kernels for a model's heads: one token, which sees itself.

    Raises:
        KernelsUnavailable: They do not compile, do not run, or compute something else.
    """
    try:
        cache = PagedKVCache(config, num_blocks=1, block_size=1, device=device, dtype=dtype)
        nought = torch.zeros(1, device=device, dtype=torch.int32)
        values = torch.randn(1, config.num_kv_heads, config.head_dim, device=device, dtype=dtype)
        queries = values.repeat_interleave(config.num_heads // config.num_kv_heads, dim=1)
        tiles = Tiles(
            positions=nought,
            slots=nought,
            tables=nought[None],
            sequences=nought,
            starts=nought,
            lengths=nought + 1,
            tokens=1,
        )
        seen = paged_attention(
            queries, values, values, cache=cache, layer=0, tiles=tiles, windows=(None,)
        )
        right = torch.equal(seen, queries.flatten(1))
    except Exception as error:  # a compiler may fail in any way
        first_line = str(error).partition("\n")[0]
        raise KernelsUnavailable(f"Triton does not run here: {first_line}") from error
    if not right:
        raise KernelsUnavailable("Triton's attention computes something else here")


def _dense_tokens(heads: torch.Tensor) -> torch.Tensor:
    """The tensor with the features of each token side by side, copied only if they are not."""
    dense = heads.stride(2) == 1 and heads.stride(1) == heads.shape[2]
    return heads if dense else heads.contiguous()


@triton.jit(do_not_specialize_on_alignment=("slots",))
def _store(
    keys,
    values,
    pool_keys,
    pool_values,
    slots,
    key_stride,
    value_stride,
    FEATURES: tl.constexpr,
    LANES: tl.constexpr,
):
    """Write one token's keys and values, all heads, to its slot."""
    token = tl.program_id(0).to(tl.int64)
    features = tl.arange(0, LANES)
    inside = features < FEATURES
    place = tl.load(slots + token).to(tl.int64) * FEATURES + features
    key = tl.load(keys + token * key_stride + features, mask=inside)
    value = tl.load(values + token * value_stride + features, mask=inside)
    tl.store(pool_keys + place, key, mask=inside)
    tl.store(pool_values + place, value, mask=inside)


@triton.jit(do_not_specialize=("table_stride",), do_not_specialize_on_alignment=_INDICES)
def _attend(
    queries,
    pool_keys,
    pool_values,
    seen,
    positions,
    tables,
    sequences,
    starts,
    lengths,
    query_stride,
    seen_stride,
    table_stride,
    scale,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_LANES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_LANES: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    WINDOW: tl.constexpr,
    WIDEN: tl.constexpr,
    SPAN: tl.constexpr,
):
    """One tile, one KV head. A row of the tile is a token and one of the heads that share it."""
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    start = tl.load(starts + tile).to(tl.int64)
    length = tl.load(lengths + tile)
    table = tables + tl.load(sequences + tile).to(tl.int64) * table_stride

    rows = tl.arange(0, TILE_TOKENS * GROUP_LANES)
    token = rows // GROUP_LANES
    member = rows % GROUP_LANES
    dims = tl.arange(0, HEAD_LANES)
    real = (token < length) & (member < GROUP)
    here = real[:, None] & (dims < HEAD_DIM)[None, :]
    feature = (kv_head * GROUP + member)[:, None] * HEAD_DIM + dims[None, :]
    query = tl.load(
        queries + (start + token)[:, None] * query_stride + feature, mask=here, other=0.0
    )
    if WIDEN:
        query = query.to(tl.float32)
    # A row that is none is one of the tile's first token: its softmax has to be a number.
    own = tl.load(positions + start + tl.where(token < length, token, 0)).to(tl.int32)
    limit = (tl.load(positions + start + length - 1) + 1).to(tl.int32)
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(tl.load(positions + start).to(tl.int32) + 1 - WINDOW, 0) // SPAN * SPAN

    # Finite where others use minus infinity: a row may see nothing of the first span.
    peak = tl.full((TILE_TOKENS * GROUP_LANES,), -1e30, tl.float32)
    total = tl.zeros((TILE_TOKENS * GROUP_LANES,), tl.float32)
    mixed = tl.zeros((TILE_TOKENS * GROUP_LANES, HEAD_LANES), tl.float32)
    for first in range(begin, limit, SPAN):
        places = first + tl.arange(0, SPAN)
        written = places < limit
        blocks = tl.load(table + places // BLOCK_SIZE, mask=written, other=0).to(tl.int64)
        slots = blocks * BLOCK_SIZE + places % BLOCK_SIZE
        at = (slots * KV_HEADS + kv_head)[:, None] * HEAD_DIM + dims[None, :]
        stored = written[:, None] & (dims < HEAD_DIM)[None, :]
        key = tl.load(pool_keys + at, mask=stored, other=0.0)
        value = tl.load(pool_values + at, mask=stored, other=0.0)
        if WIDEN:
            key = key.to(tl.float32)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        visible = places[None, :] <= own[:, None]
        if WINDOW > 0:
            visible = visible & (places[None, :] > own[:, None] - WINDOW)
        scores = tl.where(visible, scores, -1e30)
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.where(visible, tl.exp(scores - higher[:, None]), 0.0)
        kept = tl.exp(peak - higher)
        total = total * kept + tl.sum(weights, 1)
        weights = weights.to(value.dtype)
        if WIDEN:
            weights = weights.to(tl.float32)
            value = value.to(tl.float32)
        mixed = mixed * kept[:, None] + tl.dot(weights, value, input_precision="ieee")
        peak = higher
    result = mixed / total[:, None]
    tl.store(
        seen + (start + token)[:, None] * seen_stride + feature,
        result.to(seen.dtype.element_ty),
        mask=here,
    )
