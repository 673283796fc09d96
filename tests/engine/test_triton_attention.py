"""Triton's paged attention against the formula: on a card, or interpreted on the CPU."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from nanoserve.kv_cache import PagedKVCache
from nanoserve.models.model_config import ModelConfig
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS

pytest.importorskip("triton", reason="no Triton here: it comes for Linux only")

from nanoserve.kernels import triton_attention

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LAYER, BLOCKS = 1, 120


def config_of(heads: int, kv_heads: int, head_dim: int) -> ModelConfig:
    return dataclasses.replace(
        SYNTHETIC_CONFIGS["tiny-llama"], num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim
    )


def formula(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    past: int,
    window: int | None,
) -> torch.Tensor:
    """Causal attention of one sequence's new tokens, in float64: ``[tokens, heads * head_dim]``."""
    group = queries.shape[1] // keys.shape[1]
    query = queries.double()
    key, value = (t.double().repeat_interleave(group, dim=1) for t in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query, key) / query.shape[2] ** 0.5
    places = torch.arange(len(key), device=key.device)
    own = past + torch.arange(len(query), device=key.device)[:, None]
    hidden = (places > own) | (places <= own - (window or len(key)))
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, value).flatten(1)


def cut(lengths: Sequence[int], tokens: int) -> Iterator[tuple[int, int, int]]:
    starts = itertools.accumulate(lengths, initial=0)
    for sequence, (start, length) in enumerate(zip(starts, lengths, strict=False)):
        for first in range(0, length, tokens):
            yield sequence, start + first, min(tokens, length - first)


