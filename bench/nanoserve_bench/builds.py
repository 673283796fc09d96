"""This engine at another revision: checked out beside the code that is here, and built.

A revision lies in the cache as a clone of its own, which shares the objects of the repository,
holds the engine alone, and leaves no trace in the repository. Workers find it by their path. The
harness that measures and every library are the ones of the sweep: the engine is all that differs.
A folder of the cache can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nanoserve_bench import revision
from nanoserve_bench.errors import PlanError
from nanoserve_bench.models import cache_folder

_PACKAGE = "engine/nanoserve"
_COMPILER = "kernels/compile.py"
_TIMEOUT_S = 1800
_SHOWN = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """An engine that workers can import.

    Attributes:
        revision: The commit, in full.
        folder: What holds the package; it goes first on a worker's path.
        version: The version that the engine of that commit has.
    """

    revision: str
    folder: Path
    version: str


BuildEngine = Callable[[str], Build]


def build(name: str, *, checkout: Path | None = None, cache: Path | None = None) -> Build:
    """The engine at a revision of the repository, built now if it is not there yet.

    Args:
        name: A commit, a branch, a tag: whatever git understands.
        checkout: The repository; by default the one that this code, or else the current folder,
            is in.
        cache: Folder for what is built.

    Raises:
        PlanError: There is no repository, no such revision, no engine in it, or it does not build.
    """
    checkout = checkout or _checkout(name)
    commit = _commit(checkout, name)
    folder = (cache or cache_folder()) / "revisions" / commit[:16]
    if not _is_intact(folder, commit):
        shutil.rmtree(folder, ignore_errors=True)
        _make(checkout, commit, folder, name)
    version = runpy.run_path(str(folder / _PACKAGE / "_version.py"))["__version__"]
    return Build(revision=commit, folder=folder / "engine", version=str(version))


def _checkout(name: str) -> Path:
    for start in (Path(__file__).parent, Path.cwd()):
        top = revision.git(start, "rev-parse", "--show-toplevel")
        if top is not None and (Path(top) / _PACKAGE / "__init__.py").is_file():
            return Path(top)
    raise PlanError(
        f"@{name} is a revision of nanoserve's repository: start it in a checkout of it"
    )


def _commit(checkout: Path, name: str) -> str:
    found = revision.git(checkout, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if found is None:
        raise PlanError(
            f"the repository has no revision {name!r}: git fetch it; a checkout of CI needs the "
            "history (fetch-depth: 0)"
        )
    if revision.git(checkout, "cat-file", "-e", f"{found}:{_PACKAGE}/_version.py") is None:
        raise PlanError(f"revision {name!r} ({found[:12]}) has no engine in {_PACKAGE}")
    return found


def _is_intact(folder: Path, commit: str) -> bool:
    """Whether a folder of the cache holds that commit, and nobody changed it."""
    return (
        (folder / ".git").is_dir()
        and revision.git(folder, "rev-parse", "HEAD") == commit
        and revision.git(folder, "status", "--porcelain", "--untracked-files=no") == ""
    )


def _make(checkout: Path, commit: str, folder: Path, name: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place when it is whole: a killed build leaves no half of an engine.
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        clone = scratch / "clone"
        _run(name, "git", "clone", "-q", "--shared", "--no-checkout", str(checkout), str(clone))
        _run(name, "git", "-C", str(clone), "config", "core.sparseCheckout", "true")
        (clone / ".git/info").mkdir(exist_ok=True)
        (clone / ".git/info/sparse-checkout").write_text("/engine/\n", encoding="ascii")
        _run(name, "git", "-C", str(clone), "checkout", "-q", "--detach", commit)
        compiler = clone / _PACKAGE / _COMPILER
        if compiler.is_file():
            _compile(name, compiler)
        with contextlib.suppress(OSError):  # another sweep was faster, with the same commit
            clone.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not _is_intact(folder, commit):
        raise PlanError(f"the build of revision {name!r} could not be put into {folder}")


def _compile(name: str, compiler: Path) -> None:
    """Compile the kernels; where the engine that is here has none either, do without."""
    try:
        _run(name, sys.executable, str(compiler))
    except PlanError as error:
        if has_kernels():
            raise PlanError(
                f"{error}\nWithout its kernels it would be another engine than the one that is "
                "here, which has them."
            ) from error


def has_kernels() -> bool:
    """Whether the engine that is imported here has compiled kernels."""
    spec = importlib.util.find_spec("nanoserve")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return any(any(Path(folder, "kernels").glob("*.so")) for folder in folders)


def _run(name: str, *command: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own git, and our own compiler script
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"revision {name!r} cannot be built: {error}") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-_SHOWN:]
        raise PlanError(f"revision {name!r} cannot be built:\n{said}")
