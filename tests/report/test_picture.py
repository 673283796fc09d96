"""The README's picture: drawn by a command, and no older than the results."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanoserve_report import cli
from nanoserve_report.picture import PICTURE, PictureError, draw, leading
from nanoserve_report.study import Study, load
from support.report_studies import sweep, write

ROOT = Path(__file__).parents[2]


def test_the_readmes_picture_is_the_committed_studys() -> None:
    drawn = draw(load(ROOT / "bench" / "results"))
    stale = f"{PICTURE} is stale: run `nanoserve-report picture`"
    assert (ROOT / PICTURE).read_text(encoding="utf-8") == drawn.svg, stale


def test_the_command_writes_it(tmp_path: Path, monkeypatch, capsys) -> None:
    root = write(tmp_path / "results", sweep())
    target = tmp_path / "deep" / "picture.svg"
    monkeypatch.setattr("sys.argv", ["nanoserve-report", "picture", str(root), "--to", str(target)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert target.read_text(encoding="utf-8") == draw(load(root)).svg
    assert "Speedup against hf-generate" in capsys.readouterr().out


def test_nothing_sound_is_no_picture() -> None:
    with pytest.raises(PictureError, match="nothing to draw"):
        leading(Study(folders=()))
