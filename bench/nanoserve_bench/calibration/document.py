"""Calibrations on disk, and what makes one no longer valid.

`<name>.json` is the record. `<name>.csv` and `<name>-intervals.csv` are what people open in a
spreadsheet: made from the record alone, and refused where they differ from it.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from nanoserve_bench import documents
from nanoserve_bench.calibration import simulate
from nanoserve_bench.calibration.noise import Source, sources
from nanoserve_bench.calibration.records import (
    SCHEMA,
    Calibration,
    IntervalOutcomes,
    Outcomes,
    SourceFacts,
)
from nanoserve_bench.results import MANIFEST
from nanoserve_bench.soundness.verdict import Verdict

REMEDY = "run `nanoserve-bench calibrate` again"


def files_of(calibration: Calibration) -> Mapping[str, str]:
    """The files of a calibration: name to content."""
    return {
        f"{calibration.name}.json": documents.encode(calibration),
        f"{calibration.name}.csv": _table(Outcomes, calibration.outcomes),
        f"{calibration.name}-intervals.csv": _table(IntervalOutcomes, calibration.intervals),
    }


def write(folder: Path, calibration: Calibration) -> Sequence[Path]:
    """Write the files of a calibration; those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, content in files_of(calibration).items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content.encode():
            path.write_bytes(content.encode())
            changed.append(path)
    return changed


def read(path: Path) -> tuple[Calibration | None, tuple[str, ...]]:
    """Read a calibration's `.json`; the record where it can be believed, and everything wrong."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return None, (f"{path.name} cannot be read: {error}",)
    version = documents.schema_version(text)
    if version != SCHEMA:
        return None, (f"{path.name} has the schema {version!r}, and {SCHEMA} is known",)
    record = documents.decode(Calibration, text, path.name)
    if not isinstance(record, Calibration):
        return None, tuple(str(fault) for fault in record)
    problems = list(_contradictions(record))
    if record.name != path.stem:
        problems.append(f"{path.name} calls itself {record.name!r}")
        return record, tuple(problems)
    for name, content in files_of(record).items():
        other = path.with_name(name)
        if not other.is_file():
            problems.append(f"{name} is missing beside {path.name}")
        elif other.read_bytes() != content.encode():
            problems.append(f"{name} is not what follows from the record")
    return record, tuple(problems)


def _contradictions(record: Calibration) -> Iterator[str]:
    """Counts that no simulation could have left behind."""
    names = {source.name for source in record.sources}
    for row in record.outcomes:
        words = row.faster + row.slower + row.no_difference + row.undecided
        known = [
            count
            for field in dataclasses.fields(row)
            if (field.name.endswith("held") or field.name.startswith("bare_"))
            and (count := getattr(row, field.name)) is not None
        ]
        if row.source not in names or row.studies != record.studies:
            yield f"a row of {row.source!r} with {row.studies} studies is of no source declared"
        if not 0 <= row.refused <= row.studies or words != row.stated:
            yield f"{row.source}: {words} verdicts and {row.refused} refusals of {row.studies}"
        if any(not 0 <= count <= row.stated for count in known):
            yield f"{row.source}: a count is not among 0 to {row.stated} studies"
    for item in record.intervals:
        if item.source not in names or not 0 <= item.held <= item.studies or item.studies <= 0:
            yield f"a row of intervals of {item.source!r} is of no source declared, or no count"
    if not record.sources or not record.outcomes:
        yield "nothing was simulated"


def stale(record: Calibration, verdicts: Mapping[str, Verdict]) -> tuple[str, ...]:
    """Why a calibration no longer stands for the folders it was made of; empty where it does.

    Args:
        record: The calibration.
        verdicts: Judged folders by run id, those that it names among them.
    """
    problems = []
    used = []
    for entry in record.inputs:
        verdict = verdicts.get(entry.run_id)
        if verdict is None or verdict.results is None:
            problems.append(f"its input {entry.run_id} is not among the readable folders")
            continue
        digest = sha256((verdict.path / MANIFEST).read_bytes()).hexdigest()
        if digest != entry.manifest_sha256:
            problems.append(f"its input {entry.run_id} is another one now: {REMEDY}")
        used.append(verdict)
    if problems:
        return tuple(problems)
    found, left_out = sources(used)
    problems += _differences(record.sources, tuple(source.facts for source in found))
    kept = {source.facts.name for source in found}
    missing = {row.source for row in record.outcomes} - kept
    problems += [f"its source {name} has no sound A/A pair any more" for name in sorted(missing)]
    if not problems and any(item not in record.left_out for item in left_out):
        problems.append("it does not say which pairs it left out")
    return tuple(problems or _replayed(record, found))


def _replayed(record: Calibration, found: Sequence[Source]) -> Iterator[str]:
    """Simulate the first studies of every kind again: code that makes others of them is another."""
    order = simulate.Order(name=record.name, seed=record.seed, studies=simulate.REPLAYED)
    kinds = {
        _kind(row): row.first_sha256
        for source in found
        for row in (simulate.count(setup, order) for setup in simulate.setups(source))
    }
    other = sum(kinds.get(_kind(row)) != row.first_sha256 for row in record.outcomes)
    if other or len(kinds) != len(record.outcomes):
        yield (
            f"the first studies of {other} of its {len(record.outcomes)} kinds, of {len(kinds)} "
            f"simulated now, do not come out as they did: {REMEDY}"
        )
    intervals = [row for source in found for row in simulate.compare_intervals(source, order)]
    if [row.first_sha256 for row in intervals] != [row.first_sha256 for row in record.intervals]:
        yield f"the other intervals do not come out as they did: {REMEDY}"


def _kind(row: Outcomes) -> tuple[object, ...]:
    return (
        row.source, row.run_length, row.arms, row.least, row.most, row.target_half_width, row.effect
    )  # fmt: skip


def _differences(stored: Sequence[SourceFacts], found: Sequence[SourceFacts]) -> Iterator[str]:
    by_name = {facts.name: facts for facts in found}
    for facts in stored:
        other = by_name.get(facts.name)
        if other is None:
            yield f"its source {facts.name} is not in its inputs"
            continue
        for field in dataclasses.fields(facts):
            one, two = getattr(facts, field.name), getattr(other, field.name)
            if not _same(one, two):
                yield f"{facts.name}: {field.name} is {one!r}, and its inputs say {two!r}"


def _same(one: object, two: object) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-9)
    return one == two


def _table(row_type: type[Any], rows: Sequence[Any]) -> str:
    names = [field.name for field in dataclasses.fields(row_type)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = (getattr(row, name) for name in names)
        writer.writerow(["" if value is None else value for value in values])
    return text.getvalue()
