"""The three distributions are one release: same version, same licence, same Python, a changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

DISTRIBUTIONS = {
    "engine": "nanoserve",
    "bench": "nanoserve-bench",
    "report": "nanoserve-report",
}


@pytest.fixture(scope="module")
def projects(root: Path) -> dict[str, dict[str, Any]]:
    return {
        folder: tomllib.loads((root / folder / "pyproject.toml").read_text())["project"]
        for folder in DISTRIBUTIONS
    }


def test_each_folder_holds_the_distribution_of_its_name(projects: dict[str, Any]) -> None:
    assert {folder: project["name"] for folder, project in projects.items()} == DISTRIBUTIONS


def test_versions_agree_with_each_other_and_with_the_changelog(
    root: Path, projects: dict[str, Any]
) -> None:
    (version,) = {project["version"] for project in projects.values()}
    headings = re.findall(r"^## (\S+)", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings
    assert headings[0] == version


def test_a_version_in_the_code_is_the_version_of_its_distribution(
    root: Path, projects: dict[str, Any]
) -> None:
    stated = {
        (folder, match)
        for folder in DISTRIBUTIONS
        for module in (root / folder).rglob("*.py")
        for match in re.findall(r'^__version__ = "(.+)"$', module.read_text(), re.MULTILINE)
    }
    assert stated
    assert stated == {(folder, projects[folder]["version"]) for folder, _ in stated}


@pytest.mark.parametrize("key", ["requires-python", "license"])
def test_what_holds_for_one_holds_for_all(projects: dict[str, Any], key: str) -> None:
    assert len({str(project[key]) for project in projects.values()}) == 1


def test_each_distribution_ships_the_licence(root: Path) -> None:
    licence = (root / "LICENSE").read_bytes()
    assert b"Apache License" in licence
    for folder in DISTRIBUTIONS:
        assert (root / folder / "LICENSE").read_bytes() == licence, folder


def test_the_light_part_of_the_bench_declares_no_torch(projects: dict[str, Any]) -> None:
    heavy = ("torch", "transformers", "accelerate", "gguf", "nanoserve")
    for folder in ("bench", "report"):
        names = {
            re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0]
            for line in projects[folder]["dependencies"]
        }
        assert not names & set(heavy), folder
