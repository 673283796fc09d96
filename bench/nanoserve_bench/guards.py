"""What a sweep holds while it writes: the folder for itself, and Ctrl-C off."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from nanoserve_bench.errors import PlanError


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a folder for one sweep at a time, where the system can lock files.

    Raises:
        PlanError: Another process holds it.
    """
    try:
        import fcntl  # noqa: PLC0415 - the module does not exist on Windows
    except ImportError:
        yield
        return
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PlanError(f"another sweep is running in {path.parent}") from error
        yield


@contextlib.contextmanager
def no_interrupt() -> Iterator[None]:
    """Put Ctrl-C off until files and manifest agree again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        pressed.append(number)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
