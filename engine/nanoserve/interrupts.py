"""Ctrl-C, and books that must not be left half written.

Python raises a ``KeyboardInterrupt`` between any two operations of the main thread, as well
between taking a block from the free list and writing down who has it. No order of statements is
safe against that, so the signal itself is made to wait.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let a Ctrl-C wait until the block is done; a second one waits no longer.

    Whatever handler the program has installed is called then, and raises what it raises. Where
    none is, or outside of the main thread, where no signal is handled, nothing changes.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if waiting:
            handler(number, frame)
        waiting.append((number, frame))

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting:
            handler(*waiting[0])
