"""What a recorded decode step is given: batch sizes, rows, padding, block tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nanoserve.decode_graphs import DecodeBuffers, buckets

SCRATCH, BLOCK_SIZE = 99, 4


def row(*token_ids: int, blocks: list[int]) -> Any:
    """The last token of a sequence is to be computed."""
    request = SimpleNamespace(token_ids=list(token_ids), table=SimpleNamespace(blocks=blocks))
    return SimpleNamespace(request=request, start=len(token_ids) - 1, length=1)


@pytest.fixture
def buffers() -> DecodeBuffers:
    return DecodeBuffers(
        rows=4,
        blocks=3,
        block_size=BLOCK_SIZE,
        scratch_block=SCRATCH,
        device=torch.device("cpu"),
    )


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (3, (1, 2, 3)),
        (8, (1, 2, 4, 8)),
        (12, (1, 2, 4, 8, 12)),
        (64, (1, 2, 4, 8, 16, 32, 64)),
    ],
)
def test_buckets_double_up_to_the_most_rows(most: int, sizes: tuple[int, ...]) -> None:
    assert buckets(most) == sizes


def test_rows_and_padding(buffers: DecodeBuffers) -> None:
    buffers.fill([row(7, 8, 9, blocks=[5]), row(1, 2, 3, 4, 6, blocks=[3, 8])], bucket=4)
    assert buffers.token_ids.tolist() == [9, 6, 0, 0]
    assert buffers.positions.tolist() == [2, 4, 0, 0]
    assert buffers.slots.tolist() == [22, 32, 396, 396]
    assert buffers.tables[0, 0] == 5
    assert buffers.tables[1, :2].tolist() == [3, 8]
    assert buffers.tables[2:, 0].tolist() == [SCRATCH, SCRATCH]


def test_before_the_first_step_everything_points_to_the_scratch_block(
    buffers: DecodeBuffers,
) -> None:
    assert buffers.slots.tolist() == [SCRATCH * BLOCK_SIZE] * 4
    assert buffers.tables.eq(SCRATCH).all()


def test_a_row_that_grows_moves_or_ends_takes_its_table_along(buffers: DecodeBuffers) -> None:
    first, second = [5], [3, 8]
    buffers.fill([row(1, 2, 3, 4, blocks=first), row(1, 2, 3, 4, 5, blocks=second)], bucket=2)
    first.append(6)  # the very list that the sequence goes on with
    buffers.fill([row(1, 2, 3, 4, 5, blocks=first), row(*range(6), blocks=second)], bucket=2)
    assert buffers.tables[0, :2].tolist() == [5, 6]
    assert buffers.slots.tolist()[:2] == [24, 33]
    buffers.fill([row(*range(7), blocks=second)], bucket=2)
    assert buffers.tables[0, :2].tolist() == [3, 8]
    assert buffers.tables[1, 0] == SCRATCH
    assert (buffers.token_ids[1], buffers.positions[1], buffers.slots[1]) == (0, 0, 396)


def test_only_tables_that_changed_travel(
    buffers: DecodeBuffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(1, blocks=[2]), row(1, blocks=[4]), row(1, blocks=[6])]
    buffers.fill(rows, bucket=4)
    buffers.tables.fill_(-1)  # what is not sent again stays so
    rows[1] = row(1, blocks=[7])
    buffers.fill(rows, bucket=4)
    assert buffers.tables[:, 0].tolist() == [-1, 7, -1, -1]
