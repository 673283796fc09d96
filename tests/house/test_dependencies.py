"""What a package imports, its distribution declares; what only a sweep needs is in an extra."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES = {
    "engine": "nanoserve",
    "bench": "nanoserve_bench",
    "report": "nanoserve_report",
}


def imported(package: Path) -> Iterator[tuple[str, Path]]:
    """Top-level modules that are imported anywhere in a package, at its top or later."""
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name.split(".")[0], path) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.split(".")[0], path


def declared(root: Path, folder: str) -> tuple[set[str], set[str]]:
    """The distributions that a folder's dependencies name, and those of its extras."""
    project = tomllib.loads((root / folder / "pyproject.toml").read_text("utf-8"))["project"]
    plain = project["dependencies"]
    extra = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    names = [
        {canonicalize_name(Requirement(line).name) for line in part} for part in (plain, extra)
    ]
    return names[0], names[1]


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_import_is_declared(root: Path, folder: str) -> None:
    package = root / folder / PACKAGES[folder]
    plain, extra = declared(root, folder)
    homes = importlib.metadata.packages_distributions()
    homes |= {name: [name] for name in PACKAGES.values()}
    missing, seen = set(), 0
    for module, path in imported(package):
        if module in sys.stdlib_module_names or module == PACKAGES[folder]:
            continue
        seen += 1
        optional = "systems" in path.parts or path.stem.startswith("triton_")
        allowed = plain | (extra if optional else set())
        if not {canonicalize_name(home) for home in homes.get(module, [module])} & allowed:
            missing.add(f"{path.relative_to(root)} imports {module}")
    assert seen
    assert missing == set()
