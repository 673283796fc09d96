"""Which code measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nanoserve_bench import revision


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a benchmark in it, which is the one that runs."""
    package = tmp_path / "bench" / "nanoserve_bench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "revision.py").write_text("")
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    monkeypatch.setattr(revision, "__file__", str(package / "revision.py"))
    return tmp_path


def test_a_clean_checkout_names_its_commit(checkout: Path) -> None:
    found = revision.current()
    assert found.commit == git(checkout, "rev-parse", "HEAD")
    assert found.dirty is False
    assert found.short == found.commit[:7]
    assert found.constraints is not None


def test_a_change_of_what_measures_is_dirty_and_a_result_is_not(checkout: Path) -> None:
    (checkout / "bench" / "results").mkdir()
    (checkout / "bench" / "results" / "a.csv").write_text("1")
    (checkout / "README.md").write_text("hello")
    assert revision.current().dirty is False
    (checkout / "bench" / "nanoserve_bench" / "__init__.py").write_text("changed = True\n")
    assert revision.current().dirty is True


def test_a_git_that_does_not_answer_leaves_the_state_of_the_tree_unknown(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = revision.git
    monkeypatch.setattr(
        revision, "git", lambda folder, *args: None if args[0] == "status" else ask(folder, *args)
    )
    found = revision.current()
    assert found.commit == git(checkout, "rev-parse", "HEAD")
    assert found.dirty is None


def test_an_environment_inside_a_checkout_is_no_part_of_it(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = checkout / ".nox" / "site-packages" / "nanoserve_bench"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    monkeypatch.setattr(revision, "__file__", str(installed / "revision.py"))
    found = revision.current()
    assert (found.commit, found.dirty, found.constraints) == (None, None, None)
    assert found.short == found.sources[:7]


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision.current().commit is None


def test_the_digest_of_the_sources_sees_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "thing"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kernel.cpp").write_text("int x;")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(revision, "_PACKAGES", ("thing",))
    first = revision.source_digest()
    (package / "notes.txt").write_text("nothing that runs")
    assert revision.source_digest() == first
    (package / "kernel.cpp").write_text("int y;")
    second = revision.source_digest()
    (package / "kernel.cpp").rename(package / "kernel2.cpp")
    assert len({first, second, revision.source_digest()}) == 3
