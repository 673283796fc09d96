"""How systems are found, and what is said of those that cannot run."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nanoserve_bench import systems
from nanoserve_bench.errors import PlanError
from nanoserve_bench.records import Shape

ROOT = Path(__file__).parents[2]


def test_the_built_in_systems_are_registered_like_anybodys() -> None:
    project = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"][systems.GROUP] == {
        point.name: point.value for point in systems._BUILT_IN
    }


def test_the_built_in_systems_can_run_here() -> None:
    found = systems.find_all()
    for name in (name for name, one in found.items() if one.system and not one.system.optional):
        assert found[name].problem == ""
        assert found[name].version
    assert systems.find("hf-generate").shape is Shape.SERIAL
    assert systems.find("nanoserve").shape is Shape.CONCURRENT


@pytest.mark.usefixtures("fake_systems")
def test_a_system_of_another_distribution_is_found() -> None:
    assert systems.find("fake").summary == "a fake"
    assert systems.find_all()["fake"].version == "1.0"


@pytest.mark.usefixtures("fake_systems")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fake-missing", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("fake-no-system", "is not a subclass"),
        ("fake-needy", "not installed: no_such_module"),
        ("fake-leaving", "SystemExit: goodbye (importing support.leaving:Nothing)"),
        ("fake-misformed", "`summary` is '', not a line of text; `shape` is 'serial', not Shape."),
        ("fake-misformed", "`stamps` is 'holds', not a tuple of texts"),
        ("fake-unfinished", "it does not define __init__, run; `distribution` is missing"),
        ("fake-unfinished", "`stamps` names 'everything'; a system can stamp holds,"),
        ("fake-nameless", "its version cannot be told: LookupError: no [run] here"),
    ],
)
def test_a_system_that_cannot_run_says_why(name: str, reason: str) -> None:
    assert reason in systems.find_all()[name].problem
    with pytest.raises(PlanError, match=r"cannot run here"):
        systems.find(name)


@pytest.mark.usefixtures("fake_systems")
def test_a_requirement_in_a_package_that_is_missing_is_missing() -> None:
    assert list(systems._missing(("json.decoder", "no_such_parent.module"))) == [
        "no_such_parent.module"
    ]


@pytest.mark.usefixtures("fake_systems")
def test_looking_for_one_system_imports_no_other() -> None:
    code = (
        "from nanoserve_bench import systems; systems.find('fake'); import sys; "
        "sys.exit('nanoserve_bench.systems.hf_generate' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0


def test_an_unknown_system_is_answered_with_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"no system is called 'nope'.*nanoserve"):
        systems.find("nope")


def test_a_name_that_is_registered_twice_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "usurper-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: usurper\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{systems.GROUP}]\nnanoserve = support.fake_systems:Fake\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "registered twice" in systems.find_all()["nanoserve"].problem


def test_planning_imports_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys\n"
        "from nanoserve_bench import planning, sweep, block, systems\n"
        "import nanoserve_bench.commands.sweep\n"
        "systems.find('nanoserve').version(); systems.find('hf-generate').version()\n"
        "assert {'nanoserve', 'hf-generate'} <= systems.find_all().keys()\n"
        "sys.exit(', '.join({'torch', 'transformers', 'nanoserve'} & sys.modules.keys()) or None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
