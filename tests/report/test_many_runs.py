"""The benchmark of a large site: what it lays out is sound, and of as many versions as it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from nanoserve_report.history import tracks
from nanoserve_report.study import load

ROOT = Path(__file__).parents[2]


def test_the_runs_are_sound_and_of_five_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench/benchmarks")  # as the session does
    spec = importlib.util.spec_from_file_location("many", ROOT / "report/benchmarks/many_runs.py")
    assert spec is not None
    assert spec.loader is not None
    many_runs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(many_runs)
    many_runs.lay_out(tmp_path, 6)
    monkeypatch.delitem(sys.modules, "laid_out")
    study = load(tmp_path)
    assert study.ok
    assert len(study.folders) == 6
    (track,) = tracks(study)
    assert [len(version.sweeps) for version in track.versions] == [2, 1, 1, 1, 1]
