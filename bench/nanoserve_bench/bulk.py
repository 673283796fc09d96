"""Many cells of a column at once: from text to arrays, or a doubt.

What is decided here is only whether thousands of cells are beyond question, by operations that look
at all of their characters together. Whatever is not (a sign, a number of 19 digits, a fault) is
left to `columns.py`, which reads cell by cell, and words what is wrong. So there is one authority
on what a cell may say, and this module may be no more lenient than that one; it may be stricter at
the price of time. The canonical spelling makes the test simple: digits joined by single spaces,
without leading zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from nanoserve_bench.columns import Column, columns_of
from nanoserve_bench.records import Hold
from nanoserve_bench.schema import PromptRow, Row
from nanoserve_bench.tables import (
    Coded,
    ColumnData,
    Flags,
    HoldLists,
    Ints,
    Lists,
    Table,
    TokenLists,
    Whole,
    compact,
)

R = TypeVar("R", bound=Row)

DIGITS = b"0123456789"
_LEADING_ZERO = re.compile(rb" 0[0-9]")
_BEYOND_DOUBT = 10**18
"""Numbers of fewer digits than an overflow could hide in."""

Chunk = tuple[npt.NDArray[Any] | None, ...]


def whole_numbers(text: bytes, count: int) -> Ints | None:
    """The numbers of a text in which they are joined by single spaces; None where in doubt.

    Args:
        text: ASCII digits and single spaces, if all is well.
        count: How many numbers there must be.
    """
    if not count:
        return None if text else np.zeros(0, np.int64)
    padded = b" %b " % text
    if padded.translate(None, DIGITS + b" ") or b"  " in padded or _LEADING_ZERO.search(padded):
        return None
    values: Ints = np.fromstring(text, dtype=np.int64, sep=" ")
    if len(values) != count or values.max() >= _BEYOND_DOUBT:
        return None
    return values


class Builder(Protocol):
    """Collects one column, a chunk of cells at a time."""

    def parse(self, cells: Sequence[str]) -> Chunk | None:
        """The cells as arrays; None where any of them is in doubt."""

    def gather(self, cells: Sequence[str], values: Sequence[Any]) -> Chunk:
        """Cells that were read one by one, as arrays."""

    def append(self, chunk: Chunk) -> None:
        """Take a chunk in."""

    def finish(self) -> ColumnData:
        """The column; the builder is empty afterwards."""


def builder_of(column: Column, known: Mapping[str, int] | None = None) -> Builder:
    """What collects a column; texts in `known` have the codes given there."""
    if column.kind in {int, bool}:
        return _WholeBuilder(column)
    if column.kind is str:
        return _CodedBuilder(column, known or {})
    return _ListsBuilder(column)


class _WholeBuilder:
    def __init__(self, column: Column) -> None:
        self._column = column
        self._values: list[npt.NDArray[Any]] = []
        self._present: list[Flags | None] = []

    def parse(self, cells: Sequence[str]) -> Chunk | None:
        present = None
        if self._column.optional and "" in cells:
            present = np.fromiter(map(bool, cells), np.bool_, len(cells))
            cells = [cell for cell in cells if cell]
        if self._column.kind is bool:
            values: npt.NDArray[Any] | None = None
            if set(cells) <= {"0", "1"}:
                values = np.fromiter(map("1".__eq__, cells), np.bool_, len(cells))
        else:
            values = whole_numbers(" ".join(cells).encode(), len(cells))
        if values is None:
            return None
        return _spread(values, present), present

    def gather(self, cells: Sequence[str], values: Sequence[Any]) -> Chunk:
        del cells  # only texts need them, for their codes
        dtype = np.bool_ if self._column.kind is bool else np.int64
        present = np.array([value is not None for value in values], np.bool_)
        return np.array([value or 0 for value in values], dtype), present

    def append(self, chunk: Chunk) -> None:
        values, present = chunk
        if values is None:
            raise TypeError("a chunk of numbers has numbers")
        self._values.append(values if values.dtype == np.bool_ else compact(values))
        self._present.append(present)

    def finish(self) -> Whole:
        present = _flags(self._present, self._values)
        values = _joined(self._values, np.bool_ if self._column.kind is bool else np.int32)
        return Whole(values, present)


class _ListsBuilder:
    def __init__(self, column: Column) -> None:
        self._column = column
        self._holds = column.kind == tuple[Hold, ...]
        self._flat: list[npt.NDArray[Any]] = []
        self._lengths: list[npt.NDArray[Any]] = []
        self._present: list[Flags | None] = []

    def parse(self, cells: Sequence[str]) -> Chunk | None:
        counts = np.fromiter((cell.count(" ") for cell in cells), np.int64, len(cells)) + 1
        present = None
        if "" in cells:
            filled = np.fromiter(map(bool, cells), np.bool_, len(cells))
            counts[~filled] = 0
            present = filled if self._column.optional else None
            cells = [cell for cell in cells if cell]
        text = " ".join(cells).encode()
        if self._holds:
            pairs = int(counts.sum())
            if text.translate(None, DIGITS) != (b": " * pairs)[:-1]:
                return None
            text = text.replace(b":", b" ")
            counts *= 2
        values = whole_numbers(text, int(counts.sum()))
        return None if values is None else (values, counts, present)

    def gather(self, cells: Sequence[str], values: Sequence[Any]) -> Chunk:
        del cells  # only texts need them, for their codes
        lists: list[list[int]] = [
            [stamp for hold in value or () for stamp in hold] if self._holds else list(value or ())
            for value in values
        ]
        return (
            np.array([number for numbers in lists for number in numbers], np.int64),
            np.array([len(numbers) for numbers in lists], np.int64),
            np.array([value is not None for value in values], np.bool_),
        )

    def append(self, chunk: Chunk) -> None:
        values, counts, present = chunk
        if values is None or counts is None:
            raise TypeError("a chunk of lists has numbers and lengths")
        self._flat.append(compact(values))
        self._lengths.append(compact(counts))
        self._present.append(present)

    def finish(self) -> Lists:
        present = _flags(self._present, self._lengths)
        bounds = np.zeros(sum(map(len, self._lengths)) + 1, np.int64)
        np.cumsum(_joined(self._lengths, np.int32), out=bounds[1:])
        kind = HoldLists if self._holds else Lists
        return kind(_joined(self._flat, np.int32), bounds, present)


class _CodedBuilder:
    def __init__(self, column: Column, known: Mapping[str, int]) -> None:
        self._column = column
        self._known = known
        self._fresh: dict[str, int] = {}
        self._texts: list[str | None] = []
        self._codes: list[npt.NDArray[Any]] = []

    def parse(self, cells: Sequence[str]) -> Chunk | None:
        codes: list[int | None] = list(map((self._known or self._fresh).get, cells))
        if None in codes:
            try:
                codes = [
                    self._code(cell, None) if code is None else code
                    for cell, code in zip(cells, codes, strict=True)
                ]
            except ValueError:
                return None
        return (np.array(codes, np.int32),)

    def _code(self, cell: str, value: str | None) -> int:
        code = self._known.get(cell)
        code = self._fresh.get(cell) if code is None else code
        if code is None:
            self._texts.append(self._column.read(cell) if value is None else value)
            code = self._fresh[cell] = len(self._known) + len(self._fresh)
        return code

    def gather(self, cells: Sequence[str], values: Sequence[Any]) -> Chunk:
        pairs = zip(cells, values, strict=True)
        return (np.array([self._code(cell, value) for cell, value in pairs], np.int32),)

    def append(self, chunk: Chunk) -> None:
        (codes,) = chunk
        if codes is None:
            raise TypeError("a chunk of texts has codes")
        self._codes.append(codes)

    def finish(self) -> Coded:
        return Coded(_joined(self._codes, np.int32), [*self._known, *self._texts])


def table_of(
    row_type: type[R], rows: Sequence[R], known: Mapping[str, Mapping[str, int]]
) -> Table[R]:
    """Rows that are at hand, as a table; `known` as in `builder_of`, by column."""
    data = {}
    for column in columns_of(row_type):
        builder = builder_of(column, known.get(column.name))
        values = [getattr(row, column.name) for row in rows]
        cells = [value or "" for value in values] if column.kind is str else [""] * len(values)
        builder.append(builder.gather(cells, values))
        data[column.name] = builder.finish()
    return Table(row_type, data, len(rows))


def token_lists_of(lists: Mapping[str, Sequence[int]]) -> TokenLists:
    """Token lists that are at hand, by their digests."""
    builder = builder_of(columns_of(PromptRow)[1])
    builder.append(builder.gather((), list(lists.values())))
    found = builder.finish()
    if not isinstance(found, Lists):
        raise TypeError("token ids are lists")
    return TokenLists({digest: place for place, digest in enumerate(lists)}, found)


def _spread(values: npt.NDArray[Any], present: Flags | None) -> npt.NDArray[Any]:
    """Values at the places where there are any, and 0 elsewhere."""
    if present is None:
        return values
    whole = np.zeros(len(present), values.dtype)
    whole[present] = values
    return whole


def _joined(parts: list[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    """The parts as one array, releasing them."""
    whole = np.concatenate(parts) if parts else np.zeros(0, dtype)
    parts.clear()
    return whole


def _flags(parts: Sequence[Flags | None], chunks: Iterable[npt.NDArray[Any]]) -> Flags | None:
    if all(part is None or part.all() for part in parts):
        return None
    return np.concatenate(
        [
            np.ones(len(chunk), np.bool_) if part is None else part
            for part, chunk in zip(parts, chunks, strict=True)
        ]
    )
