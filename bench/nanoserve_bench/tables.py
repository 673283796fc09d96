"""A table as columns: what a large file is kept as, with rows made when somebody asks for one.

A million requests as Python objects take gigabytes and minutes; as arrays they take a few hundred
megabytes, and a question about all of them is one operation. A `Table` is both: a sequence of rows
for whoever looks at a few, and `whole`, `lists` and `coded` for whoever looks at all. Everything is
exact: whole numbers are 64-bit integers, as the contract says, and never floats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from nanoserve_bench.records import Hold
from nanoserve_bench.schema import Row

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
R = TypeVar("R", bound=Row)
_SMALL = np.iinfo(np.int32)


def compact(values: Ints) -> npt.NDArray[Any]:
    """The same numbers in half the memory, where they fit."""
    if len(values) and (values.min() < _SMALL.min or values.max() > _SMALL.max):
        return values
    return values.astype(np.int32)


class Whole:
    """A column of whole numbers or truths; `present` is None where no cell is empty."""

    def __init__(self, values: npt.NDArray[Any], present: Flags | None) -> None:
        self._values = values
        self._present = present

    def __len__(self) -> int:
        """Cells, empty ones included."""
        return len(self._values)

    @property
    def values(self) -> Ints:
        """The numbers; 0 where a cell is empty."""
        return self._values.astype(np.int64, copy=False)

    @property
    def present(self) -> Flags:
        """Which cells are not empty."""
        return np.ones(len(self), np.bool_) if self._present is None else self._present

    def part(self, start: int, stop: int) -> Ints:
        """Some of the numbers."""
        return self._values[start:stop].astype(np.int64)

    def full(self, start: int, stop: int) -> bool:
        """Whether none of some cells is empty."""
        return self._present is None or bool(self._present[start:stop].all())

    def take(self, order: Ints) -> Whole:
        """The column with its cells in another order."""
        present = None if self._present is None else self._present[order]
        return Whole(self._values[order], present)

    def cells(self, start: int, stop: int) -> list[Any]:
        """Some cells as Python values."""
        values: list[Any] = self._values[start:stop].tolist()
        if self._present is not None:
            present = self._present[start:stop].tolist()
            return [v if p else None for v, p in zip(values, present, strict=True)]
        return values


class Lists:
    """A column of lists of whole numbers, one list behind the other."""

    def __init__(self, flat: npt.NDArray[Any], bounds: Ints, present: Flags | None) -> None:
        self._flat = flat
        self.bounds = bounds
        self._present = present

    def __len__(self) -> int:
        """Cells, empty ones included."""
        return len(self.bounds) - 1

    @property
    def flat(self) -> Ints:
        """The numbers of all lists; list i is `flat[bounds[i] : bounds[i + 1]]`."""
        return self._flat.astype(np.int64, copy=False)

    @property
    def lengths(self) -> Ints:
        """Numbers in each list."""
        return np.diff(self.bounds)

    @property
    def present(self) -> Flags:
        """Which cells are not empty."""
        return np.ones(len(self), np.bool_) if self._present is None else self._present

    def take(self, order: Ints) -> Lists:
        """The column with its lists in another order."""
        lengths = self.bounds[order + 1] - self.bounds[order]
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        source = np.repeat(self.bounds[:-1][order] - bounds[:-1], lengths) + np.arange(bounds[-1])
        present = None if self._present is None else self._present[order]
        return Lists(self._flat[source], bounds, present)

    def part(self, start: int, stop: int) -> Ints:
        """The numbers of some lists, one behind the other."""
        return self._flat[self.bounds[start] : self.bounds[stop]].astype(np.int64)

    def full(self, start: int, stop: int) -> bool:
        """Whether none of some cells is empty."""
        return self._present is None or bool(self._present[start:stop].all())

    def cells(self, start: int, stop: int) -> list[Any]:
        """Some lists as tuples."""
        bounds = self.bounds[start : stop + 1].tolist()
        first = bounds[0]
        flat = self._flat[first : bounds[-1]].tolist()
        lists: list[Any] = [
            tuple(flat[bounds[i] - first : bounds[i + 1] - first]) for i in range(stop - start)
        ]
        if self._present is not None:
            present = self._present[start:stop].tolist()
            return [v if p else None for v, p in zip(lists, present, strict=True)]
        return lists


class HoldLists(Lists):
    """A column of holds: acquired and released in turn."""

    def take(self, order: Ints) -> HoldLists:
        """The column with its lists in another order."""
        taken = super().take(order)
        return HoldLists(taken.flat, taken.bounds, taken.present)

    def cells(self, start: int, stop: int) -> list[Any]:
        """Some cells as tuples of holds."""
        return [
            None if numbers is None else tuple(map(Hold, numbers[::2], numbers[1::2]))
            for numbers in super().cells(start, stop)
        ]


class Coded:
    """A column of texts, each distinct one stored once; `codes` are places in `texts`."""

    def __init__(self, codes: npt.NDArray[Any], texts: Sequence[str | None]) -> None:
        self._codes = codes
        self.texts = texts

    def __len__(self) -> int:
        """Cells, empty ones included."""
        return len(self._codes)

    @property
    def codes(self) -> Ints:
        """The place of each cell's text in `texts`."""
        return self._codes.astype(np.int64, copy=False)

    def take(self, order: Ints) -> Coded:
        """The column with its cells in another order."""
        return Coded(self._codes[order], self.texts)

    def having(self, texts: Iterable[str | None]) -> Flags:
        """Which cells hold one of a few texts."""
        wanted = set(texts)
        return np.isin(self._codes, [i for i, text in enumerate(self.texts) if text in wanted])

    def cells(self, start: int, stop: int) -> list[Any]:
        """Some cells as Python values."""
        texts = self.texts
        return [texts[code] for code in self._codes[start:stop].tolist()]


