"""Figures that were drawn before: what has not changed is not drawn again.

A figure is a function of its module's code and of result folders, so it is kept under a digest of
both: every source file of the judge and of the report, the versions of what they draw and compute
with, and every byte of every folder that the figure is made of. Nothing else is kept; folders are
judged anew each time. An entry that is not whole is drawn again, and whoever wants everything drawn
(as `check` does) uses a store without a folder.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from nanoserve_report.figures.drawing import Drawing
from nanoserve_report.figures.svg import render
from nanoserve_report.history import Track
from nanoserve_report.study import Section, Study
from nanoserve_report.sweeps import Folder, Sweep

PACKAGES = ("nanoserve_bench", "nanoserve_report")
LIBRARIES = ("matplotlib", "numpy", "pandas", "scipy")
MOST_ENTRIES = 4096
"""Entries beyond which those that the last build did not use are removed."""

Subject = Sweep | Section | Study | Track | str
"""What a figure may be drawn from and be kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A figure as it is published; sizes in CSS pixels, `svg` and `csv` as the files hold them."""

    name: str
    title: str
    alt: str
    caption: str
    width: int
    height: int
    runs: tuple[str, ...]
    svg: str
    csv: str

    @classmethod
    def of(cls, drawing: Drawing) -> Drawn:
        """Render a drawing."""
        width, height = (96 * inches for inches in drawing.figure.get_size_inches())
        return cls(
            name=drawing.name,
            title=drawing.title,
            alt=drawing.alt,
            caption=drawing.caption,
            width=round(width),
            height=round(height),
            runs=drawing.runs,
            svg=render(drawing.figure).decode(),
            csv=drawing.to_csv(),
        )


@dataclass(kw_only=True)
class Store:
    """Draws, and remembers: within one build always, between builds below `folder`."""

    folder: Path | None = None
    _drawn: dict[str, Drawn] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)

    def draw(self, draw: Callable[..., Drawing], *subjects: Subject) -> Drawn:
        """What `draw(*subjects)` draws; from an earlier build where nothing of it has changed."""
        key = self._key(draw, subjects)
        if key not in self._drawn:
            self._drawn[key] = self._read(key) or Drawn.of(draw(*subjects))
            self._write(key, self._drawn[key])
        return self._drawn[key]

    def prune(self) -> None:
        """Remove what this build did not use, where there is much of it."""
        entries = [] if self.folder is None else list(self.folder.glob("*.json"))
        if len(entries) > MOST_ENTRIES:
            for path in entries:
                if path.stem not in self._drawn:
                    path.unlink(missing_ok=True)

    def _key(self, draw: Callable[..., Drawing], subjects: tuple[Subject, ...]) -> str:
        parts = [f"{draw.__module__}.{draw.__qualname__}", *map(self._fingerprint, subjects)]
        return _sha256(json.dumps([code_digest(), *parts]).encode())

    def _fingerprint(self, subject: Subject) -> str:
        """All that decides what is drawn of a subject: its folders, and which part of them."""
        if isinstance(subject, str):
            return f"text {subject}"
        if isinstance(subject, Study):
            inside = [self._folder(folder) for folder in subject.folders]
        elif isinstance(subject, Sweep):
            inside = [self._folder(subject.folder), repr(subject.setting)]
        elif isinstance(subject, Section):
            inside = [self._fingerprint(sweep) for sweep in subject.sweeps]
        else:
            inside = [
                self._fingerprint(sweep) for version in subject.versions for sweep in version.sweeps
            ]
        return json.dumps([type(subject).__name__, *inside])

    def _folder(self, folder: Folder) -> str:
        path = folder.verdict.path
        if path not in self._digests:
            self._digests[path] = folder_digest(path)
        return json.dumps([folder.name, repr(folder.retraction), self._digests[path]])

    def _read(self, key: str) -> Drawn | None:
        if self.folder is None:
            return None
        try:
            head, _, body = (self.folder / f"{key}.json").read_bytes().partition(b"\n")
            if head.decode() != _sha256(body):
                return None
            fields = json.loads(body)
            return Drawn(**{**fields, "runs": tuple(fields["runs"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None  # not there, not whole, or of another shape: drawn again

    def _write(self, key: str, drawn: Drawn) -> None:
        if self.folder is None:
            return
        path = self.folder / f"{key}.json"
        body = json.dumps(asdict(drawn)).encode()
        whole = _sha256(body).encode() + b"\n" + body
        if path.is_file() and path.read_bytes() == whole:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".part")
        scratch.write_bytes(whole)
        scratch.replace(path)


def folder_digest(path: Path) -> str:
    """sha256 over the names and bytes of the regular files directly in a folder."""
    digest = hashlib.sha256()
    entries = sorted(path.iterdir()) if path.is_dir() else []
    for entry in entries:
        if entry.is_file() and not entry.is_symlink():
            digest.update(f"{entry.name}\0{_sha256(entry.read_bytes())}\0".encode())
    return digest.hexdigest()


@functools.cache
def code_digest() -> str:
    """sha256 over every source file of the judge and the report, and the versions they run with."""
    digest = hashlib.sha256(
        repr(
            [
                sys.version,
                *(importlib.metadata.version(name) for name in LIBRARIES),
            ]
        ).encode()
    )
    for package in PACKAGES:
        for name, content in sorted(_sources(files(package), package)):
            digest.update(f"{name}\0{_sha256(content)}\0".encode())
    return digest.hexdigest()


def _sources(folder: Traversable, name: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _sources(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(".py"):
            found.append((f"{name}/{entry.name}", entry.read_bytes()))
    return found


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
