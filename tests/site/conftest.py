"""Two published versions, a server of them, and one browser for all tests of the site."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from support.published import BROWSERS, FLAGS, Watched, report, served, site_root
from support.report_studies import sweep, write


@pytest.fixture(scope="package")
def three_sweeps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results root of the newest version."""
    return write(tmp_path_factory.mktemp("second") / "results", *(sweep(i) for i in range(3)))


@pytest.fixture(scope="package")
def clone(tmp_path_factory: pytest.TempPathFactory, three_sweeps: Path) -> Path:
    """A clone that has published two versions: one sweep in 0.1, three in 0.2."""
    tmp = tmp_path_factory.mktemp("site")
    root = site_root(tmp)
    first = write(tmp / "first", sweep())
    report(root, "publish", "0.1", "latest", "--results", str(first))
    said = report(root, "publish", "0.2", "latest", "--results", str(three_sweeps))
    assert "committed to gh-pages" in said
    again = report(root, "publish", "0.2", "latest", "--results", str(three_sweeps))
    assert "unchanged" in again, "the same content makes no second commit"
    return root


@pytest.fixture(scope="package")
def plain(clone: Path, three_sweeps: Path) -> Path:
    """The newest version as a site by itself."""
    report(clone, "build", str(three_sweeps), "--site", "plain")
    return clone / "plain"


@pytest.fixture(scope="package")
def tree(clone: Path) -> Path:
    """The tree of `gh-pages`."""
    archive = subprocess.run(
        ["git", "archive", "gh-pages"],
        cwd=clone,
        capture_output=True,
        check=True,
    )
    target = clone.parent / "tree"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(target, filter="data")
    return target


@pytest.fixture(scope="package")
def host(tree: Path) -> Iterator[str]:
    with served(tree) as address:
        yield address


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.fail(f"no Chromium found (looked for {', '.join(BROWSERS)}): install one")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def watched(browser: Browser, host: str) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watched = Watched(context.new_page(), host)
    yield watched
    context.close()
    assert watched.faults == []
