"""`pip install` of the repository's root installs the judge, `nanoserve-bench`.

pre-commit installs a repository's hooks in no other way. This build backend hands every request
on to hatchling, inside this folder, whose `pyproject.toml` says what is built.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from hatchling import build

BENCH = Path(__file__).parent


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What the wheel's build needs beside hatchling."""
    with contextlib.chdir(BENCH):
        return list(build.get_requires_for_build_wheel(config_settings))


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel; returns its name."""
    with contextlib.chdir(BENCH):
        return str(build.build_wheel(wheel_directory, config_settings, metadata_directory))
