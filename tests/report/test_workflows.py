"""What GitHub would run: the shell steps of the workflows, in order, in a repository of their own.

Nothing is installed here, so the steps that install are only parsed; everything else is run by the
shell that GitHub uses, with the variables that GitHub sets.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanoserve_report import scaffold

REPOSITORY = Path(__file__).resolve().parents[2]
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
SNIPPET = re.compile(r"^```yaml title=.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Step = dict[str, Any]


def jobs(text: str) -> dict[str, Any]:
    """The jobs of a workflow; an action counts as one job."""
    document = yaml.safe_load(text)
    return dict(document.get("jobs", {"action": document.get("runs")}))


def sources() -> Iterator[tuple[str, str]]:
    """Every workflow and action that this repository has, lays or shows."""
    for path in (
        *sorted((REPOSITORY / ".github/workflows").glob("*.yml")),
        REPOSITORY / "action.yml",
        REPOSITORY / "report/nanoserve_report/scaffold/workflow.yml",
    ):
        yield path.relative_to(REPOSITORY).as_posix(), path.read_text("utf-8")
    (shown,) = SNIPPET.findall((REPOSITORY / "docs/tutorials/ci.md").read_text("utf-8"))
    yield "docs/tutorials/ci.md", shown


def expand(value: str, known: Mapping[str, str]) -> str:
    """A value with its expressions replaced; an unknown one is an error, as a typo would be."""
    return EXPRESSION.sub(lambda match: known[match.group(1)], value)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The variables of a runner, and this checkout's two commands on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("nanoserve-bench", "nanoserve-report"):
        program = programs / name
        module = name.replace("-", "_")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        program.chmod(0o755)
    values = dict(os.environ)
    values |= {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_REF": "refs/tags/v0.1",
        "GITHUB_REF_NAME": "v0.1",
        "PATH": os.pathsep.join((str(programs), values["PATH"])),
        "PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path),
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY"):
        (tmp_path / name).touch()
        values[name] = str(tmp_path / name)
    return values


@pytest.fixture
def repository(tmp_path: Path, one_root: Path, environment: dict[str, str]) -> Path:
    """A repository with what `init` lays and one results folder, and the origin it came from."""
    root = tmp_path / "work"
    root.mkdir()
    scaffold.lay(root)
    shutil.copytree(one_root, root / scaffold.RESULTS, dirs_exist_ok=True)
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    for command in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        ("commit", "-q", "-m", "Add results"),
        ("clone", "-q", "--bare", ".", str(tmp_path / "origin.git")),
        ("remote", "add", "origin", str(tmp_path / "origin.git")),
    ):
        subprocess.run(["git", *identity, *command], cwd=root, env=environment, check=True)
    return root


def installs(step: Step) -> bool:
    return "pip install" in step.get("run", "")


def run(
    steps: list[Step], root: Path, environment: Mapping[str, str], known: Mapping[str, str]
) -> list[tuple[int, str]]:
    """What each step that runs something exits with and says; GitHub's own steps are passed by."""
    done = []
    for step in steps:
        if "run" not in step or installs(step):
            continue
        values = {key: expand(value, known) for key, value in step.get("env", {}).items()}
        finished = subprocess.run(
            [*BASH, "-c", expand(step["run"], known)],
            cwd=root,
            env={**environment, **values},
            capture_output=True,
            text=True,
            check=False,
        )
        done.append((finished.returncode, finished.stdout + finished.stderr))
    return done


@pytest.mark.parametrize(("name", "text"), list(sources()), ids=[name for name, _ in sources()])
def test_every_step_is_one_that_the_shell_can_read(name: str, text: str) -> None:
    seen = 0
    for job in jobs(text).values():
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            if "run" in step:
                script = EXPRESSION.sub("expression", step["run"])
                subprocess.run(["bash", "-n", "-c", script], check=True)
                seen += 1
    assert seen


def test_what_init_lays_judges_builds_and_publishes(
    repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    laid = jobs((repository / ".github/workflows/benchmarks.yml").read_text("utf-8"))
    judged, built = run(laid["judge"]["steps"], repository, environment, {})
    assert judged == (0, "\n"), "nothing to annotate"
    assert ": sound\n" in Path(environment["GITHUB_STEP_SUMMARY"]).read_text("utf-8")
    assert built[0] == 0, built[1]
    (upload,) = [step for step in laid["judge"]["steps"] if "upload" in step.get("uses", "")]
    assert (repository / upload["with"]["path"] / "index.html").is_file()
    (published,) = run(laid["publish"]["steps"], repository, environment, {})
    assert published[0] == 0, published[1]
    assert "no gh-pages yet" in published[1]
    shown = subprocess.run(
        ["git", "show", "gh-pages:versions.json"],
        cwd=tmp_path / "origin.git", capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert '"version": "0.1"' in shown


def test_the_action_judges_and_annotates_what_is_refused(
    repository: Path, environment: dict[str, str], tmp_path: Path, refused_root: Path
) -> None:
    results = tmp_path / "results, 100%: mine"
    shutil.copytree(refused_root, results)
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text("utf-8"))
    known = {f"inputs.{name}": value["default"] for name, value in action["inputs"].items()}
    known |= {"inputs.results": str(results), "runner.temp": str(tmp_path)}
    steps = [step for step in action["runs"]["steps"] if step.get("id") != "site"]
    ((code, said),) = run(steps, repository, environment, known)
    assert code == 1
    assert "::error file=" in said
    assert "results%2C 100%25%3A mine/" in said
    summary = Path(environment["GITHUB_STEP_SUMMARY"]).read_text("utf-8")
    assert ": refused, " in summary
