"""Shared by the tests of the benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nanoserve_bench import sweep
from nanoserve_bench.block import BlockRun
from nanoserve_bench.models import ModelFolder, materialise
from nanoserve_bench.protocol import Launch
from support import fake_systems as fakes


@pytest.fixture
def fake_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake systems, registered as an installed distribution's are."""
    site = tmp_path / "site"
    site.mkdir()
    fakes.install(site)
    monkeypatch.syspath_prepend(str(site))


@pytest.fixture
def make_launch() -> Callable[..., Launch]:
    """A launch of a system on the CPU, in one thread."""

    def make(system: str, *, model: ModelFolder | None = None, most_slots: int = 8) -> Launch:
        return Launch(
            system=system,
            machine="a machine",
            device="cpu",
            dtype="float32",
            threads=1,
            model_name="nothing" if model is None else model.name,
            model_path="nowhere" if model is None else str(model.path),
            most_slots=most_slots,
            longest=32,
        )

    return make


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where models are materialised: kept between sessions only where a cache was chosen."""
    chosen = os.environ.get("NANOSERVE_CACHE")
    return Path(chosen) if chosen else tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def tiny(cache: Path) -> ModelFolder:
    """The tiny synthetic model."""
    return materialise("synthetic:tiny-llama", cache=cache)


@pytest.fixture
def command(cache: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start `nanoserve-bench` with arguments, in an environment like this one's."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "nanoserve_bench", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "NANOSERVE_CACHE": str(cache),
            },
        )

    return start


@pytest.fixture
def quick_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ceilings, which would load torch in every block, and no neighbours of the tests."""
    monkeypatch.setattr(BlockRun, "_measure_ceilings", lambda *_: None)
    monkeypatch.setattr(sweep, "contention", lambda _: None)
