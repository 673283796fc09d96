"""Which code measured: the git revision where there is one, and a digest of the sources always.

A revision alone does not say what ran: a checkout can be dirty, and an installed package is in no
checkout. The digest of the very files that were imported does, and a sweep goes on only under the
digest it started with.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = ("nanoserve", "nanoserve_bench")
_SOURCE_SUFFIXES = {".py", ".cpp", ".h", ".hpp", ".cu"}
_CONSTRAINTS = "constraints.txt"
_MEASURING = ("engine", "bench/nanoserve_bench", "bench/pyproject.toml", _CONSTRAINTS)
"""What decides what is measured; results and pages may lie about uncommitted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """Attributes are None where the code does not run from a git checkout, or git does not say.

    Attributes:
        commit: The commit that is checked out.
        dirty: Whether the code that measures differs from it.
        sources: sha256 over the source files of engine and benchmark, as imported.
        constraints: sha256 of `constraints.txt`.
    """

    commit: str | None
    dirty: bool | None
    sources: str
    constraints: str | None

    @property
    def short(self) -> str:
        """A few characters that name the code, for a run id."""
        return (self.commit or self.sources)[:7]


def current() -> Revision:
    """The revision of the code that is running."""
    package = Path(__file__).parent
    checkout = _checkout_of(package)
    if checkout is None:
        return Revision(commit=None, dirty=None, sources=source_digest(), constraints=None)
    constraints = checkout / _CONSTRAINTS
    status = git(checkout, "status", "--porcelain", "--", *_MEASURING)
    return Revision(
        commit=git(checkout, "rev-parse", "HEAD"),
        dirty=None if status is None else bool(status),
        sources=source_digest(),
        constraints=hashlib.sha256(constraints.read_bytes()).hexdigest()
        if constraints.is_file()
        else None,
    )


def commit_of(package: str) -> str | None:
    """The commit whose checkout an importable package lies in; None where it is in none."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        checkout = _checkout_of(Path(folder))
        return None if checkout is None else git(checkout, "rev-parse", "HEAD")
    return None


def _checkout_of(package: Path) -> Path | None:
    """The checkout that tracks this package; an environment inside a checkout is none of it."""
    top = git(package, "rev-parse", "--show-toplevel")
    if top is None or not git(package, "ls-files", "--", "__init__.py"):
        return None
    return Path(top)


def git(folder: Path, *arguments: str) -> str | None:
    """What git says in a folder; None where it fails, or there is no git."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own git
            ["git", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def source_digest() -> str:
    """sha256 over names and contents of the source files of engine and benchmark."""
    digest = hashlib.sha256()
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            root = Path(folder)
            for path in sorted(p for p in root.rglob("*") if p.suffix in _SOURCE_SUFFIXES):
                digest.update(f"{name}/{path.relative_to(root).as_posix()}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
