"""What a figure module returns: the drawing, what it says in words, and the data under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from nanoserve_bench.soundness import SoundCell, SoundComparison, SoundMarginal
from nanoserve_report.sweeps import AnyCell, AnyComparison, AnyMarginal

Value = str | int | float | None
ORIGIN = ("run", "blocks")
"""The columns that every figure's data ends with: the folders that a row is made of, separated by
spaces, and the blocks behind its figure (or, of a mean, behind each of its parts)."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with its finding and its data.

    Attributes:
        name: File name without ending; unique within a page's folder.
        title: What the figure shows, one line.
        alt: What it says, generated from the data: the text of somebody who cannot see it.
        caption: How to read it.
        columns: Names of the data's columns, units included; the last ones are `ORIGIN`.
        rows: The data, one row per drawn thing; None is an empty cell.
        figure: The drawing.
    """

    name: str
    title: str
    alt: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    figure: Figure

    def __post_init__(self) -> None:
        """A figure without data, without words, or of nobody knows what, is a mistake."""
        if not self.rows or not self.alt.strip():
            raise ValueError(f"figure {self.name!r} has no data or no alternative text")
        if self.columns[-2:] != ORIGIN or any(len(r) != len(self.columns) for r in self.rows):
            raise ValueError(f"figure {self.name!r}: the last columns of its data are not {ORIGIN}")
        hole = self.columns.index("hole")
        if any(row[-2] is None and row[hole] is None for row in self.rows):
            raise ValueError(f"figure {self.name!r}: a number of its data names no run")

    @property
    def runs(self) -> tuple[str, ...]:
        """The folders that its data names, each once, in the order of the data."""
        names = (name for row in self.rows for name in str(row[-2] or "").split())
        return tuple(dict.fromkeys(names))

    def to_csv(self) -> str:
        """The data as CSV."""
        return csv_text(self.columns, self.rows)


def blocks_of(item: AnyCell | AnyComparison | AnyMarginal) -> int | None:
    """The blocks that a judged thing's figures rest on; None where it is refused."""
    if isinstance(item, SoundCell):
        return item.throughput.n
    if isinstance(item, SoundComparison):
        return item.speedup.n
    return item.product.n if isinstance(item, SoundMarginal) else None


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    """Rows as CSV; floats to the last digit that reads back to the same value, None as empty.

    The table is of objects, so that a hole turns no count into a float.
    """
    frame = pd.DataFrame(list(rows), columns=list(columns), dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")
