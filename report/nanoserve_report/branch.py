"""The branch that holds the published versions: what is in it, and how its root gets files.

mike puts each version into a folder of its own. What concerns all of them stands at the root and is
made from what the branch holds, without checking it out.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nanoserve_report.feed import FEED, LLMS, Version, atom, llms
from nanoserve_report.site import Site

BRANCH = "gh-pages"
REF = f"refs/heads/{BRANCH}"
VERSIONS = "versions.json"
VERDICT = "results/verdict.json"


class BranchError(Exception):
    """git refused; the message carries what it said."""


def head(root: Path) -> str | None:
    """The branch's last commit; None where there is no such branch."""
    return _try(root, "rev-parse", "--verify", "--quiet", REF)


def versions(root: Path) -> tuple[Version, ...]:
    """What was published, newest first; a version without a verdict is left out."""
    listed = json.loads(_git(root, "show", f"{REF}:{VERSIONS}"))
    found = []
    for entry in listed:
        said = _try(root, "show", f"{REF}:{entry['version']}/{VERDICT}")
        if said is None:
            continue
        verdict = json.loads(said)
        found.append(
            Version(
                name=entry["version"],
                aliases=tuple(sorted(entry["aliases"])),
                verdict=verdict["words"],
                newest=verdict["newest"],
            )
        )
    return tuple(found)


def list_versions(root: Path, site: Site, values: Mapping[str, str]) -> None:
    """Put the feed and the list for programs at the branch's root; the same again is no commit.

    Args:
        root: The repository.
        site: Name and address.
        values: The environment of git, with the identity to commit with.

    Raises:
        BranchError: git refused.
    """
    found = versions(root)
    files = {FEED: atom(site, found), LLMS: llms(site, found)}
    before = _git(root, "rev-parse", REF)
    with tempfile.TemporaryDirectory() as scratch:
        own = {**values, "GIT_INDEX_FILE": str(Path(scratch) / "index")}
        _git(root, "read-tree", before, values=own)
        for name, content in files.items():
            blob = _git(root, "hash-object", "-w", "--stdin", values=own, given=content)
            _git(root, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", values=own)
        tree = _git(root, "write-tree", values=own)
    if tree == _git(root, "rev-parse", f"{before}^{{tree}}"):
        return
    commit = _git(
        root, "commit-tree", tree, "-p", before, "-m", "List the published versions", values=values
    )
    _git(root, "update-ref", REF, commit, before)


def _git(
    root: Path,
    *arguments: str,
    values: Mapping[str, str] | None = None,
    given: bytes | None = None,
) -> str:
    done = subprocess.run(  # noqa: S603 - our own arguments, no shell
        ["git", *arguments],  # noqa: S607
        cwd=root, env=None if values is None else dict(values), input=given, capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise BranchError(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode().strip()


def _try(root: Path, *arguments: str) -> str | None:
    try:
        return _git(root, *arguments) or None
    except BranchError:
        return None
