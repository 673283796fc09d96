"""How a run is dated and named: one spelling of the time, and names that are still free."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path


def now() -> str:
    """The time in UTC, as it stands in the files."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def dated(*words: str) -> str:
    """A run id of today (in UTC) and of words that tell it from the day's others."""
    return "-".join([f"{datetime.now(UTC):%Y%m%d}", *words])


def free(stem: str, out: Path) -> str:
    """The first of `stem`, `stem-2`, ... that names nothing in `out` yet."""
    return first(stem, lambda name: not (out / name).exists())


def first(stem: str, suits: Callable[[str], bool]) -> str:
    """The first of `stem`, `stem-2`, ... that suits."""
    later = (f"{stem}-{number}" for number in itertools.count(2))
    return next(filter(suits, itertools.chain([stem], later)))
