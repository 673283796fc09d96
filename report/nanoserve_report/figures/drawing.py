"""What a figure module returns: the drawing, what it says in words, and the data under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

Value = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with its finding and its data.

    Attributes:
        name: File name without ending; unique within a page's folder.
        title: What the figure shows, one line.
        alt: What it says, generated from the data: the text of somebody who cannot see it.
        caption: How to read it.
        columns: Names of the data's columns, units included.
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
        """A figure without data, or without words, is a mistake."""
        if not self.rows or not self.alt.strip():
            raise ValueError(f"figure {self.name!r} has no data or no alternative text")

    def to_csv(self) -> str:
        """The data as CSV."""
        return csv_text(self.columns, self.rows)


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    """Rows as CSV; floats to the last digit that reads back to the same value, None as empty.

    The table is of objects, so that a hole turns no count into a float.
    """
    frame = pd.DataFrame(list(rows), columns=list(columns), dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")
