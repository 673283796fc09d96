"""constraints.txt pins all that is declared and all that it needs in turn, and exactly."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from nanoserve_bench.systems import find_all

DISTRIBUTIONS = ("engine", "bench", "report")
OURS = {"nanoserve", "nanoserve-bench", "nanoserve-report"}
PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][0-9A-Za-z.]*)")


@pytest.fixture(scope="module")
def lines(root: Path) -> list[str]:
    text = (root / "constraints.txt").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def pins(lines: list[str]) -> dict[str, Version]:
    found = [PIN.fullmatch(line) for line in lines]
    return {canonicalize_name(pin["name"]): Version(pin["version"]) for pin in found if pin}


def declared(root: Path) -> Iterator[tuple[str, Requirement]]:
    """Every requirement that the repository states, with where it states it."""
    for folder in DISTRIBUTIONS:
        tables = tomllib.loads((root / folder / "pyproject.toml").read_text())
        project = tables["project"]
        groups = {"build-system": tables["build-system"]["requires"]}
        groups |= {"dependencies": project.get("dependencies", [])}
        groups |= project.get("optional-dependencies", {})
        for group, requirements in groups.items():
            for requirement in requirements:
                yield f"{folder}/pyproject.toml [{group}]", Requirement(requirement)
    tables = tomllib.loads((root / "pyproject.toml").read_text())
    for group, requirements in tables["dependency-groups"].items():
        for requirement in requirements:
            if isinstance(requirement, str):
                yield f"pyproject.toml [{group}]", Requirement(requirement)


def test_every_line_is_an_exact_pin_and_none_is_doubled(
    lines: list[str], pins: dict[str, Version]
) -> None:
    assert [line for line in lines if not PIN.fullmatch(line)] == []
    assert len(pins) == len(lines) > 0


def test_lines_are_sorted(lines: list[str]) -> None:
    assert lines == sorted(lines, key=str.lower)


def test_every_declared_dependency_is_pinned_to_a_version_that_it_allows(
    root: Path, pins: dict[str, Version]
) -> None:
    wrong = []
    for where, requirement in declared(root):
        name = canonicalize_name(requirement.name)
        if name in OURS:
            continue
        if name not in pins:
            wrong.append(f"{where}: {requirement} is not in constraints.txt")
        elif not requirement.specifier.contains(pins[name]):
            wrong.append(f"{where}: {requirement} does not allow the pinned {pins[name]}")
    assert wrong == []


def test_what_the_declared_ones_need_is_pinned_too_and_is_what_is_installed(
    root: Path, pins: dict[str, Version]
) -> None:
    """Walk the installed environment: what is not pinned there moves by itself."""
    waiting = [requirement for _, requirement in declared(root)]
    seen: set[str] = set()
    wrong = []
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if key in seen or name in OURS:
            continue
        seen.add(key)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a group of another session
        installed = Version(distribution.version).public
        if name not in pins:
            wrong.append(f"{name} {installed} is installed and not in constraints.txt")
        elif installed != pins[name].public:
            wrong.append(f"{name} {installed} is installed, {pins[name]} is pinned")
        for line in distribution.requires or ():
            needed = Requirement(line)
            environments = [{"extra": extra} for extra in ("", *requirement.extras)]
            if needed.marker is None or any(map(needed.marker.evaluate, environments)):
                waiting.append(needed)
    assert wrong == []
    assert {"torch[]", "numpy[]", "markupsafe[]"} <= seen, "the walk went nowhere"


def rival_pins(root: Path, name: str) -> dict[str, Version]:
    """What a rival's environment is made of: every distribution, exactly, sorted, once."""
    lines = [
        line
        for line in (root / f"bench/rivals/{name}.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    found = [PIN.fullmatch(line) for line in lines]
    assert [line for line, pin in zip(lines, found, strict=True) if not pin] == []
    assert lines == sorted(lines, key=str.lower)
    pins = {canonicalize_name(pin["name"]): Version(pin["version"]) for pin in found if pin}
    assert len(pins) == len(lines) > 0
    return pins


def test_every_rival_has_a_list_of_exact_pins(root: Path) -> None:
    noxfile = (root / "noxfile.py").read_text()
    (named,) = re.findall(r"^RIVALS = \((.+)\)$", noxfile, flags=re.MULTILINE)
    names = re.findall(r'"(.+?)"', named)
    assert sorted(path.stem for path in (root / "bench/rivals").glob("*.txt")) == names
    (torch,) = re.findall(r'^TORCH = "torch==(.+)"$', noxfile, flags=re.MULTILINE)
    systems = find_all()
    for name in names:
        pins = rival_pins(root, name)
        system = systems[name].system
        assert system is not None
        assert canonicalize_name(system.distribution) in pins
        # What this package itself needs in a worker there.
        assert {"numpy", "psutil"} <= pins.keys()
        assert pins.get(canonicalize_name("torch"), Version(torch)) == Version(torch)


def test_noxfile_names_the_pinned_torch_and_weights(root: Path, lines: list[str]) -> None:
    noxfile = (root / "noxfile.py").read_text()
    named = re.findall(r'^(?:TORCH|WEIGHTS) = "(.+)"$', noxfile, flags=re.MULTILINE)
    assert len(named) == 2
    assert set(named) <= set(lines)
