"""The files of a run of the speed table: their only writer and their only reader.

`perf.json` holds what was measured and is replaced as a whole after every arm, so a kill costs the
arm in flight. The tables are written beside it for whoever opens a spreadsheet; the reader works
`perf.csv` out again and refuses one that says something else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nanoserve_bench import documents
from nanoserve_bench.columns import columns_of
from nanoserve_bench.perf import profile as profiling
from nanoserve_bench.perf.figures import figure_rows
from nanoserve_bench.perf.profile import Profile, ProfileRow
from nanoserve_bench.perf.records import SCHEMA_VERSION, FigureRow, PerfRun
from nanoserve_bench.record_files import (
    RecordError,
    read_document,
    read_table,
    replace_text,
    table_text,
)

DOCUMENT = "perf.json"


@dataclass(frozen=True, kw_only=True)
class Perf:
    """What stands in a folder: the run, its table, and the profile where one was taken."""

    path: Path
    run: PerfRun
    figures: tuple[FigureRow, ...]
    profile: Profile | None


def write_run(folder: Path, run: PerfRun) -> None:
    """Write what is there so far, and the table that follows from it."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / DOCUMENT, documents.encode(run))
    replace_text(folder / FigureRow.FILE, table_text(FigureRow, figure_rows(run)))


def read_run(folder: Path) -> PerfRun:
    """What was measured.

    Raises:
        RecordError: There is no such file, or it is not as it was written.
    """
    return read_document(PerfRun, folder / DOCUMENT, schema=SCHEMA_VERSION)


def read_perf(folder: Path) -> Perf:
    """A folder, its table checked against what was measured.

    Raises:
        RecordError: A file is missing, damaged, or disagrees; says which, and in which place.
    """
    run = read_run(folder)
    figures = read_table(FigureRow, folder / FigureRow.FILE)
    expected = figure_rows(run)
    difference = _difference(expected, figures)
    if difference is not None:
        raise RecordError(f"{folder / FigureRow.FILE}: {difference}")
    there = (folder / profiling.DOCUMENT).is_file()
    profile = read_profile(folder) if there else None
    return Perf(path=folder, run=run, figures=figures, profile=profile)


def write_profile(folder: Path, profile: Profile) -> None:
    """Write a profile, and its rows beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / profiling.DOCUMENT, documents.encode(profile))
    replace_text(folder / ProfileRow.FILE, table_text(ProfileRow, profile.rows))


def read_profile(folder: Path) -> Profile:
    """A profile.

    Raises:
        RecordError: It is missing, damaged, or its table says something else.
    """
    schema = profiling.SCHEMA_VERSION
    profile = read_document(Profile, folder / profiling.DOCUMENT, schema=schema)
    if read_table(ProfileRow, folder / ProfileRow.FILE) != profile.rows:
        raise RecordError(
            f"{folder / ProfileRow.FILE} says something else than {profiling.DOCUMENT}"
        )
    return profile


def _difference(expected: Sequence[FigureRow], found: Sequence[FigureRow]) -> str | None:
    """Where a table first disagrees with what was measured; None where it does not."""
    if len(expected) != len(found):
        return f"has {len(found)} rows, and what was measured gives {len(expected)}"
    for line, (ours, theirs) in enumerate(zip(expected, found, strict=True), start=2):
        for column in columns_of(FigureRow):
            right, wrong = getattr(ours, column.name), getattr(theirs, column.name)
            if not _same(right, wrong):
                return (
                    f"row {line}, column {column.name}: says {wrong!r}, and what was measured in "
                    f"{DOCUMENT} gives {right!r}; delete the table, or restore the folder"
                )
    return None


def _same(one: object, other: object) -> bool:
    """Equal, but for the last digits that another version of a library rounds otherwise."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
