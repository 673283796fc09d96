"""Driving an endpoint: at most n requests out at a time, or each when due, with an end in any case.

A request that fails is recorded as failed and takes no other with it: the records of a trial are
whole, and the gate refuses them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from nanoserve_bench.feeding import send_when_due
from nanoserve_bench.records import RunRecord
from nanoserve_bench.systems.completion import ResponseRefused, Stream
from nanoserve_bench.systems.endpoint import Connection, Endpoint

_PATIENCE_S = 60.0
_PATIENCE_PER_TOKEN_S = 4.0
_GRACE_S = 5.0


def patience_s(tokens: int) -> float:
    """How long all requests of a trial may take; less than the sweep waits for the worker."""
    return _PATIENCE_S + _PATIENCE_PER_TOKEN_S * tokens


@dataclass(kw_only=True)
class _Sent:
    """A request, from the moment at which it was sent."""

    stream: Stream
    submitted_ns: int
    finished_ns: int | None = None
    error: str = ""


@dataclass(kw_only=True)
class _Client:
    """A thread with a connection of its own, which sends what waits, one request at a time.

    `start` holds it back until all are there; None lets it send at once.
    """

    connection: Connection
    waiting: deque[int]
    sent: dict[int, _Sent]
    streams: Sequence[Stream]
    clock: Callable[[], int]
    stop: threading.Event
    start: threading.Event | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        if self.start is not None:
            self.start.wait()
        while not self.stop.is_set():
            try:
                request = self.waiting.popleft()
            except IndexError:
                return
            entry = _Sent(stream=self.streams[request], submitted_ns=self.clock())
            self.sent[request] = entry
            try:
                entry.finished_ns = self.connection.complete(entry.stream, self.clock)
            except ResponseRefused as error:
                entry.error = str(error)


def run_outstanding(
    endpoint: Endpoint,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | Sequence[int],
    slots: int,
    due_ns: Sequence[int] = (),
    limit_s: float | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[RunRecord, ...]:
    """Send every prompt, in their order: as soon as fewer than `slots` are out, or when it is due.

    Without `due_ns` all requests arrive at once; those that wait for others to come back are queued
    in the client, and connections are opened before the first stamp. With it nothing is held back:
    each is sent when it is due, whatever the server does, over a connection of its own.

    Args:
        endpoint: The endpoint.
        prompts: Token ids of each request.
        max_tokens: Tokens to ask for, of every request or of each.
        slots: Most requests out at a time; in an open loop the server's own are all there are.
        due_ns: When each is due, ns after the first, ascending; empty sends all as slots allow.
        limit_s: Longest time for all of it from the first to the last, and after the last that is
            due, seconds; by default `patience_s` of the tokens.
        clock: Monotonic time, ns.
        sleep: Waits for so many seconds while nothing is due.

    Raises:
        OSError: The server does not even accept connections.
    """
    wanted = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
    streams = [
        Stream(prompt=tuple(prompt), max_tokens=tokens)
        for prompt, tokens in zip(prompts, wanted, strict=True)
    ]
    sent, arrivals = dict[int, _Sent](), dict[int, int]()
    clients: list[_Client] = []
    stop = threading.Event()
    make = partial(_Client, streams=streams, sent=sent, clock=clock, stop=stop)
    with ExitStack() as stack:

        def connection() -> Connection:
            made = Connection(endpoint)
            stack.callback(made.close)
            return made

        def send(request: int, arrival_ns: int) -> None:
            arrivals[request] = arrival_ns
            clients.append(make(connection=connection(), waiting=deque([request])))

        if due_ns:
            _refuse_closed(endpoint)
            send_when_due(due_ns, send, clock=clock, sleep=sleep)
        else:
            waiting, start = deque(range(len(prompts))), threading.Event()
            connections = [connection() for _ in range(min(slots, len(prompts)))]
            for each in connections:
                each.open()
            clients += [make(connection=each, waiting=waiting, start=start) for each in connections]
            arrivals |= dict.fromkeys(waiting, clock())
            start.set()
        limit_s = patience_s(sum(wanted)) if limit_s is None else limit_s
        _end(clients, stop, time.monotonic() + limit_s)
    return tuple(
        _record(request, stream, sent.get(request), arrivals[request])
        for request, stream in enumerate(streams)
    )


def _refuse_closed(endpoint: Endpoint) -> None:
    """Raise OSError where the server accepts no connections."""
    connection = Connection(endpoint)
    connection.open()
    connection.close()


def _end(clients: Sequence[_Client], stop: threading.Event, ends_at: float) -> None:
    """Wait for all, and stop those that are still at it: their requests fail, and have records."""
    for client in clients:
        client.thread.join(max(0.0, ends_at - time.monotonic()))
    stop.set()
    late = [client for client in clients if client.thread.is_alive()]
    for client in late:
        client.connection.abandon()
    for client in late:
        client.thread.join(_GRACE_S)


def _record(request: int, stream: Stream, entry: _Sent | None, arrival_ns: int) -> RunRecord:
    finished_ns = None if entry is None else entry.finished_ns
    error = "" if entry is None else entry.error
    if finished_ns is None and not error:
        error = "the time for the trial was over"
    return RunRecord(
        request=str(request),
        prompt_ids=stream.prompt,
        output_ids=tuple(stream.token_ids),
        max_tokens=stream.max_tokens,
        arrival_ns=arrival_ns,
        submitted_ns=arrival_ns if entry is None else entry.submitted_ns,
        holds=None,
        first_token_ns=stream.token_ns[0] if stream.token_ns else None,
        finished_ns=finished_ns,
        token_ns=tuple(stream.token_ns) or None,
        cached_tokens=stream.cached_tokens,
        finish_reason="error" if error else stream.finish_reason or "",
        error=error,
    )
