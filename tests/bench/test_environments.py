"""Environments of rivals: found without being started, and missed with a reason."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from nanoserve_bench import systems
from nanoserve_bench.errors import PlanError
from nanoserve_bench.systems.environments import Environment, libraries, rivals_folder
from nanoserve_bench.systems.rivals import Rival

RIVALS = ("llamacpp", "onnxruntime", "openvino", "vllm")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NANOSERVE_RIVALS", str(tmp_path))
    return tmp_path


def lay_down(home: Path, name: str, *distributions: str) -> Path:
    """An environment that was made elsewhere, as far as its files tell."""
    folder = home / f"rival-{name}"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("")
    for distribution in distributions:
        label, _, version = distribution.partition("==")
        metadata = folder / "lib/python3.11/site-packages" / f"{label}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {label}\nVersion: {version}\n"
        )
    return folder


def test_an_environment_that_is_not_there_is_a_hole_with_its_reason(home: Path) -> None:
    for name in RIVALS:
        found = systems.find_all()[name]
        assert found.version is None
        assert found.problem == (
            f"it has no environment rival-{name}: `nox -s rival -- {name}` makes it"
        )
        with pytest.raises(PlanError, match=f"nox -s rival -- {name}"):
            systems.find(name)


def test_an_environment_without_the_rival_is_told_apart(home: Path) -> None:
    lay_down(home, "openvino", "numpy==2.4.6")
    problem = systems.find_all()["openvino"].problem
    assert "lacks openvino-genai" in problem
    assert "nox -s rival -- openvino" in problem


def test_a_rival_is_found_with_its_version_and_its_interpreter(home: Path) -> None:
    folder = lay_down(home, "openvino", "openvino_genai==2026.4.1.0")
    found = systems.find_all()["openvino"]
    assert (found.version, found.problem) == ("2026.4.1.0", "")
    assert systems.interpreter_of("openvino") == str(folder / "bin/python")
    with pytest.raises(PackageNotFoundError):
        Environment(name="openvino").version_of("torch")


def test_environments_lie_beside_those_of_the_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NANOSERVE_RIVALS", raising=False)
    assert rivals_folder() == ROOT / ".nox"


def test_every_rival_says_where_it_runs() -> None:
    for name in RIVALS:
        system = systems.find_all()[name].system
        assert system is not None
        assert issubclass(system, Rival)
        assert system.environment.name == name
        assert system.runs_on == (("cpu", "float32"),)
        assert not system.measures_ceilings


def test_the_command_lists_why_and_what_to_do(
    home: Path, command: Callable[..., subprocess.Popen[str]]
) -> None:
    text, _ = command("systems").communicate(timeout=120)
    flat = " ".join(text.split())
    for name in RIVALS:
        assert f"nox -s rival -- {name}" in flat


def test_a_library_that_is_not_there_is_left_out() -> None:
    assert [name for name, _ in libraries("numpy", "no-such-library")] == ["numpy"]
