"""The benchmark of the gate's own speed: what it lays out is sound, and as large as it says."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from nanoserve_bench.soundness import judge_path

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scale() -> Iterator[ModuleType]:
    folder = str(ROOT / "bench/benchmarks")
    spec = importlib.util.spec_from_file_location("scale", ROOT / "bench/benchmarks/scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale"] = module  # dataclasses look their module up
    sys.path.insert(0, folder)  # as for a script: what stands beside it is imported
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(folder)


@pytest.mark.parametrize("shape", ["few large trials", "many small trials"])
def test_the_gate_accepts_what_the_benchmark_lays_out(
    scale: ModuleType, tmp_path: Path, shape: str
) -> None:
    count = scale.generate(tmp_path / "run", scale.shape_of(shape, 2_000), scale.Made())
    lines = (tmp_path / "run/requests.csv").read_text("utf-8").splitlines()
    assert len(lines) - 1 == count >= 1_000
    verdict = judge_path(tmp_path / "run")
    assert verdict.findings == ()
    assert verdict.comparisons


def test_the_benchmark_fails_on_what_the_gate_refuses(
    scale: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(folder: Path, *arguments: object) -> int:
        count: int = generate(folder, *arguments)
        (folder / "sweep.csv").unlink()
        return count

    generate = scale.generate
    monkeypatch.setattr(scale, "generate", spoilt)
    problems = scale.run(2_000, tmp_path)
    assert any("refused" in problem and "REP001" in problem for problem in problems)
