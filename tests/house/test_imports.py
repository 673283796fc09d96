"""Imports go one way, and what judges results needs no torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = ("engine", "bench", "report")
PACKAGES = ("engine/nanoserve", "bench/nanoserve_bench", "report/nanoserve_report")
NAMES_OF_THE_SOURCE = (
    "RunRecord",
    "SystemRun",
    "Comparison",
    "compare",
    "RunUnsound",
    "UnfairComparison",
    "check_serial",
    "check_concurrent",
    "first_divergence",
    "run_serial",
    "hf_generate_one",
    "run_concurrent",
)

HEAVY = "hf_generate_one"

BLOCKER = """
import importlib, importlib.abc, pkgutil, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "nanoserve", "gguf", "accelerate"}:
            raise ImportError(f"{name} was imported where it must not be needed")
        return None

sys.meta_path.insert(0, Blocker())
"""
IMPORT_ALL = """
for package in ("nanoserve_bench", "nanoserve_report"):
    root = importlib.import_module(package)
    names = [info.name for info in pkgutil.walk_packages(root.__path__, package + ".")]
    for name in names:
        if name.startswith("nanoserve_bench.systems") or name.endswith("__main__"):
            continue
        importlib.import_module(name)
        print(name)
"""


def python(root: Path, code: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(root / source) for source in SOURCES)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(folder / source) for source in SOURCES)
    return subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """The three packages and the contracts, to plant something in."""
    shutil.copy(root / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(
            root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tmp_path


def test_the_tree_keeps_its_contracts(copy: Path) -> None:
    result = lint_imports(copy)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("engine/nanoserve/planted.py", "import nanoserve_bench"),
        ("engine/nanoserve/planted.py", "from nanoserve_report import study"),
        ("bench/nanoserve_bench/planted.py", "import nanoserve_report"),
        ("bench/nanoserve_bench/planted.py", "from nanoserve import LLM"),
        ("bench/nanoserve_bench/planted.py", "import torch"),
        ("bench/nanoserve_bench/planted.py", "def late():\n    from torch import nn"),
        ("bench/nanoserve_bench/planted.py", "import transformers"),
        ("report/nanoserve_report/planted.py", "import nanoserve"),
        ("report/nanoserve_report/planted.py", "import torch"),
        ("report/nanoserve_report/planted.py", "from nanoserve_bench import systems"),
    ],
)
def test_an_import_against_the_direction_breaks_a_contract(
    copy: Path, where: str, line: str
) -> None:
    (copy / where).write_text(f"{line}\n")
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "planted" in result.stdout


def test_judging_needs_no_torch(root: Path) -> None:
    """Every module outside `systems` is imported where importing torch raises."""
    result = python(root, BLOCKER + IMPORT_ALL)
    assert result.returncode == 0, result.stderr
    assert {"nanoserve_bench.records", "nanoserve_report.study"} <= set(result.stdout.split())


def test_the_blocker_blocks(root: Path) -> None:
    result = python(root, BLOCKER + "import nanoserve")
    assert result.returncode == 1
    assert "must not be needed" in result.stderr


def test_the_names_of_the_source_document_are_exported(root: Path) -> None:
    """All but the one that runs Hugging Face are to be had without torch."""
    light = [f"nanoserve_bench.{name}" for name in NAMES_OF_THE_SOURCE if name != HEAVY]
    result = python(root, f"{BLOCKER}\nimport nanoserve_bench\nprint({', '.join(light)})")
    assert result.returncode == 0, result.stderr
    result = python(root, f"import nanoserve_bench\nassert callable(nanoserve_bench.{HEAVY})")
    assert result.returncode == 0, result.stderr
