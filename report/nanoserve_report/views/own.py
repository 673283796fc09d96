"""The tables of the engine itself: goals and what was measured, a step's phases, the soak."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nanoserve_bench.perf.figures import Standing
from nanoserve_bench.perf.profile import ONE_READ, Profile, ProfileRow
from nanoserve_bench.perf.records import FigureRow, PerfRun
from nanoserve_bench.soak.records import Finding, Soak
from nanoserve_report import numbers
from nanoserve_report.tables import Cell, Column, Hole, Num, Table, Text, text_columns

PRINTED = {
    "s": (1e3, "ms"),
    "bytes": (1e-9, "GB"),
    "bytes/s": (1e-9, "GB/s"),
    "tok/s in full steps": (1.0, "tok/s"),
}
"""Units that are printed in another one, and how many of it one is."""
TONES = {Standing.MET: "good", Standing.MISSED: "bad", Standing.REFUSED: "bad"}
GOOD = {Finding.IDENTICAL, Finding.NEAR_TIES}
WHOLE, MODEL, REST = "step", "model", "rest of the model"
PHASES = (
    WHOLE,
    MODEL,
    "linears",
    "attention",
    REST,
    "sampler",
    "batch assembly",
    "scheduler and bookkeeping",
    ONE_READ,
)
_ONE = re.compile(r"\b1 slots\b")
"""What the records of earlier soaks say of a single slot."""
NOT_TOLD = Hole(reason="not told apart")
NOT_READ = Hole(reason="not measured beside it")


def speed(run: PerfRun, figures: Sequence[FigureRow]) -> Table:
    """Every goal, won or lost; what a row has to say stands below the table, under its number."""
    numbered = {note: place for place, (note, _) in enumerate(notes(figures), start=1)}
    return Table(
        caption=f"The speed table, {run.run_id}",
        columns=(
            Column(label="figure", numeric=False),
            Column(label="goal"),
            Column(label="measured", unit="95 % interval"),
            Column(label="rounds"),
            Column(label="verdict", numeric=False),
            Column(label="engine"),
            Column(label="against"),
            Column(label="measured bound"),
        ),
        rows=tuple(_speed_row(row, numbered.get(_note(row), 0)) for row in figures),
        sortable=False,
        wrapped=True,
    )


def notes(figures: Sequence[FigureRow]) -> list[tuple[str, list[str]]]:
    """What has to be said of the figures, each once, with the titles that it is said of."""
    found: dict[str, list[str]] = {}
    for row in figures:
        if _note(row):
            found.setdefault(_note(row), []).append(row.title)
    return list(found.items())


def _note(row: FigureRow) -> str:
    disturbed = f"{row.disturbed} of {row.rounds} rounds disturbed" if row.disturbed else ""
    return "; ".join(filter(None, (row.note, disturbed)))


def anchor(number: int) -> str:
    """Of a note below the table."""
    return f"speed-note-{number}"


def _speed_row(row: FigureRow, number: int) -> tuple[Cell, ...]:
    sign = "\N{LESS-THAN OR EQUAL TO}" if row.at_most else "\N{GREATER-THAN OR EQUAL TO}"
    unit = _unit(row.unit)
    said, href = (f", note {number}", f"#{anchor(number)}") if number else ("", "")
    verdict = Text(
        text=f"{row.verdict}{said}", href=href, tone=TONES.get(Standing(row.verdict), "muted")
    )
    goal = Num(value=row.goal, text=f"{sign} {row.goal:g}{unit}")
    if row.point is None or row.candidate is None:
        nothing = Hole(reason="no number")
        return (Text(text=row.title), goal, nothing, nothing, verdict, *([nothing] * 3))
    interval = ""
    if row.low is not None and row.high is not None:
        interval = f"{numbers.significant(row.low)}{numbers.EN}{numbers.significant(row.high)}"
    point = f"{numbers.significant(row.point)}{unit}"
    return (
        Text(text=row.title),
        goal,
        Num(value=row.point, text=point, interval=interval),
        Num(value=row.rounds, text=str(row.rounds)),
        verdict,
        _absolute(row.candidate, row.candidate_unit, ""),
        _absolute(row.reference, row.candidate_unit, "" if row.reference_arm else "not a ratio"),
        _absolute(row.floor, row.candidate_unit, "not worked out"),
    )


def _unit(unit: str) -> str:
    return numbers.TIMES if unit == "x" else f"\N{NO-BREAK SPACE}{unit}"


def _absolute(value: float | None, unit: str, why: str) -> Cell:
    if value is None:
        return Hole(reason=why)
    scale, name = PRINTED.get(unit, (1.0, unit))
    printed = numbers.significant(value * scale)
    return Num(value=value, text=f"{printed}\N{NO-BREAK SPACE}{name}")


def phases(profile: Profile) -> Table:
    """A decode step, phase by phase, for every way to compute it."""
    found: dict[tuple[str, int], dict[str, ProfileRow]] = {}
    for row in profile.rows:
        found.setdefault((row.variant, row.rows), {})[row.phase] = row
    return Table(
        caption=f"A decode step in milliseconds, {profile.run_id}",
        columns=(
            *text_columns("variant"),
            Column(label="rows"),
            *(Column(label=_heading(phase), unit="ms, quartiles") for phase in PHASES),
        ),
        rows=tuple(
            (
                Text(text=variant + ", disturbed" * (variant in disturbed_variants(profile))),
                Num(value=rows, text=str(rows)),
                *(_phase(parts, phase) for phase in PHASES),
            )
            for (variant, rows), parts in found.items()
        ),
        sortable=False,
        wrapped=True,
    )


def disturbed_variants(profile: Profile) -> frozenset[str]:
    """The variants during which something else was using the machine."""
    return frozenset(line.partition(":")[0] for line in profile.disturbed)


def _heading(phase: str) -> str:
    named = {WHOLE: "whole step", MODEL: "forward pass", ONE_READ: "one read of the weights"}
    return named.get(phase, phase)


def _phase(parts: dict[str, ProfileRow], phase: str) -> Cell:
    failed = next((row for row in parts.values() if row.seconds is None), None)
    if failed is not None:
        return Hole(reason=failed.how)
    row = parts.get(phase)
    if row is None or row.seconds is None:
        return NOT_READ if phase == ONE_READ else NOT_TOLD
    return Num(value=row.seconds, text=milliseconds(row.seconds), interval=quartiles(row))


def quartiles(row: ProfileRow) -> str:
    """The lower and the upper one, in milliseconds; empty where there was one reading."""
    if row.low is None or row.high is None:
        return ""
    return f"{milliseconds(row.low)}{numbers.EN}{milliseconds(row.high)}"


def milliseconds(seconds: float) -> str:
    """A time of a profile as it is printed."""
    return f"{seconds * 1e3:,.2f}"


def soak(record: Soak) -> Table:
    """What every case of a soak found."""
    return Table(
        caption=f"Tokens against the reference's, {record.run_id}",
        columns=(
            *text_columns("case", "settings", "finding"),
            *(
                Column(label=label)
                for label in (
                    *("requests", "tokens", "identical", "near-ties", "bugs"),
                    *("preemptions", "further pieces", "cached tokens"),
                )
            ),
        ),
        rows=tuple(
            (
                Text(text=case.case),
                Text(text=_ONE.sub("1 slot", case.settings)),
                Text(
                    text=case.finding if case.note is None else f"{case.finding}: {case.note}",
                    tone="good" if case.finding in GOOD else "bad",
                ),
                *(
                    Num(value=count, text=f"{count:,}")
                    for count in (
                        *(case.requests, case.tokens, case.identical, case.near_ties, case.bugs),
                        *(case.preemptions, case.chunks, case.cached_tokens),
                    )
                ),
            )
            for case in record.cases
        ),
        sortable=False,
        wrapped=True,
    )
