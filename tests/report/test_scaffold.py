"""`init` in another repository: what it lays, what it leaves alone, and that the site builds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nanoserve_bench import results as bench_results
from nanoserve_report import __version__, scaffold
from nanoserve_report.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]


def run(capsys: pytest.CaptureFixture[str], monkeypatch, *arguments: object):
    monkeypatch.setattr(sys, "argv", ["nanoserve-report", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return stopped.value.code or 0, captured.out, captured.err


class Loader(yaml.SafeLoader):
    """mkdocs' YAML: an environment variable with a default stands as its default."""


Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[-1])


def settings(path: Path) -> dict:
    return yaml.load(path.read_text("utf-8"), Loader)  # noqa: S506 - a SafeLoader with one tag more


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty git repository, of a name that YAML and Markdown could trip over."""
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    monkeypatch.setenv("PYTHONPATH", path)  # mkdocs is another process, in another folder
    root = tmp_path / "my: *engine* #1"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    return root


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout


def commit_results(root: Path, results: Path) -> None:
    shutil.copytree(results, root / scaffold.RESULTS, dirs_exist_ok=True)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Add results")


def test_a_site_from_nothing(capsys, monkeypatch, repository: Path, one_root: Path) -> None:
    code, out, _ = run(capsys, monkeypatch, "init", repository)
    assert code == 0
    for piece in scaffold.PIECES:
        assert f"wrote {repository / piece.path}" in out
    assert out.strip().endswith("nanoserve-report build")
    commit_results(repository, one_root)
    monkeypatch.chdir(repository)
    code, out, err = run(capsys, monkeypatch, "build")
    assert (code, err) == (0, "")
    home = (repository / "site/index.html").read_text("utf-8")
    assert "my: *engine* #1" in home
    assert "results/assets/site." in home
    shown = (repository / "site/results/index.html").read_text("utf-8")
    assert "the last doubling worth it is 2 to 4 slots" in shown
    for name in re.findall(r'(?:href|src)="\.\./([^":#]+\.(?:css|js))"', shown):
        assert (repository / "site" / name).is_file(), name
    assert run(capsys, monkeypatch, "check")[0] == 0
    assert git(repository, "status", "--porcelain") == "", "what is generated is ignored"


def test_a_link_into_nothing_stops_the_build(
    capsys, monkeypatch, repository: Path, one_root: Path
) -> None:
    """Strict means strict: a warning of mkdocs is an error that is shown."""
    run(capsys, monkeypatch, "init", repository)
    commit_results(repository, one_root)
    with (repository / "docs/index.md").open("a") as page:
        page.write("[gone](nowhere.md)\n")
    monkeypatch.chdir(repository)
    code, _, err = run(capsys, monkeypatch, "build")
    assert code == 2
    assert "the site could not be built" in err
    assert "nowhere.md" in err


def test_nothing_is_overwritten(capsys, monkeypatch, repository: Path) -> None:
    (repository / "docs").mkdir()
    (repository / "docs/index.md").write_text("mine")
    (repository / "theme").write_text("a file where a folder would be")
    code, _, err = run(capsys, monkeypatch, "init", repository)
    assert code == 2
    assert "docs/index.md, theme\n" in err
    assert "Nothing was written" in err
    assert sorted(p.name for p in repository.iterdir()) == [".git", "docs", "theme"]
    assert (repository / "docs/index.md").read_text() == "mine"


def test_a_second_time_it_refuses(capsys, monkeypatch, repository: Path) -> None:
    run(capsys, monkeypatch, "init", repository)
    code, _, err = run(capsys, monkeypatch, "init", repository)
    assert code == 2
    assert "mkdocs.yml, docs/index.md" in err


def test_shared_files_are_left_and_their_lines_told(capsys, monkeypatch, repository: Path) -> None:
    (repository / ".gitignore").write_text("mine\n")
    code, out, _ = run(capsys, monkeypatch, "init", repository)
    assert code == 0
    assert (repository / ".gitignore").read_text() == "mine\n"
    assert "add to it:\n    /" in out
    assert "\n    /docs/results/\n" in out


def test_a_place_that_is_no_folder_is_an_error(capsys, monkeypatch, tmp_path: Path) -> None:
    code, _, err = run(capsys, monkeypatch, "init", tmp_path / "nowhere")
    assert code == 2
    assert "is not a folder" in err


def test_the_pieces_say_what_this_version_needs(repository: Path) -> None:
    scaffold.lay(repository)
    mine = settings(repository / "mkdocs.yml")
    ours = settings(REPOSITORY / "mkdocs.yml")
    assert mine["site_name"] == repository.name
    assert mine["validation"] == ours["validation"]
    assert mine["markdown_extensions"] == ours["markdown_extensions"]
    generated = {"results/claims.md"}  # this project's own source document
    pages = [p for p in listed(ours) if p.startswith("results/") and p not in generated]
    assert listed(mine) == ["index.md", *pages]
    for key in ("extra_css", "extra_javascript"):
        assert mine[key] == ours[key]
    for key in ("palette", "features"):
        assert mine["theme"][key] == ours["theme"][key]
    workflow = settings(repository / ".github/workflows/benchmarks.yml")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    said = "\n".join(step.get("run", "") for step in steps)
    assert f"nanoserve-report=={__version__}" in said
    assert "nanoserve-bench check --format github bench/results/*/" in said
    (hook,) = settings(repository / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert hook["additional_dependencies"] == [f"nanoserve-bench=={__version__}"]
    assert hook["entry"] == "nanoserve-bench check"
    for name in ("manifest.json", "requests.csv"):
        assert re.search(hook["files"], f"{scaffold.RESULTS}/a-run/{name}")
    assert not re.search(hook["files"], f"{scaffold.RESULTS}/README.md")
    assert bench_results.MANIFEST == "manifest.json"


def listed(config: dict) -> list[str]:
    """The pages of a navigation, in order."""

    def walk(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        children = entry.values() if isinstance(entry, dict) else entry
        return [page for child in children for page in walk(child)]

    return walk(config["nav"])