def check(
    sequences: Sequence[tuple[int, int]],
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    block_size: int = 4,
    window: int | None = None,
    dtype: torch.dtype = torch.float32,
    tolerance: float = 2e-6,
) -> None:
    """Attend for sequences of (past, new) tokens in a pool of NaN, laid out at random."""
    torch.manual_seed(0)
    cache = PagedKVCache(
        config_of(heads, kv_heads, head_dim),
        num_blocks=BLOCKS,
        block_size=block_size,
        device=DEVICE,
        dtype=dtype,
    )
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    free = random.Random(0).sample(range(BLOCKS), BLOCKS)
    width = max(-(-(past + new) // block_size) for past, new in sequences)
    tables = [[free.pop() for _ in range(-(-(p + n) // block_size))] for p, n in sequences]
    slots, positions, new_parts, wanted = [], [], [], []
    for (past, new), table in zip(sequences, tables, strict=True):
        total = past + new
        places = [table[i // block_size] * block_size + i % block_size for i in range(total)]
        keys, values = torch.randn(2, total, kv_heads, head_dim, device=DEVICE).to(dtype)
        queries = torch.randn(new, heads, head_dim, device=DEVICE).to(dtype)
        old = torch.tensor(places[:past], device=DEVICE, dtype=torch.int64)
        cache.write(LAYER, keys[:past], values[:past], old)
        slots += places[past:]
        positions += range(past, total)
        new_parts.append((queries, keys[past:], values[past:]))
        wanted.append(formula(queries, keys, values, past=past, window=window))
    # As in the model: queries and keys are views into one product, and not dense as a whole.
    queries, keys, values = (torch.cat(parts) for parts in zip(*new_parts, strict=True))
    product = torch.cat([queries, keys, values], dim=1)
    queries, keys, values = product.split([heads, kv_heads, kv_heads], dim=1)

    lengths = [new for _, new in sequences]
    tokens = triton_attention.tile_tokens(max(lengths), group=heads // kv_heads, dtype=dtype)
    columns = list(zip(*cut(lengths, tokens), strict=True))
    padded = [[*table, *[-1] * (width - len(table))] for table in tables]

    def device(numbers: object) -> torch.Tensor:
        return torch.tensor(numbers, device=DEVICE)

    before = cache.keys.clone()
    got = triton_attention.paged_attention(
        queries,
        keys,
        values,
        cache=cache,
        layer=LAYER,
        windows=(None, window),
        tiles=triton_attention.Tiles(
            positions=device(positions),
            slots=device(slots),
            tables=device(padded),
            sequences=device(columns[0]),
            starts=device(columns[1]),
            lengths=device(columns[2]),
            tokens=tokens,
        ),
    )
    assert got.dtype == dtype
    difference = (got.double() - torch.cat(wanted)).abs().max().item()
    assert difference < tolerance
    # Keys went to their slots, and nowhere else.
    before[LAYER].flatten(0, 1)[device(slots)] = keys
    torch.testing.assert_close(cache.keys, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_decode_rows_at_all_places_of_a_block(block_size: int) -> None:
    check([(1, 1), (2, 1), (3, 1), (0, 1), (15, 1), (16, 1), (31, 1)], block_size=block_size)


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (9, 3), (8, 2), (8, 1), (17, 1)], ids=str)
def test_query_heads_share_kv_heads_in_order(heads: int, kv_heads: int) -> None:
    check([(5, 1), (33, 1)], heads=heads, kv_heads=kv_heads)
    check([(5, 1), (3, 9), (0, 2)], heads=heads, kv_heads=kv_heads)


@pytest.mark.parametrize("head_dim", [8, 48, 64, 80, 128])
def test_heads_of_any_width(head_dim: int) -> None:
    check([(7, 1), (2, 5)], head_dim=head_dim, kv_heads=1)


def test_a_decode_row_far_into_its_sequence() -> None:
    check([(600, 1), (1, 1)], block_size=32, kv_heads=1, heads=1)


def test_prompts_chunks_and_decode_rows_together() -> None:
    check([(9, 1), (0, 1), (0, 13), (6, 40), (32, 3), (4, 1)])


def test_a_prompt_of_several_tiles_and_spans() -> None:
    check([(0, 70)], kv_heads=1, heads=2, block_size=16)


@pytest.mark.parametrize("window", [1, 5, 40])
def test_a_window_hides_what_lies_before_it(window: int) -> None:
    check([(90, 1), (3, 1), (70, 30), (0, 2)], window=window, block_size=16)


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_odd_batches(rows: int) -> None:
    check([(11 * row % 19, 1) for row in range(rows)])


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)], ids=str
)
def test_short_floats_are_summed_in_float32(dtype: torch.dtype, tolerance: float) -> None:
    """Rounded are the weights, the values and the result, each once; never a sum."""
    check([(100, 1), (3, 20)], dtype=dtype, tolerance=tolerance, block_size=16, head_dim=64)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from nanoserve.kernels import triton_attention as kernels

pointers = dict.fromkeys(("positions", "sequences", "starts", "lengths"), "*i64")
numbers = dict.fromkeys(("query_stride", "seen_stride", "table_stride"), "i32")
for name, tokens, window in (("fp32", 1, 0), ("fp32", 4, 9), ("bf16", 16, 0)):
    floats = dict.fromkeys(("queries", "pool_keys", "pool_values", "seen"), f"*{name}")
    constants = dict(
        BLOCK_SIZE=16, KV_HEADS=2, GROUP=3, GROUP_LANES=max(4, 16 // tokens), HEAD_DIM=64,
        HEAD_LANES=64, TILE_TOKENS=tokens, WINDOW=window, WIDEN=False, SPAN=32,
    )
    signature = {**floats, **pointers, **numbers, "tables": "*i32", "scale": "fp32"}
    arguments = kernels._attend.arg_names
    source = ASTSource(
        fn=kernels._attend,
        signature={arg: signature.get(arg, "constexpr") for arg in arguments},
        constexprs={(arguments.index(arg),): value for arg, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(name, "tf32" in compiled.asm["ptx"], len(compiled.asm["cubin"]) > 0)
"""


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there is a card: the kernels run on it")
def test_the_kernel_compiles_for_a_card_without_tf32(tmp_path: Path) -> None:
    """To machine code, by Triton's compiler, which needs no card; the interpreter forgives more."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    del environment["TRITON_INTERPRET"]
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["fp32 False True", "fp32 False True", "bf16 False True"]
