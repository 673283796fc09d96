"""Tables as data: what a cell may be, and nothing else may stand in one.

A number enters a table only as a `Num`, which is made from an estimate of something sound (or from
an exact value of a sound run). What has no number is a `Hole` with its reason, and a hole has no
numeric attribute that a template could print.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from nanoserve_report.numbers import Shown
from nanoserve_report.setting import slug

SHORT = 22
"""Letters up to which words in a cell stay on one line, as `hf-generate, 1 slot` does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Num:
    """A printed number: text, interval if it has one, and the value it sorts by."""

    value: float
    text: str
    interval: str = ""
    quoted: bool = False
    kind: ClassVar[str] = "num"

    @property
    def css(self) -> str:
        """Class of the table cell."""
        return "ns-num ns-quoted" if self.quoted else "ns-num"

    @property
    def sort(self) -> str:
        """What the column sorts by."""
        return f"{self.value:.9g}"

    @staticmethod
    def of(shown: Shown) -> Num:
        """From an estimate's text."""
        return Num(value=shown.value, text=f"{shown.point}{shown.unit}", interval=shown.interval)


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """Words, perhaps a link; `tone` is `good`, `bad`, `muted`, `code` or empty."""

    text: str
    href: str = ""
    tone: str = ""
    kind: ClassVar[str] = "text"

    @property
    def css(self) -> str:
        """Class of the table cell."""
        name = f"ns-{self.tone}" if self.tone else "ns-text"
        if len(self.text) > SHORT:
            return f"{name} ns-long"
        breaks = len(self.text.replace("-", " ").split()) > 1
        return f"{name} ns-short" if breaks else name

    @property
    def sort(self) -> str:
        """What the column sorts by."""
        return self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class Hole:
    """A place without a number, with the reason and where to read more."""

    reason: str
    href: str = ""
    kind: ClassVar[str] = "hole"

    @property
    def css(self) -> str:
        """Class of the table cell."""
        return "ns-hole"

    @property
    def sort(self) -> str:
        """Holes have nothing to sort by and come last."""
        return ""


Cell = Num | Text | Hole


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column head: label and unit below it."""

    label: str
    unit: str = ""
    numeric: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table with a caption; rows marked in `strong` stand out (a baseline).

    A `wrapped` table has long heads, which are broken over lines rather than scrolled away.
    A `prose` table holds sentences: on a narrow screen its rows are stacked, empty cells left out.
    One with an `anchor` gives every row an address of its own, made of its `named` cells.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    strong: frozenset[int] = field(default_factory=frozenset)
    sortable: bool = True
    prose: bool = False
    wrapped: bool = False
    anchor: str = ""
    named: tuple[int, ...] = (0, 1)

    def __post_init__(self) -> None:
        """Every row has a cell for every column."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.caption!r}: {len(row)} cells for {len(self.columns)} columns"
                )

    def at(self, anchor: str) -> Table:
        """The same table where every row has an address below this one."""
        return replace(self, anchor=anchor)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The anchor of every row, each another; empty where the table has none."""
        if not self.anchor:
            return ("",) * len(self.rows)
        seen: Counter[str] = Counter()
        found = []
        for row in self.rows:
            named = (row[place] for place in self.named)
            names = [cell.text for cell in named if not isinstance(cell, Hole)]
            address = slug("-".join([self.anchor, *names]))
            seen[address] += 1
            found.append(address if seen[address] == 1 else f"{address}--{seen[address]}")
        return tuple(found)

    def spans(self, row: tuple[Cell, ...]) -> list[tuple[Cell, int, str]]:
        """A row's cells with their width in columns and their head; equal holes become one."""
        merged: list[tuple[Cell, int, str]] = []
        for cell, column in zip(row, self.columns, strict=True):
            if merged and isinstance(cell, Hole) and merged[-1][0] == cell:
                merged[-1] = (cell, merged[-1][1] + 1, merged[-1][2])
            else:
                merged.append((cell, 1, column.label))
        return merged

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        """The rows."""
        return iter(self.rows)


def text_columns(*labels: str) -> tuple[Column, ...]:
    """Columns of words."""
    return tuple(Column(label=label, numeric=False) for label in labels)
