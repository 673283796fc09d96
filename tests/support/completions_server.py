"""A server with OpenAI's completions endpoint, made of this engine, honest or bad on purpose.

`python -m support.completions_server MODEL PORT` serves until it is interrupted.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nanoserve import LLM, SamplingParams

Answer = Callable[["Reply", Sequence[int], int], None]


class Reply:
    """What an answer writes with: a request, and the ways to respond to it."""

    def __init__(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        self.handler = handler
        self.request = request

    def head(self, status: int = 200, kind: str = "text/event-stream") -> None:
        self.handler.send_response(status)
        self.handler.send_header("Content-Type", kind)
        self.handler.send_header("Transfer-Encoding", "chunked")
        self.handler.end_headers()

    def raw(self, data: bytes) -> None:
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.handler.wfile.flush()

    def event(self, data: object) -> None:
        self.raw(b"data: " + json.dumps(data).encode() + b"\n\n")

    def token(self, *ids: int, text: str = "x", finish_reason: str | None = None) -> None:
        choice: dict[str, object] = {"index": 0, "text": text, "finish_reason": finish_reason}
        if self.request.get("return_token_ids"):
            choice["token_ids"] = list(ids)
        if self.request.get("return_tokens_as_token_ids"):
            choice["logprobs"] = {"tokens": [f"token_id:{i}" for i in ids]}
        self.event({"choices": [choice]})

    def usage(self, count: int, prompt: int | None = None) -> None:
        sent = len(self.request["prompt"])
        usage = {"completion_tokens": count, "prompt_tokens": sent if prompt is None else prompt}
        self.event({"choices": [], "usage": usage})

    def done(self) -> None:
        self.raw(b"data: [DONE]\n\n")
        self.end()

    def end(self) -> None:
        self.handler.wfile.write(b"0\r\n\r\n")
        self.handler.wfile.flush()

    def drop(self) -> None:
        self.handler.close_connection = True
        self.handler.connection.close()


def honest(reply: Reply, ids: Sequence[int], _max_tokens: int) -> None:
    """As a good server does: an id a chunk, then the usage."""
    reply.head()
    for position, token in enumerate(ids):
        reply.token(token, finish_reason="length" if position + 1 == len(ids) else None)
    reply.usage(len(ids))
    reply.done()


class CompletionsServer(ThreadingHTTPServer):
    """Answers by the engine's tokens, in the manner of `answers`, by the first id of a prompt."""

    daemon_threads = True

    def __init__(self, model: str, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.llm = LLM(model, max_slots=4, max_model_len=256)
        self.lock = threading.Lock()
        self.answers: dict[int, Answer] = {}
        self.requests: list[dict[str, Any]] = []
        self.most_at_once = 0
        self.at_once = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def generate(self, prompt: Sequence[int], max_tokens: int) -> Sequence[int]:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        with self.lock:
            return self.llm.generate([list(prompt)], params)[0].token_ids


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CompletionsServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request["_path"], request["_key"] = self.path, self.headers.get("Authorization")
        server = self.server
        with server.lock:
            server.requests.append(request)
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            prompt, max_tokens = request["prompt"], request["max_tokens"]
            ids = server.generate(prompt, max_tokens)
            server.answers.get(prompt[0], honest)(Reply(self, request), ids, max_tokens)
        except OSError:
            self.close_connection = True  # the client has gone, as it is meant to
        finally:
            with server.lock:
                server.at_once -= 1

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(model: str) -> Iterator[CompletionsServer]:
    """A server in a thread of this process."""
    server = CompletionsServer(model)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    server = CompletionsServer(sys.argv[1], int(sys.argv[2]))
    print(server.url, flush=True)
    server.serve_forever()


def until(event: threading.Event) -> Answer:
    """Say nothing until an event: a server that hangs."""

    def answer(reply: Reply, _ids: Sequence[int], _max_tokens: int) -> None:
        reply.head()
        event.wait(60)
        reply.drop()

    return answer


def dripping(event: threading.Event) -> Answer:
    """Bytes without an end of a line, for ever."""

    def answer(reply: Reply, _ids: Sequence[int], _max_tokens: int) -> None:
        reply.head()
        while not event.is_set():
            reply.raw(b".")
            time.sleep(0.01)

    return answer


if __name__ == "__main__":
    main()
