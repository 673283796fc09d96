"""Two hundred folders are written here, and none has to survive a power cut."""

from __future__ import annotations

import os

import pytest

from nanoserve_bench.results import ResultSet
from support import asking


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """The sound study, of which most tests change one value."""
    return asking.sound(tmp_path_factory.mktemp("sound"))
