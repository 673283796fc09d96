"""The workflow of the page "Gate your CI": it parses, and its commands are ones that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanoserve_bench.arms import parse_arm
from nanoserve_bench.commands.check import check
from nanoserve_bench.commands.sweep import sweep

FILE = re.compile(
    r'^```yaml title="\.github/workflows/compare\.yml"\n(.*?)^```$', re.MULTILINE | re.DOTALL
)


@pytest.fixture
def jobs(root: Path) -> dict[str, Any]:
    (text,) = FILE.findall((root / "docs/tutorials/ci.md").read_text("utf-8"))
    workflow: dict[Any, Any] = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    return dict(workflow["jobs"])


def test_the_sweep_of_the_workflow_compares_the_change_with_its_parent(
    jobs: dict[str, Any],
) -> None:
    (step,) = [step for step in jobs["measure"]["steps"] if step.get("id") == "sweep"]
    session, arguments = shlex.split(step["run"].partition("--")[0]), step["run"].partition("--")[2]
    assert session == ["nox", "-s", "bench"]
    context = sweep.make_context("sweep", shlex.split(arguments))
    arms = [parse_arm(arm) for arm in context.params["arms"]]
    assert [(arm.system, arm.revision) for arm in arms] == [
        ("nanoserve", "HEAD^1"),
        ("nanoserve", "HEAD"),
    ]
    (checkout, *_) = jobs["measure"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0


def test_the_verdict_of_the_workflow_is_one_that_check_can_write(jobs: dict[str, Any]) -> None:
    (line,) = [
        line
        for step in jobs["measure"]["steps"]
        for line in step.get("run", "").splitlines()
        if "nanoserve-bench check" in line
    ]
    words = shlex.split(line.partition(" > ")[0])[2:]
    assert check.make_context("check", words).params["style"] == "markdown"


def test_only_the_job_that_runs_nothing_of_the_change_may_write(jobs: dict[str, Any]) -> None:
    assert "permissions" not in jobs["measure"]
    assert jobs["comment"]["permissions"] == {"pull-requests": "write"}
    assert not any("checkout" in step.get("uses", "") for step in jobs["comment"]["steps"])
