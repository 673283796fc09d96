"""The engine at another revision: built once, found by its workers, and named as what it is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nanoserve_bench import builds, systems
from nanoserve_bench.builds import Build, build
from nanoserve_bench.errors import PlanError
from nanoserve_bench.launcher import Worker
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import Plan
from nanoserve_bench.planning import Choices, build_plan
from nanoserve_bench.protocol import Launch, Trial, TrialResult

ROOT = Path(__file__).parents[2]
COMPILER = """
import pathlib, sys
folder = pathlib.Path(__file__).parent
with (folder / "compiled.log").open("a") as log:
    log.write("once\\n")
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def commit(repository: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(repository, "add", "-f", "-A")
    git(repository, "commit", "-q", "-m", "a commit")
    return git(repository, "rev-parse", "HEAD")


def engine(version: str, compiler: str = COMPILER) -> dict[str, str]:
    return {
        "engine/nanoserve/__init__.py": "",
        "engine/nanoserve/_version.py": f'__version__ = "{version}"\n',
        "engine/nanoserve/kernels/compile.py": compiler,
        "bench/results/large.csv": "not needed",
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits: no engine, an engine, another one on a branch of its own."""
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    commit(path, {"README.md": "nothing yet"})
    commit(path, engine("1.0"))
    git(path, "checkout", "-q", "-b", "feature/x")
    commit(path, engine("2.0"))
    git(path, "checkout", "-q", "main")
    return path


@pytest.fixture
def built(repository: Path, tmp_path: Path) -> Callable[[str], Build]:
    return lambda name: build(name, checkout=repository, cache=tmp_path / "cache")


def test_a_revision_is_built_once_and_knows_its_version(
    built: Callable[[str], Build], repository: Path
) -> None:
    one, other = built("main"), built("feature/x")
    assert (one.version, other.version) == ("1.0", "2.0")
    assert one.revision == git(repository, "rev-parse", "main")
    assert built(one.revision[:8]) == built("main") == one
    log = one.folder / "nanoserve/kernels/compiled.log"
    assert log.read_text() == "once\n"
    assert sorted(path.name for path in one.folder.parent.iterdir()) == [".git", "engine"]


def test_building_leaves_no_trace_in_the_repository(
    built: Callable[[str], Build], repository: Path
) -> None:
    before = git(repository, "status", "--porcelain"), git(repository, "worktree", "list")
    built("feature/x")
    assert (git(repository, "status", "--porcelain"), git(repository, "worktree", "list")) == before
    assert git(repository, "branch", "--show-current") == "main"


@pytest.mark.parametrize("damage", ["changed", "elsewhere", "emptied"])
def test_a_build_that_somebody_changed_is_made_anew(
    built: Callable[[str], Build], damage: str
) -> None:
    first = built("main")
    version = first.folder / "nanoserve/_version.py"
    if damage == "changed":
        version.write_text('__version__ = "3.0"\n')
    elif damage == "elsewhere":
        (first.folder.parent / ".git/HEAD").write_text("ref: refs/heads/nothing\n")
    else:
        shutil.rmtree(first.folder.parent / ".git")
    assert built("main") == first
    assert version.read_text() == '__version__ = "1.0"\n'


def test_uncommitted_changes_are_not_part_of_a_revision(
    built: Callable[[str], Build], repository: Path
) -> None:
    (repository / "engine/nanoserve/_version.py").write_text('__version__ = "dirty"\n')
    assert built("HEAD").version == "1.0"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nope", "has no revision 'nope': git fetch it"),
        ("--all", "has no revision '--all'"),
        ("main~1", r"has no engine in engine/nanoserve"),
    ],
)
def test_a_revision_that_cannot_be_built_says_why(
    built: Callable[[str], Build], name: str, reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        built(name)


def test_kernels_that_do_not_compile_are_told_with_the_compilers_words(
    built: Callable[[str], Build],
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit(repository, engine("4.0", "import sys\nsys.exit('error: expected a semicolon')\n"))
    monkeypatch.setattr(builds, "has_kernels", lambda: True)
    with pytest.raises(PlanError, match=r"'main' cannot be built:\nerror: expected a semicolon"):
        built("main")
    assert list((tmp_path / "cache/revisions").iterdir()) == []
    # Where the engine that is here runs without kernels, so may the other one.
    monkeypatch.setattr(builds, "has_kernels", lambda: False)
    assert built("main").version == "4.0"


def test_without_a_repository_there_are_no_revisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "__file__", str(tmp_path / "site-packages/builds.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError, match="start it in a checkout"):
        build("main")


def planned(*arms: str) -> Plan:
    commits = {"main": "a" * 40, "HEAD": "a" * 40, "next": "b" * 40}
    return build_plan(
        Choices(arms=arms, slots=(2,)),
        run_id="a-run",
        created_at="2026-11-30T00:00:00+00:00",
        model="a-model",
        devices=("cpu",),
        skipped_devices=(),
        revision="c" * 40,
        dirty=False,
        find_system=systems.find,
        build_engine=lambda name: Build(
            revision=commits[name], folder=Path("nowhere"), version=f"of {name}"
        ),
    )


def test_two_commits_are_compared_like_rivals_and_beside_an_a_a() -> None:
    plan = planned("before=nanoserve@main", "after=nanoserve@next", "nanoserve")
    assert [(arm.name, arm.revision, arm.version) for arm in plan.arms[:2]] == [
        ("before", "a" * 40, "of main"),
        ("after", "b" * 40, "of next"),
    ]
    assert (plan.arms[2].name, plan.arms[2].revision) == ("nanoserve", None)
    kinds = {c.candidate.partition("/")[0]: c.kind for c in plan.comparisons}
    assert kinds == {"after": "revision", "nanoserve": "revision", "before-again": "self"}


def test_two_names_of_one_commit_are_an_a_a() -> None:
    plan = planned("a=nanoserve@main", "b=nanoserve@HEAD")
    assert {c.kind for c in plan.comparisons} == {"self"}


def test_only_this_engine_has_revisions() -> None:
    with pytest.raises(PlanError, match="hf-generate is not built from this repository"):
        planned("hf-generate@main")


def test_a_worker_runs_the_engine_of_its_revision(
    tmp_path: Path,
    tiny: ModelFolder,
    make_launch: Callable[..., Launch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The real engine, committed with another version; the checkout that is here has this one."""
    repository = tmp_path / "repository"
    shutil.copytree(
        ROOT / "engine",
        repository / "engine",
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
    )
    git(tmp_path, "init", "-q", "-b", "main", str(repository))
    sha = commit(repository, {"engine/nanoserve/_version.py": '__version__ = "9.9.9"\n'})
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    monkeypatch.setattr(builds, "has_kernels", lambda: False)
    made = build("main", checkout=repository, cache=tmp_path / "cache")
    worker = Worker(make_launch("nanoserve", model=tiny), arm="an-arm", engine=made.folder)
    try:
        description = worker.describe()
        trial = Trial(slots=1, prompts=((5, 6, 7),), max_tokens=(4,))
        (record,) = worker.ask(trial, TrialResult, timeout_s=120).records
    finally:
        worker.kill()
    assert (description.version, description.revision) == ("9.9.9", sha)
    assert len(record.output_ids) == 4
