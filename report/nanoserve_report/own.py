"""What the project keeps of its own engine: speed tables, profiles of a step, soaks.

They stand beside the results root, each in a folder of its own. A folder that was changed, or whose
table says something else than what was measured, has no numbers here, only the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nanoserve_bench.errors import BenchError
from nanoserve_bench.perf import files as perf_files
from nanoserve_bench.perf import profile as profiles
from nanoserve_bench.perf.profile import Profile
from nanoserve_bench.soak.records import Soak, read_soak

PERF, SOAK = "perf", "soak"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A folder of which nothing is shown but why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """The records of the engine itself, the newest first."""

    tables: tuple[perf_files.Perf, ...] = ()
    profiles: tuple[Profile, ...] = ()
    soaks: tuple[Soak, ...] = ()
    refused: tuple[Refused, ...] = ()


def read(folder: Path) -> Own:
    """The records below a folder, which is the one that holds the results root."""
    refused: list[Refused] = []
    perfs = _folders(folder / PERF)
    tables = _each(perfs, perf_files.DOCUMENT, perf_files.read_perf, refused)
    taken = _each(perfs, profiles.DOCUMENT, perf_files.read_profile, refused)
    soaks = _each(_folders(folder / SOAK), "soak.json", read_soak, refused)
    return Own(
        tables=tuple(sorted(tables, key=lambda perf: perf.run.created_at, reverse=True)),
        profiles=tuple(sorted(taken, key=lambda profile: profile.created_at, reverse=True)),
        soaks=tuple(sorted(soaks, key=lambda soak: soak.created_at, reverse=True)),
        refused=tuple(refused),
    )


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _each(
    folders: list[Path], document: str, reader: Callable[[Path], T], refused: list[Refused]
) -> Iterator[T]:
    """What a reader makes of every folder that holds a document; reasons go into `refused`."""
    for path in folders:
        if not (path / document).is_file():
            continue
        try:
            yield reader(path)
        except BenchError as error:
            reason = " ".join(str(error).split())
            refused.append(Refused(name=f"{path.parent.name}/{path.name}", reason=reason))
