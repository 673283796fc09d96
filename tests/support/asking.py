"""Asking single rules about a study in memory, one value of its rows changed at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.soundness import Finding, rule_of
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.judge import inspect
from nanoserve_bench.soundness.rule import Inspection
from support.rebuild import replace
from support.sound import study

Rows = tuple[Any, ...]


def sound(folder: Path) -> ResultSet:
    """The sound study: six cells of eight requests in eight blocks."""
    return read(study().write(folder / "run"))


def asked(results: ResultSet, code: str, **changes: Any) -> Inspection:
    """What one rule sees and refuses in the study with some of its tables or documents changed."""
    rule = rule_of(code)
    assert rule is not None
    return inspect(rule, Evidence.of(replace(results, **changes)))


def findings(results: ResultSet, code: str, **changes: Any) -> list[Finding]:
    """What one rule refuses."""
    return asked(results, code, **changes).findings


def rows(items: Rows, where: Callable[[Any], bool], **values: Any) -> Rows:
    """The rows with columns set where it is said; a callable value gets the row."""
    return tuple(
        replace(row, **{n: v(row) if callable(v) else v for n, v in values.items()})
        if where(row)
        else row
        for row in items
    )


def of(cell: str, block: int = 3, request: str | None = None) -> Callable[[Any], bool]:
    """Picks the rows of a measured trial, of one request where it is given."""
    return lambda row: (
        (row.block, row.cell, row.warmup) == (block, cell, False)
        and request in {None, getattr(row, "request", None)}
    )


def trial_of(results: ResultSet, cell: str, block: int = 3) -> Any:
    """The row of a measured trial."""
    (trial,) = filter(of(cell, block), results.trials)
    return trial


def line_of(results: ResultSet, cell: str, block: int = 3) -> int:
    """The line of a measured trial in trials.csv."""
    return results.trials.index(trial_of(results, cell, block)) + 2


def without(results: ResultSet, gone: Callable[[Any], bool]) -> dict[str, Rows]:
    """The tables of a study without some of its trials, by their block, cell and warmup."""
    return {
        table: tuple(row for row in getattr(results, table) if not gone(row))
        for table in ("trials", "requests", "steps")
    }


def of_blocks(results: ResultSet, count: int) -> dict[str, Rows]:
    """The tables of the first blocks of a study."""
    return {
        table: tuple(row for row in getattr(results, table) if row.block < count)
        for table in ("trials", "requests", "steps", "systems", "ceilings")
    }
