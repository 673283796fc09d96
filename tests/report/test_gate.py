"""What another repository's CI takes from here: the action and the hook, run as they would be."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanoserve_bench.results import MANIFEST
from support.mutants.base import altered_token
from support.sound import study

EXPRESSION = re.compile(r"\$\{\{(.+?)\}\}")


@pytest.fixture(scope="module")
def root() -> Path:
    return Path(__file__).parents[2]


@pytest.fixture(scope="module")
def action(root: Path) -> dict[str, Any]:
    return yaml.safe_load((root / "action.yml").read_text("utf-8"))


@pytest.fixture(scope="module")
def hook(root: Path) -> dict[str, Any]:
    (only,) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text("utf-8"))
    return only


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `bin` with the commands as an installation would put them there."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("nanoserve-bench", "nanoserve-report"):
        script = folder / name
        module = name.replace("-", "_")
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        script.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound")
    study().write(root / "bench/results/a run")
    (root / "bench/results/README.md").write_text("One folder a sweep.\n")
    return root


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("refused")
    altered_token().write(root / "bench/results/a run")
    return root


def environment(programs: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    source = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    return {**os.environ, "PATH": path, "PYTHONPATH": source, **more}


def step(action: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [step for step in action["runs"]["steps"] if step.get("name") == name]
    return found


def run_step(
    action: dict[str, Any], name: str, where: Path, programs: Path, scratch: Path
) -> subprocess.CompletedProcess[str]:
    """Run a step's script in bash as a runner does, with every input at its default."""
    found = step(action, name)
    known = {f"inputs.{name}": entry["default"] for name, entry in action["inputs"].items()}
    known["runner.temp"] = str(scratch)
    env = {
        key: EXPRESSION.sub(lambda match: known[match.group(1).strip()], value)
        for key, value in found["env"].items()
    }
    env["GITHUB_STEP_SUMMARY"] = str(scratch / "summary.md")
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", found["run"]],
        cwd=where, env=environment(programs, **env), capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_input_is_used_and_every_used_one_exists(root: Path, action: dict[str, Any]) -> None:
    text = (root / "action.yml").read_text("utf-8")
    used = {
        name for part in EXPRESSION.findall(text) for name in re.findall(r"inputs\.([\w-]+)", part)
    }
    assert used == set(action["inputs"])
    for entry in action["inputs"].values():
        assert entry["description"]
        assert isinstance(entry["default"], str)


def test_no_input_is_pasted_into_a_script(action: dict[str, Any]) -> None:
    """It would be run as code; a variable of the environment is not."""
    steps = action["runs"]["steps"]
    assert not [s for s in steps if EXPRESSION.search(s.get("run", ""))]
    assert all("shell" in s for s in steps if "run" in s)
    ids = {s["id"] for s in steps if "id" in s}
    named = {n for s in steps for n in re.findall(r"steps\.([\w-]+)\.", s.get("if", ""))}
    assert named <= ids


def test_what_is_installed_lies_in_the_repository(root: Path, action: dict[str, Any]) -> None:
    script = step(action, "Install the judge")["run"]
    named = re.findall(r'"\$NANOSERVE/([\w./-]+)"', script)
    assert named == ["constraints.txt", "bench", "report"]
    assert all((root / name).exists() for name in named)


def test_the_gate_is_green_on_a_sound_folder(
    action: dict[str, Any], sound: Path, programs: Path, tmp_path: Path
) -> None:
    done = run_step(action, "Judge every results folder", sound, programs, tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_the_gate_is_red_on_an_unsound_one_and_annotates_the_row(
    action: dict[str, Any], refused: Path, programs: Path, tmp_path: Path
) -> None:
    done = run_step(action, "Judge every results folder", refused, programs, tmp_path)
    assert done.returncode == 1
    assert re.search(
        r"^::error file=bench/results/a run/requests\.csv,line=\d+,title=PAIR005",
        done.stdout,
        re.MULTILINE,
    )


def test_the_gate_is_red_where_there_is_nothing(
    action: dict[str, Any], programs: Path, tmp_path: Path
) -> None:
    done = run_step(action, "Judge every results folder", tmp_path, programs, tmp_path)
    assert done.returncode == 1
    assert "is not a folder" in done.stdout


def test_the_site_of_an_unsound_folder_is_built_and_red(
    action: dict[str, Any], refused: Path, programs: Path, tmp_path: Path
) -> None:
    subprocess.run(
        ["nanoserve-report", "init", str(tmp_path)],
        env=environment(programs), capture_output=True, check=True,
    )  # fmt: skip
    shutil.copytree(refused, tmp_path, dirs_exist_ok=True)
    done = run_step(action, "Build the site", tmp_path, programs, tmp_path)
    assert done.returncode == 1
    assert "First: " in done.stderr
    page = tmp_path / "nanoserve-site/results/refusals/index.html"
    assert "PAIR005" in page.read_text("utf-8")


@pytest.mark.parametrize(("which", "code"), [("sound", 0), ("refused", 1)])
def test_the_hook_judges_the_folder_of_each_file_that_changes(
    hook: dict[str, Any], which: str, code: int, programs: Path, request: pytest.FixtureRequest
) -> None:
    where: Path = request.getfixturevalue(which)
    files = sorted(p.relative_to(where).as_posix() for p in where.rglob("*") if p.is_file())
    changed = [name for name in files if re.search(hook["files"], name)]
    assert [name for name in files if name not in changed] == (
        ["bench/results/README.md"] if which == "sound" else []
    )
    done = subprocess.run(
        [*shlex.split(hook["entry"]), *changed],
        cwd=where, env=environment(programs), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stdout.count("rules examined") == 1, "one folder, however many of its files changed"


def test_a_file_that_does_not_belong_is_refused_with_its_folder(
    hook: dict[str, Any], sound: Path, programs: Path
) -> None:
    stray = sound / "bench/results/a run/notes.txt"
    stray.write_text("a thought")
    try:
        done = subprocess.run(
            [*shlex.split(hook["entry"]), str(stray)],
            cwd=sound, env=environment(programs), capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        stray.unlink()
    assert done.returncode == 1
    assert "notes.txt: does not belong" in done.stdout
    assert (sound / "bench/results/a run" / MANIFEST).is_file()
