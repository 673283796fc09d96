"""The command line: exit codes, the one clear message, and an environment without torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nanoserve_report import cli
from nanoserve_report.cli import main


def run(capsys: pytest.CaptureFixture[str], monkeypatch, *arguments: object):
    monkeypatch.setattr(sys, "argv", ["nanoserve-report", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return stopped.value.code or 0, captured.out, captured.err


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


def test_a_sound_study_builds_and_checks(capsys, monkeypatch, one_root: Path, docs: Path) -> None:
    code, out, _ = run(capsys, monkeypatch, "build", one_root, "--docs", docs, "--pages-only")
    assert code == 0
    assert "files written" in out
    code, out, err = run(capsys, monkeypatch, "check", one_root, "--docs", docs)
    assert (code, err) == (0, "")
    monkeypatch.setattr(cli, "MOST_BYTES", 5000)
    code, _, err = run(capsys, monkeypatch, "check", one_root, "--docs", docs)
    assert code == 1
    assert "results/index.md has " in err
    assert "a page stays below 5,000" in err


def test_a_refusal_exits_1_and_says_what_to_do_first(
    capsys, monkeypatch, refused_root: Path, docs: Path
) -> None:
    code, _, err = run(capsys, monkeypatch, "build", refused_root, "--docs", docs, "--pages-only")
    assert code == 1
    for part in ("PAIR005", "nanoserve/cpu/float32/2/day44", "request r4", "position 7", "First: "):
        assert part in err
    assert (docs / "results" / "index.md").is_file()


def test_a_page_that_cannot_be_written_is_named(
    capsys, monkeypatch, one_root: Path, docs: Path
) -> None:
    (docs / "results").touch()
    code, _, err = run(capsys, monkeypatch, "build", one_root, "--docs", docs, "--pages-only")
    assert code == 2
    assert str(docs / "results") in err
    assert len(err.splitlines()) == 1
    site = docs / "results" / "site"
    code, out, err = run(capsys, monkeypatch, "build", one_root, "--docs", docs, "--site", site)
    assert (code, out) == (2, "")
    assert str(site) in err
    assert len(err.splitlines()) == 1


def test_a_run_under_two_names_counts_once(
    capsys, monkeypatch, one_root: Path, tmp_path: Path, docs: Path
) -> None:
    (original,) = (path for path in one_root.iterdir() if path.is_dir())
    shutil.copytree(original, tmp_path / "r" / "one")
    shutil.copytree(original, tmp_path / "r" / "two")
    code, _, err = run(capsys, monkeypatch, "build", tmp_path / "r", "--docs", docs)
    assert code == 2
    assert "two and one have the same run id" in err
    assert "Remove one of the two folders." in err


def test_what_is_half_there_is_left_out_in_a_line_each(
    capsys, monkeypatch, one_root: Path, tmp_path: Path, docs: Path
) -> None:
    (original,) = (path for path in one_root.iterdir() if path.is_dir())
    root = tmp_path / "r"
    shutil.copytree(original, root / "whole")
    (root / "empty").mkdir()
    (root / "half").mkdir()
    shutil.copy(original / "plan.json", root / "half")
    code, _, err = run(capsys, monkeypatch, "build", root, "--docs", docs, "--pages-only")
    assert code == 1
    lines = err.splitlines()
    assert lines[1].endswith("empty: is an empty folder")
    assert lines[2].startswith("  half: REP001 manifest.json, systems.csv, ")
    assert lines[2].endswith(": is missing")
    assert lines[3].startswith("First: Remove it, or measure. (empty, ")
    assert lines[4] == "`nanoserve-bench explain REP001` says why."
    assert "the last doubling worth it" in (docs / "results/index.md").read_text("utf-8")


def test_an_acknowledged_refusal_exits_0_and_stays_a_hole(
    capsys, monkeypatch, acknowledged_root: Path, docs: Path
) -> None:
    code, _, _ = run(
        capsys, monkeypatch, "build", acknowledged_root, "--docs", docs, "--pages-only"
    )
    assert code == 0
    text = (docs / "results" / "refusals.md").read_text(encoding="utf-8")
    assert "a known near-tie" in text


def test_an_empty_root_exits_1(capsys, monkeypatch, tmp_path: Path, docs: Path) -> None:
    (tmp_path / "results").mkdir()
    code, _, err = run(
        capsys, monkeypatch, "build", tmp_path / "results", "--docs", docs, "--pages-only"
    )
    assert code == 1
    assert "nothing to show" in err
    assert (docs / "results" / "index.md").is_file()


def test_a_root_that_is_not_there_exits_2(capsys, monkeypatch, tmp_path: Path, docs: Path) -> None:
    code, _, err = run(capsys, monkeypatch, "build", tmp_path / "no", "--docs", docs)
    assert code == 2
    assert "is not a folder" in err


def test_a_default_root_that_is_not_there_yet_is_an_empty_one(
    capsys, monkeypatch, tmp_path: Path, docs: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, monkeypatch, "build", "--docs", docs, "--pages-only")
    assert code == 1
    assert "nothing to show" in err
    assert "nanoserve-bench sweep" in err
    assert (docs / "results" / "index.md").is_file()


def test_an_interruption_ends_without_a_traceback(
    capsys, monkeypatch, one_root: Path, docs: Path
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nanoserve_report.cli.load", interrupted)
    code, _, err = run(capsys, monkeypatch, "check", one_root, "--docs", docs)
    assert code == 130
    assert "interrupted" in err


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda page: page.write_text("x"), "results/index.md is stale"),
        (lambda page: page.unlink(), "results/index.md is missing"),
        (lambda page: (page.parent / "old.md").write_text("x"), "results/old.md is left over"),
    ],
)
def test_check_finds_stale_missing_and_left_over_pages(
    capsys, monkeypatch, one_root: Path, docs: Path, damage, message: str
) -> None:
    run(capsys, monkeypatch, "build", one_root, "--docs", docs, "--pages-only")
    damage(docs / "results" / "index.md")
    code, _, err = run(capsys, monkeypatch, "check", one_root, "--docs", docs)
    assert code == 1
    assert message in err


def test_check_fails_on_a_refusal(capsys, monkeypatch, refused_root: Path, docs: Path) -> None:
    code, _, err = run(capsys, monkeypatch, "check", refused_root, "--docs", docs)
    assert code == 1
    assert "PAIR005" in err


def test_publish_refuses_an_unsound_study(
    capsys, monkeypatch, refused_root: Path, docs: Path
) -> None:
    code, _, err = run(
        capsys, monkeypatch, "publish", "0.1", "--docs", docs, "--results", refused_root
    )
    assert code == 1
    assert "Nothing was published" in err


def test_everything_runs_where_torch_is_absent(one_root: Path, docs: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'nanoserve'):\n"
        "    sys.modules[name] = None\n"
        "import nanoserve_bench, nanoserve_report\n"
        "from nanoserve_report.cli import main\n"
        "main()\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, "build", str(one_root), "--docs", str(docs), "--pages-only"],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
