"""REP014, applied: every number in a folder's tables is counted, and none stands where none may.

The judge cannot apply this rule, because it prints nothing. Here the tables of a folder's page are
gone through row by row beside the cells, pairs and doublings that they are made of; a number in the
row of something refused fails the build, whatever code put it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nanoserve_bench.soundness import (
    RefusedCell,
    RefusedComparison,
    RefusedMarginal,
    RuleOutcome,
)
from nanoserve_bench.soundness.rules.report_form import PAGES
from nanoserve_report import ladder, loads
from nanoserve_report.book import BookError
from nanoserve_report.links import Linker
from nanoserve_report.sweeps import AnyCell, AnyComparison, AnyMarginal, Folder, Sweep
from nanoserve_report.tables import Num, Table
from nanoserve_report.views import common
from nanoserve_report.views import ladder as ladder_table
from nanoserve_report.views import load as load_tables
from nanoserve_report.views import sweep as tables

HEADS = 2
"""Leading cells of every row that say what the row is of."""
Backing = Sequence[AnyCell] | Sequence[AnyComparison] | Sequence[AnyMarginal]


def outcomes(folder: Folder) -> tuple[RuleOutcome, ...]:
    """What every rule did to a folder, this one included.

    Raises:
        BookError: A number stands in the row of something that was refused.
    """
    return tuple(
        _applied(folder) if outcome.code == PAGES.code else outcome
        for outcome in folder.verdict.outcomes
    )


def _applied(folder: Folder) -> RuleOutcome:
    printed = 0
    for sweep in folder.sweeps:
        for table, backing in _tables(sweep):
            for row, item in zip(table.rows, backing, strict=True):
                numbers = [cell for cell in row[HEADS:] if isinstance(cell, Num)]
                if numbers and isinstance(item, RefusedCell | RefusedComparison | RefusedMarginal):
                    raise BookError(
                        f"{folder.name}: the table {table.caption!r} prints {numbers[0].text} in "
                        f"the row {', '.join(_head(cell) for cell in row[:HEADS])}, which is "
                        f"refused ({PAGES.code})"
                    )
                printed += len(numbers)
    return RuleOutcome(
        code=PAGES.code,
        name=PAGES.name,
        examined=printed,
        not_applicable=None if printed else "no number is printed",
        findings=(),
    )


def _tables(sweep: Sweep) -> Iterator[tuple[Table, Backing]]:
    linker = Linker(page=common.run_page(sweep.name))  # the pages themselves write the links
    for of_cells in (tables.throughput, tables.latencies, tables.splits):
        yield of_cells(sweep, linker), sweep.cells
    for of_pairs in (tables.factors, tables.latency_ratios):
        yield of_pairs(sweep, linker), sweep.comparisons
    yield tables.doublings(sweep, linker), sweep.marginals
    found = loads.loads(sweep)
    yield load_tables.offered(sweep, linker), [load.cell for load in found]
    each = [load.cell for load in found for _ in load_tables.METRICS]
    yield load_tables.percentiles(sweep, linker), each
    yield ladder_table.table(sweep, linker), [rung.shown for rung in ladder.rungs(sweep)]


def _head(cell: object) -> str:
    return str(getattr(cell, "text", ""))
