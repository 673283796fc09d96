"""Mutants of the rule about pages (REP014): a table that prints a number of something refused.

The judge prints nothing, so these are not broken folders but broken pages of one that is refused in
part, and it is the report that has to refuse them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from nanoserve_report.tables import Hole, Num
from nanoserve_report.views import sweep as tables

LEAKED = Num(value=1.0, text="1.00")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageMutant:
    """A table of a sweep that prints a number in every hole.

    Attributes:
        name: Unique among all mutants.
        rule: Code of the rule that must refuse it.
        story: What was done, in one sentence.
        table: Name of the table.
    """

    name: str
    rule: str
    story: str
    table: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While the table leaks."""
        honest = getattr(tables, self.table)

        def leaking(*arguments: Any) -> Any:
            made = honest(*arguments)
            rows = tuple(
                (*row[:2], *(LEAKED if isinstance(cell, Hole) else cell for cell in row[2:]))
                for row in made.rows
            )
            return dataclasses.replace(made, rows=rows)

        with mock.patch.object(tables, self.table, leaking):
            yield


PAGE_MUTANTS: tuple[PageMutant, ...] = tuple(
    PageMutant(name=name, rule="REP014", story=story, table=table)
    for name, story, table in (
        ("leaked-factor", "The factors of a refused comparison are printed.", "factors"),
        (
            "leaked-latency",
            "The latency ratios of a refused comparison are printed.",
            "latency_ratios",
        ),
        ("leaked-doubling", "What a refused doubling is worth is printed.", "doublings"),
    )
)
