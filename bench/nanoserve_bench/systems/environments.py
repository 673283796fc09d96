"""Environments of rivals: a virtual environment each, looked into without starting its Python.

`nox -s rival -- NAME` makes one in `.nox/rival-NAME` of the checkout. Without one, or to keep
them elsewhere, `NANOSERVE_RIVALS` names the folder that holds them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from nanoserve_bench.models import cache_folder

_VARIABLE = "NANOSERVE_RIVALS"


def rivals_folder() -> Path:
    """The folder that holds the environments."""
    chosen = os.environ.get(_VARIABLE)
    if chosen:
        return Path(chosen)
    checkout = Path(__file__).resolve().parents[3]
    return checkout / ".nox" if (checkout / "noxfile.py").is_file() else cache_folder() / "rivals"


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The environment of a rival, whether it is there or not."""

    name: str

    @property
    def folder(self) -> Path:
        """Where it is to be found."""
        return rivals_folder() / f"rival-{self.name}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        windows = self.folder / "Scripts" / "python.exe"
        return windows if windows.is_file() else self.folder / "bin" / "python"

    def version_of(self, distribution: str) -> str:
        """The version of a distribution that it holds.

        Raises:
            PackageNotFoundError: It does not hold it.
        """
        sites = [*self.folder.glob("lib/python3*/site-packages"), self.folder / "Lib/site-packages"]
        for found in distributions(name=distribution, path=[str(site) for site in sites]):
            return found.version
        raise PackageNotFoundError(distribution)

    def problem(self, distribution: str) -> str:
        """Why a rival cannot run in it, and what to do; empty when it can."""
        how = f"`nox -s rival -- {self.name}` makes it"
        failure = self.folder / "not-installed.txt"
        if failure.is_file():
            return f"it could not be installed: {failure.read_text('utf-8').strip()}"
        if not self.python.exists():
            return f"it has no environment {self.folder.name}: {how}"
        try:
            self.version_of(distribution)
        except PackageNotFoundError:
            return f"its environment {self.folder.name} lacks {distribution}: {how} anew"
        return ""


def libraries(*names: str) -> tuple[tuple[str, str], ...]:
    """Name and version of each distribution that is installed in this interpreter."""
    found = []
    for name in names:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return tuple(found)
