"""From pages to a site, and from a site to a version: mkdocs and mike, driven reproducibly.

Both run as they would on the command line, with `SOURCE_DATE_EPOCH` taken from the newest plan, so
that the site depends on its results and on nothing else: no clock, no path of this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from nanoserve_report import branch
from nanoserve_report import site as sites
from nanoserve_report.branch import BRANCH
from nanoserve_report.study import Study

IDENTITY = "nanoserve-report"
EPOCH_WITHOUT_RESULTS = "0"


class PublishError(Exception):
    """A site that could not be built or committed; the message carries what the program said."""


def environment(study: Study) -> dict[str, str]:
    """The environment of mkdocs and mike: a fixed date, and this Python's programs on the path."""
    values = dict(os.environ)
    values["SOURCE_DATE_EPOCH"] = epoch(study)
    values["NO_MKDOCS_2_WARNING"] = "1"
    values["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), values.get("PATH", "")))
    return values


def epoch(study: Study) -> str:
    """Seconds since 1970 of the newest plan; 0 where there is none that can be read."""
    if not study.newest:
        return EPOCH_WITHOUT_RESULTS
    try:
        return str(int(datetime.fromisoformat(study.newest).timestamp()))
    except ValueError:
        return EPOCH_WITHOUT_RESULTS


def build_site(root: Path, site: Path, study: Study) -> None:
    """Build the site strictly with the `mkdocs.yml` in `root`.

    It is one version by itself, so it has no selector: there is no list of versions to ask for.

    Raises:
        PublishError: mkdocs found something wrong, such as a link into nothing.
    """
    values = {**environment(study), "SITE_VERSIONS": "none"}
    _run(
        # Never --quiet: mkdocs then drops warnings before it counts them, and strict means nothing.
        [sys.executable, "-m", "mkdocs", "build", "--clean", "--strict",
         "--site-dir", str(site.resolve())],
        root, values, "the site could not be built",
    )  # fmt: skip


def publish(root: Path, study: Study, version: str, aliases: Sequence[str]) -> str:
    """Commit the site as a version to the branch `gh-pages`; nothing is pushed.

    The first version, and whatever `latest` is moved to, becomes what the site's root shows.

    Returns:
        What was done, in a sentence.

    Raises:
        PublishError: mkdocs, mike or git refused.
    """
    values = environment(study)
    for role in ("AUTHOR", "COMMITTER"):
        if f"GIT_{role}_NAME" not in values and not _configured(root, "user.name"):
            values[f"GIT_{role}_NAME"] = IDENTITY
        if f"GIT_{role}_EMAIL" not in values and not _configured(root, "user.email"):
            values[f"GIT_{role}_EMAIL"] = f"{IDENTITY}@localhost"
    before = branch.head(root)
    names = " ".join((version, *aliases))
    _mike(
        ["deploy", "--update-aliases", "--branch", BRANCH,
         "--message", f"Publish {names}", version, *aliases],
        root, values,
    )  # fmt: skip
    if "latest" in aliases or before is None:
        default = "latest" if "latest" in aliases else version
        _mike(["set-default", "--branch", BRANCH, default], root, values)
    try:
        branch.list_versions(root, sites.read(root), values)
    except branch.BranchError as error:
        raise PublishError(f"the versions could not be listed: {error}") from error
    if branch.head(root) == before:
        return f"{names}: unchanged, so nothing was committed."
    return f"{names}: committed to {BRANCH}. Push it with: git push origin {BRANCH}"


def _mike(arguments: Sequence[str], root: Path, values: Mapping[str, str]) -> None:
    code = "import sys; from mike.driver import main; sys.exit(main())"
    _run([sys.executable, "-c", code, *arguments], root, values, "the version was not published")


def _configured(root: Path, key: str) -> bool:
    return _git(root, "config", "--get", key) is not None


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(  # noqa: S603
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False  # noqa: S607
    )  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None


def _run(command: Sequence[str], root: Path, values: Mapping[str, str], failure: str) -> None:
    done = subprocess.run(  # noqa: S603 - our own arguments, no shell
        command, cwd=root, env=dict(values), capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-4000:]
        raise PublishError(f"{failure}:\n{said}")
