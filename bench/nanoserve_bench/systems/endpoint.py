"""A connection to a completions endpoint: one request at a time, streamed, with an end in any case.

A server that is slow to say anything is given `silence_s`; one that drips single bytes for ever is
stopped from outside, by `abandon`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from nanoserve_bench.systems.completion import RequestRefused, ResponseRefused, Stream

_LINE_LIMIT = 2**20
_SHOWN = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where completions are to be had, and what every request says beside its prompt.

    Attributes:
        host: Name or address.
        port: Port.
        path: Path of the API, such as `/v1`.
        secure: Whether to speak TLS.
        headers: Sent with every request.
        body: Members of every request's body.
        silence_s: Longest wait for the next bytes, seconds.
    """

    host: str
    port: int
    path: str
    secure: bool
    headers: Mapping[str, str]
    body: Mapping[str, object]
    silence_s: float


def split_url(url: str) -> tuple[str, int, str, bool]:
    """Host, port, path and whether it is TLS, of the base address of an API.

    Raises:
        ValueError: It is no such address.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is no address such as http://127.0.0.1:8000/v1")
    secure = parts.scheme == "https"
    return parts.hostname, parts.port or (443 if secure else 80), parts.path.rstrip("/"), secure


class Connection:
    """A connection that is kept open from one request to the next."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        kind = http.client.HTTPSConnection if endpoint.secure else http.client.HTTPConnection
        self._http = kind(endpoint.host, endpoint.port, timeout=endpoint.silence_s)
        self._socket: socket.socket | None = None
        self.server: str | None = None

    def open(self) -> None:
        """Connect, so that no request has to wait for it.

        Raises:
            OSError: Nobody answers.
        """
        self._http.connect()

    def complete(self, stream: Stream, clock: Callable[[], int]) -> int:
        """Send a prompt, read its completion into `stream`, and return when it was done, ns.

        Raises:
            ResponseRefused: There is no completion, or none that can be counted.
        """
        try:
            finished_ns = self._complete(stream, clock)
        except ResponseRefused:
            self.close()
            raise
        except TimeoutError as error:
            self.close()
            silence = self._endpoint.silence_s
            raise ResponseRefused(f"the server said nothing for {silence:g} s") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise ResponseRefused(
                f"the connection failed: {type(error).__name__} {error}"
            ) from error
        return finished_ns

    def _complete(self, stream: Stream, clock: Callable[[], int]) -> int:
        asked = {
            **self._endpoint.body,
            "prompt": list(stream.prompt),
            "max_tokens": stream.max_tokens,
        }
        headers = {"Content-Type": "application/json", **self._endpoint.headers}
        path = f"{self._endpoint.path}/completions"
        self._http.request("POST", path, body=json.dumps(asked).encode(), headers=headers)
        self._socket = self._http.sock  # the response takes it away where it is the last one
        response = self._http.getresponse()
        self.server = response.getheader("Server")
        kind = response.getheader("Content-Type", "nothing")
        if response.status != http.HTTPStatus.OK:
            raise RequestRefused(f"HTTP {response.status}: {_beginning(response)}")
        if not kind.startswith("text/event-stream"):
            raise ResponseRefused(f"the server sent {kind} and no stream: {_beginning(response)}")
        while not stream.done:
            line = response.readline(_LINE_LIMIT)
            now_ns = clock()
            if not line:
                break
            if not line.endswith(b"\n") and len(line) >= _LINE_LIMIT:
                raise ResponseRefused(f"a line of the stream is longer than {_LINE_LIMIT} bytes")
            text = line.decode("utf-8", "replace").strip()
            if text.startswith("data:"):
                stream.take(text.removeprefix("data:").strip(), now_ns)
        finished_ns = clock()
        stream.close()
        try:
            rest = response.read(_LINE_LIMIT).strip()
        except (OSError, http.client.HTTPException):
            self.close()  # everything was there; only the connection is of no more use
            return finished_ns
        if rest:
            raise ResponseRefused("the server went on after it had said that it was done")
        return finished_ns

    def abandon(self) -> None:
        """Make whoever waits for this connection give up; from any thread."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it; the next request opens it anew."""
        self._http.close()


def _beginning(response: http.client.HTTPResponse) -> str:
    return " ".join(response.read(_SHOWN).decode("utf-8", "replace").split()) or "(no body)"
