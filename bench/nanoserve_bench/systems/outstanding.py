"""Driving an endpoint: at most n requests out at a time, each with an end in any case.

A request that fails is recorded as failed and takes no other with it: the records of a trial are
whole, and the gate refuses them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    """A thread with a connection of its own, which sends what waits, one request at a time."""

    connection: Connection
    waiting: deque[int]
    sent: dict[int, _Sent]
    streams: Sequence[Stream]
    clock: Callable[[], int]
    start: threading.Event
    stop: threading.Event
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
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
    limit_s: float | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> tuple[RunRecord, ...]:
    """Send every prompt, in their order, as soon as fewer than `slots` are out.

    All requests arrive at once; those that wait for others to come back are queued in the client.
    Connections are opened before the first stamp.

    Args:
        endpoint: The endpoint.
        prompts: Token ids of each request.
        max_tokens: Tokens to ask for, of every request or of each.
        slots: Most requests out at a time.
        limit_s: Longest time for all of it, seconds; by default `patience_s` of the tokens.
        clock: Monotonic time, ns.

    Raises:
        OSError: The server does not even accept connections.
    """
    wanted = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
    streams = [
        Stream(prompt=tuple(prompt), max_tokens=tokens)
        for prompt, tokens in zip(prompts, wanted, strict=True)
    ]
    waiting, sent = deque(range(len(prompts))), dict[int, _Sent]()
    start, stop = threading.Event(), threading.Event()
    connections = [Connection(endpoint) for _ in range(min(slots, len(prompts)))]
    try:
        for connection in connections:
            connection.open()
        clients = [
            _Client(
                connection=connection,
                waiting=waiting,
                sent=sent,
                streams=streams,
                clock=clock,
                start=start,
                stop=stop,
            )
            for connection in connections
        ]
        limit_s = patience_s(sum(wanted)) if limit_s is None else limit_s
        ends_at = time.monotonic() + limit_s
        arrival_ns = clock()
        start.set()
        for client in clients:
            client.thread.join(max(0.0, ends_at - time.monotonic()))
        stop.set()
        _end(clients)
    finally:
        for connection in connections:
            connection.close()
    return tuple(
        _record(request, stream, sent.get(request), arrival_ns)
        for request, stream in enumerate(streams)
    )


def _end(clients: Sequence[_Client]) -> None:
    """Stop those that are still at it: their requests fail, and their records stay."""
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
