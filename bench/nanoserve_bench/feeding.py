"""Requests that come when they are due: the client's side of an open loop.

Whoever steps an engine, or waits for a call that generates, cannot look at the clock meanwhile. A
thread that does nothing else hands each request over when it is due, whatever the engine does, and
the driver finds it in a queue. A request in that queue has been submitted, and waits like any
other.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from nanoserve_bench.records import NS_PER_S


class Submitted(NamedTuple):
    """A request that has come: when it was due, and when it really was handed over, ns."""

    request: int
    arrival_ns: int
    submitted_ns: int


class Feed(Protocol):
    """Where a driver finds the requests that have come."""

    def take(self, *, wait: bool) -> list[Submitted]:
        """What has come since the last look, in order; with `wait` at least one request."""


class Burst:
    """All requests at once, when they are first looked for."""

    def __init__(self, requests: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._requests = requests
        self._clock = clock

    def take(self, *, wait: bool) -> list[Submitted]:  # noqa: ARG002 - all are there
        """Everything the first time, and nothing afterwards."""
        now_ns = self._clock()
        come = [Submitted(request, now_ns, now_ns) for request in range(self._requests)]
        self._requests = 0
        return come


class Feeder:
    """Each request when it is due, from a thread that ends with the last of them.

    Args:
        due_ns: When each is due, ns after the first, ascending.
    """

    def __init__(self, due_ns: Sequence[int]) -> None:
        self._come: queue.SimpleQueue[Submitted] = queue.SimpleQueue()
        threading.Thread(target=send_when_due, args=(due_ns, self._submit), daemon=True).start()

    def _submit(self, request: int, arrival_ns: int) -> None:
        self._come.put(Submitted(request, arrival_ns, time.monotonic_ns()))

    def take(self, *, wait: bool) -> list[Submitted]:
        """What has come since; with `wait` it sleeps until something does."""
        come = [self._come.get()] if wait else []
        with contextlib.suppress(queue.Empty):
            while True:
                come.append(self._come.get_nowait())
        return come


def feed_of(requests: int, due_ns: Sequence[int]) -> Feed:
    """Requests as a trial offers them: each when it is due, or all at once where none is."""
    return Feeder(due_ns) if due_ns else Burst(requests)


def send_when_due(
    due_ns: Sequence[int],
    send: Callable[[int, int], None],
    *,
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Call `send` with each request and the instant at which it was due, at that instant.

    Args:
        due_ns: When each is due, ns after the first, ascending.
        send: Hands a request over; it must not wait for an answer.
        clock: Monotonic time, ns.
        sleep: Waits for so many seconds.
    """
    start_ns = clock()
    for request, due in enumerate(due_ns):
        arrival_ns = start_ns + due
        while (left_ns := arrival_ns - clock()) > 0:
            sleep(left_ns / NS_PER_S)
        send(request, arrival_ns)
