"""The rows of one CSV file, and every fault of form among them.

Rows are read a few thousand at a time. Where all cells of such a chunk are beyond question they go
into columns as they are (`bulk.py`); otherwise each cell is read by itself, and what is wrong
becomes a fault. A row with a fault is left out, and reading goes on, so that all faults come in one
go.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nanoserve_bench.bulk import Builder, Chunk, builder_of
from nanoserve_bench.columns import columns_of
from nanoserve_bench.schema import Row
from nanoserve_bench.tables import Coded, Lists, Table, TokenLists

R = TypeVar("R", bound=Row)
Lines = Iterable[str]

CHUNK = 4096
"""Rows that are looked at together: enough for arrays to pay, few enough to stay in a cache."""

csv.field_size_limit(2**31 - 1)  # a long output is one cell


class _Rows(NamedTuple):
    """Rows without a fault: their lines, their cells by column, and a chunk for each builder."""

    lines: Sequence[int]
    cells: Sequence[tuple[str, ...]]
    chunks: Sequence[Chunk]


class RowReader:
    """Reads one file.

    Args:
        row_type: What its rows are.
        lines: Its text.
        fault: Is told every fault: `fault(rule, file, message, row=, column=, value=)`.
    """

    def __init__(self, row_type: type[Row], lines: Lines, fault: Callable[..., None]) -> None:
        self._row_type = row_type
        self._columns = columns_of(row_type)
        self._lines = lines
        self._tell = fault

    def rows(self) -> tuple[Any, ...]:
        """The rows of a small file, as they are."""
        names = [column.name for column in self._columns]
        found = []
        keys: dict[tuple[object, ...], int] = {}
        for start, chunk in self._raw_chunks():
            for line, cells in enumerate(chunk, start):
                values = self._read(line, cells)
                if values is None:
                    continue
                row = self._row_type(**dict(zip(names, values, strict=True)))
                key = tuple(getattr(row, name) for name in row.KEY)
                if key in keys:
                    self._repeated(line, keys[key], key)
                    continue
                keys[key] = line
                found.append(row)
        return tuple(found)

    def table(self, known: Mapping[str, Mapping[str, int]]) -> Table[Any]:
        """The rows of a large file, as columns.

        Args:
            known: By column, texts that have a code already.
        """
        builders = [builder_of(column, known.get(column.name)) for column in self._columns]
        lines = array("q")
        for rows in self._chunks(builders):
            for builder, chunk in zip(builders, rows.chunks, strict=True):
                builder.append(chunk)
            lines.extend(rows.lines)
        data = {c.name: b.finish() for c, b in zip(self._columns, builders, strict=True)}
        table = Table(self._row_type, data, len(lines))
        self._refuse_repeated(table, lines)
        return table

    def token_lists(self) -> TokenLists:
        """`prompts.csv` or `outputs.csv`: every list under its digest, and every digest right."""
        _, column = self._columns
        builder = builder_of(column)
        places: dict[str, int] = {}
        lines = array("q")
        for rows in self._chunks([None, builder]):
            digests, texts = rows.cells
            fresh = [
                self._enter(line, digest, text, places, lines)
                for line, digest, text in zip(rows.lines, digests, texts, strict=True)
            ]
            if all(fresh):
                builder.append(rows.chunks[1])
            else:
                kept = list(itertools.compress(texts, fresh))
                builder.append(builder.gather(kept, [column.read(text) for text in kept]))
        lists = builder.finish()
        if not isinstance(lists, Lists):
            raise TypeError("token ids are lists")
        return TokenLists(places, lists)

    def _enter(
        self, line: int, digest: str, text: str, places: dict[str, int], lines: array[int]
    ) -> bool:
        """Enter a token list under its digest; False where that stands there already."""
        if digest in places:
            self._repeated(line, lines[places[digest]], (digest,))
            return False
        places[digest] = len(places)
        lines.append(line)
        # A cell has one spelling, so its text is what the digest is of.
        found = hashlib.sha256(text.encode("ascii")).hexdigest()
        if found != digest:
            message = f"the token ids have the digest {found}, not the one beside them"
            self._fault("REP006", message, row=line, column="sha256", value=digest)
        return True

    def _chunks(self, builders: Sequence[Builder | None]) -> Iterator[_Rows]:
        """The rows without a fault, and what each builder makes of its column.

        A column without a builder is checked by whoever asked.
        """
        width = len(self._columns)
        for start, chunk in self._raw_chunks():
            parsed: list[Chunk] = []
            cells: list[tuple[str, ...]] = []
            if set(map(len, chunk)) == {width}:
                cells = list(zip(*chunk, strict=True))
                for builder, column in zip(builders, cells, strict=True):
                    part = () if builder is None else builder.parse(column)
                    if part is None:
                        break
                    parsed.append(part)
            if len(parsed) == width:
                yield _Rows(range(start, start + len(chunk)), cells, parsed)
            else:
                yield self._careful_chunk(start, chunk, builders)

    def _careful_chunk(
        self, start: int, chunk: Sequence[list[str]], builders: Sequence[Builder | None]
    ) -> _Rows:
        """The same, cell by cell."""
        read = [(n, row, self._read(n, row)) for n, row in enumerate(chunk, start)]
        kept = [(line, row, values) for line, row, values in read if values is not None]
        cells = [tuple(row[i] for _, row, _ in kept) for i in range(len(builders))]
        chunks = [
            () if b is None else b.gather(cells[i], [values[i] for _, _, values in kept])
            for i, b in enumerate(builders)
        ]
        return _Rows([line for line, _, _ in kept], cells, chunks)

    def _read(self, line: int, cells: Sequence[str]) -> list[Any] | None:
        """The values of a row; None, with every fault told, where it has one."""
        width = len(self._columns)
        if len(cells) != width:
            self._fault("REP003", f"has {len(cells)} cells for {width} columns", row=line)
            return None
        values = []
        for column, cell in zip(self._columns, cells, strict=True):
            try:
                values.append(column.read(cell))
            except ValueError as error:
                self._fault("REP004", str(error), row=line, column=column.name, value=cell)
        return values if len(values) == width else None

    def _raw_chunks(self) -> Iterator[tuple[int, list[list[str]]]]:
        """The rows behind the header, with the line of the first: nothing without its header."""
        reader = csv.reader(self._lines, strict=True)
        line = 2
        broken = None
        try:
            if not self._check_header(next(reader)):
                return
        except csv.Error as error:
            broken = error
        while broken is None:
            chunk: list[list[str]] = []
            try:
                chunk.extend(itertools.islice(reader, CHUNK))  # keeps what came before an error
            except csv.Error as error:
                broken = error
            if chunk:
                yield line, chunk
            elif broken is None:
                return
            line += len(chunk)
        self._fault("REP001", f"is not CSV: {broken}", row=reader.line_num)

    def _check_header(self, header: list[str]) -> bool:
        expected = [column.name for column in self._columns]
        wrong = [("lacks a column", name) for name in expected if name not in header]
        for name in dict.fromkeys(header):
            if name not in expected:
                wrong.append(("has an unknown column", name))
            elif header.count(name) > 1:
                wrong.append(("has a column twice", name))
        for message, name in wrong:
            self._fault("REP003", message, row=1, column=name)
        if not wrong and header != expected:
            self._fault("REP003", "has its columns in another order", row=1)
        return header == expected

    def _refuse_repeated(self, table: Table[Any], lines: array[int]) -> None:
        names = self._row_type.KEY
        keys = [
            column.codes if isinstance(column, Coded) else table.whole(name).values
            for name, column in ((name, table.columns[name]) for name in names)
        ]
        order = np.lexsort(keys[::-1])  # stable: among equals the first in the file comes first
        same = np.ones(max(0, len(order) - 1), np.bool_)
        for key in keys:
            same &= key[order[1:]] == key[order[:-1]]
        first = 0
        for place in np.flatnonzero(same).tolist():
            if not (place and same[place - 1]):
                first = int(order[place])
            repeat = int(order[place + 1])
            row = table[repeat]
            repeated = tuple(getattr(row, name) for name in names)
            self._repeated(lines[repeat], lines[first], repeated)

    def _repeated(self, line: int, earlier: int, key: tuple[object, ...]) -> None:
        self._fault(
            "REP005",
            f"repeats the key of row {earlier}",
            row=line,
            column=", ".join(self._row_type.KEY),
            value=", ".join(map(str, key)),
        )

    def _fault(self, rule: str, message: str, **place: Any) -> None:
        self._tell(rule, self._row_type.FILE, message, **place)
