"""The speed table on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from nanoserve_bench.perf.figures import Standing
from nanoserve_bench.perf.profile import ProfileRow
from nanoserve_bench.perf.records import FigureRow, PerfRun

_BOUND = "measured bound"
_STYLES = {
    Standing.MET: "green",
    Standing.MISSED: "red",
    Standing.UNDECIDED: "yellow",
    Standing.REFUSED: "bold red",
    Standing.HOLE: "dim",
}


def print_figures(run: PerfRun, figures: Sequence[FigureRow], console: Console) -> None:
    """Goals, points, intervals, absolutes of both sides, the floor, and the notes below."""
    table = Table(box=None, pad_edge=False, title=run.run_id, title_justify="left")
    table.add_column("figure", overflow="fold")
    for title in ("goal", "measured", "interval", "rounds", "", "engine", "reference", _BOUND):
        table.add_column(title, justify="right" if title else "left")
    for row in figures:
        table.add_row(*_cells(row), style=_STYLES[Standing(row.verdict)])
    console.print(table)
    for row in figures:
        if row.note or row.disturbed:
            disturbed = f"{row.disturbed} of {row.rounds} rounds disturbed" if row.disturbed else ""
            note = "; ".join(filter(None, (row.note, disturbed)))
            console.print(f"{row.figure}: {note}", markup=False, highlight=False)


def _cells(row: FigureRow) -> tuple[str, ...]:
    sign = "<=" if row.at_most else ">="
    interval = "" if row.low is None or row.high is None else f"{row.low:.3g} to {row.high:.3g}"
    return (
        row.title,
        f"{sign} {row.goal:g} {row.unit}",
        "" if row.point is None else f"{row.point:.3g} {row.unit}",
        interval,
        str(row.rounds),
        row.verdict,
        _absolute(row.candidate, row.candidate_unit),
        _absolute(row.reference, row.reference_arm or ""),
        "" if row.floor is None else f"{row.floor:.4g}",
    )


def _absolute(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.4g} {unit}".rstrip()


def print_profile(rows: Sequence[ProfileRow], console: Console) -> None:
    """The phases of a step, variant by variant, in milliseconds."""
    table = Table(box=None, pad_edge=False, title="a decode step", title_justify="left")
    for title in ("variant", "rows", "phase", "ms", "quartiles", "how"):
        table.add_column(title, overflow="fold", justify="right" if title == "ms" else "left")
    for row in rows:
        spread = "" if row.low is None or row.high is None else f"{_ms(row.low)} to {_ms(row.high)}"
        value = "" if row.seconds is None else _ms(row.seconds)
        table.add_row(row.variant, str(row.rows), row.phase, value, spread, row.how)
    console.print(table)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