ColumnData = Whole | Lists | Coded
C = TypeVar("C", Whole, Lists, Coded)


class Table(Sequence[R], Generic[R]):
    """The rows of one file, kept as columns. Rows are made anew each time they are asked for."""

    def __init__(self, row_type: type[R], columns: Mapping[str, ColumnData], length: int) -> None:
        self.row_type = row_type
        self.columns = columns
        self._length = length

    def __len__(self) -> int:
        """Rows."""
        return self._length

    def __eq__(self, other: object) -> bool:
        """Whether the other table has the same rows in the same order."""
        if not isinstance(other, Table):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as large as it is, nobody should

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[R, ...]: ...
    def __getitem__(self, index: int | slice) -> R | tuple[R, ...]:
        """One row, or some as a tuple."""
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = range(len(self))[index]
        return next(self.rows(place, place + 1))

    def __iter__(self) -> Iterator[R]:
        """All rows, a few thousand of them alive at a time."""
        for start in range(0, len(self), 4096):
            yield from self.rows(start, min(start + 4096, len(self)))

    def rows(self, start: int, stop: int) -> Iterator[R]:
        """The rows from `start` to `stop`."""
        names = list(self.columns)
        cells = [column.cells(start, stop) for column in self.columns.values()]
        for values in zip(*cells, strict=True):
            yield self.row_type(**dict(zip(names, values, strict=True)))

    def take(self, order: Ints) -> Table[R]:
        """The table with its rows in another order, or with some of them."""
        taken = {name: column.take(order) for name, column in self.columns.items()}
        return Table(self.row_type, taken, len(order))

    def whole(self, name: str) -> Whole:
        """A column of numbers."""
        return self._column(name, Whole)

    def lists(self, name: str) -> Lists:
        """A column of lists."""
        return self._column(name, Lists)

    def coded(self, name: str) -> Coded:
        """A column of texts."""
        return self._column(name, Coded)

    def _column(self, name: str, kind: type[C]) -> C:
        column = self.columns[name]
        if not isinstance(column, kind):
            raise TypeError(f"column {name} of {self.row_type.__name__} is not {kind.__name__}")
        return column


class TokenLists(Mapping[str, tuple[int, ...]]):
    """Token lists by their digest: `prompts.csv` or `outputs.csv`.

    `places` gives the place of a digest, `lists` the token ids by place.
    """

    def __init__(self, places: Mapping[str, int], lists: Lists) -> None:
        self.places = places
        self.lists = lists

    def __len__(self) -> int:
        """Distinct lists."""
        return len(self.places)

    def __iter__(self) -> Iterator[str]:
        """Their digests, in file order."""
        return iter(self.places)

    def __getitem__(self, digest: str) -> tuple[int, ...]:
        """The token ids of a digest."""
        place = self.places[digest]
        ids: tuple[int, ...] = self.lists.cells(place, place + 1)[0]
        return ids

    def at(self, places: Ints) -> list[tuple[int, ...]]:
        """The token ids at some places."""
        return self.lists.take(places).cells(0, len(places))


def owners(table: Table[Any], trials: Mapping[tuple[int, str, bool], int]) -> Ints:
    """For each row of requests or steps the number of its trial; -1 where there is no such trial.

    Args:
        table: Rows with `block`, `cell` and `warmup`.
        trials: The number of each (block, cell, warmup).
    """
    if not len(table):
        return np.zeros(0, np.int64)
    block, warmup = table.whole("block").values, table.whole("warmup").values
    cell = table.coded("cell")
    # Rows of one trial stand together as a rule, so that there are few stretches to look up.
    turns = (np.diff(block) != 0) | (np.diff(cell.codes) != 0) | (np.diff(warmup) != 0)
    starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(turns) + 1])
    lengths = np.diff(np.append(starts, len(table)))
    found = [
        trials.get((b, cell.texts[c] or "", bool(w)), -1)
        for b, c, w in zip(
            block[starts].tolist(), cell.codes[starts].tolist(), warmup[starts].tolist(),
            strict=True,
        )
    ]  # fmt: skip
    return np.repeat(np.array(found, np.int64), lengths)
