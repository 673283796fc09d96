"""Importing nanoserve is cheap, and its version is the one of its project file."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import nanoserve

PACKAGE = Path(nanoserve.__file__).parent


def imported_by(program: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PACKAGE.parent), "OMP_NUM_THREADS": "1"},
    )
    return set(result.stdout.split())


def test_ids_in_ids_out_never_imports_transformers_or_the_hub():
    modules = imported_by(
        "from nanoserve import LLM, SamplingParams\n"
        "LLM('synthetic:tiny-llama').generate([[5, 6]], SamplingParams(max_tokens=2))"
    )
    assert "torch" in modules
    assert not {"transformers", "huggingface_hub", "tokenizers"} & modules


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    assert nanoserve.__version__ == project["version"]
    assert project["name"] == "nanoserve"


def test_the_public_names_are_there():
    assert all(hasattr(nanoserve, name) for name in nanoserve.__all__)
    assert {"LLM", "Engine", "EngineConfig", "SamplingParams"} <= set(nanoserve.__all__)
