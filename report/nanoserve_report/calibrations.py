"""The calibrations beside the results, each held against the folders that it was made of.

One that differs from its inputs, from its own tables or from the code that judges is refused as a
whole: a refused calibration has no record, and so no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nanoserve_bench.calibration import document
from nanoserve_bench.calibration.records import Calibration
from nanoserve_bench.soundness import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class SoundCalibration:
    """A calibration whose counts may be printed, and the folder that its files stand in."""

    name: str
    folder: Path
    record: Calibration


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedCalibration:
    """A calibration of which nothing may be printed but why."""

    name: str
    problems: tuple[str, ...]


AnyCalibration = SoundCalibration | RefusedCalibration


def judged(folder: Path, verdicts: Mapping[str | None, Verdict]) -> tuple[AnyCalibration, ...]:
    """Every calibration of a folder, by name; none where there is no such folder.

    A table without its record is refused like a record without its tables.
    """
    if not folder.is_dir():
        return ()
    known = {run_id: verdict for run_id, verdict in verdicts.items() if run_id is not None}
    found: list[AnyCalibration] = []
    owned = set()
    for path in sorted(folder.glob("*.json")):
        record, problems = document.read(path)
        if record is not None:
            owned |= set(document.files_of(record))
        if record is not None and not problems:
            problems = document.stale(record, known)
        if record is None or problems:
            found.append(RefusedCalibration(name=path.stem, problems=problems))
        else:
            found.append(SoundCalibration(name=path.stem, folder=folder, record=record))
    found += [
        RefusedCalibration(name=path.stem, problems=(f"{path.name} belongs to no calibration",))
        for path in sorted(folder.glob("*.csv"))
        if path.name not in owned and not any(item.name in path.stem for item in found)
    ]
    return tuple(found)
