"""`openai`: a server with OpenAI's completions endpoint, seen from its client.

The server is somebody else's: it is not launched here, and what it cannot be asked is declared by
whoever starts the sweep. Stamps are the client's, so a token is there when it has arrived; slots
are requests that the client has out at a time, and nothing is told of the server's own. In an open
loop the client holds nothing back.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from nanoserve_bench import caches
from nanoserve_bench.environment import cpu_model
from nanoserve_bench.errors import PlanError, WorkerError
from nanoserve_bench.models import tokenizer_digest
from nanoserve_bench.protocol import Description, Launch, Trial
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.systems import System, canonical
from nanoserve_bench.systems.completion import RequestRefused, ResponseRefused, Stream
from nanoserve_bench.systems.endpoint import Connection, Endpoint, split_url
from nanoserve_bench.systems.listeners import addresses_of, listening
from nanoserve_bench.systems.outstanding import run_outstanding

STUDY = "study"
"""Declares that the server has the study's own model: `weights=study`."""
_PROBE_TOKENS = 2
_DEFAULT_SILENCE_S = 60.0
_DEFAULT_WAY = "token_ids"
"""How a server is asked for ids unless an arm says otherwise."""
_ASKED_FOR: Mapping[str, Mapping[str, object]] = {
    _DEFAULT_WAY: {"return_token_ids": True},
    "logprobs": {"logprobs": 1, "return_tokens_as_token_ids": True},
}
"""What asks a server for the ids of its tokens."""


class OpenAi(System):
    """A server at `url`, which has to be on this machine and to give the ids of its tokens."""

    summary = "a server with OpenAI's completions endpoint"
    shape = Shape.CONCURRENT
    stamps: ClassVar[tuple[str, ...]] = ("first_token", "tokens")
    distribution = "nanoserve-bench"
    measures_ceilings = False
    open_loop = True
    one_ground = True
    lingers = True
    options: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "url": "base address, such as http://127.0.0.1:8000/v1 (needed)",
            "model": "the name under which it serves the model (needed)",
            "ids": "how it is asked for token ids: token_ids (the default) or logprobs",
            "key_env": "environment variable that holds its API key",
            "silence_s": f"longest wait for its next bytes, s (default {_DEFAULT_SILENCE_S:g})",
            "body.*": "a further member of every request, its value in JSON",
            "server": "declared: what it is, such as vllm-0.32.0",
            "weights": f"declared: what it serves; {STUDY} is the study's model",
            "weight_bytes": f"declared: bytes of weights a step reads; known for weights={STUDY}",
            "tokenizer": f"declared: its tokenizer; {STUDY} is the study's",
            "cache": "declared: its prefix cache, off or on",
            "precision": "declared: what a float32 product computes in, such as ieee or tf32",
            "threads": "declared: its compute threads",
        }
    )

    def __init__(self, launch: Launch) -> None:
        options = {option.name: option.value for option in launch.options}
        self._launch = launch
        self._options = options
        self._endpoint = endpoint_of(options)
        if not self.processes():
            raise PlanError(
                f"no process that may be looked at listens on port {self._endpoint.port}: start "
                "the server, and the sweep as the same user, so that its CPU time counts as its own"
            )
        try:
            self._server = self._probe()
        except ResponseRefused as error:
            why = f"{options['url']} cannot be measured: {error}"
            if isinstance(error, RequestRefused):
                asked = ", ".join(
                    sorted({"ignore_eos", *_ASKED_FOR[options.get("ids", _DEFAULT_WAY)]})
                )
                why += (
                    f"; every request has its prompt as token ids and asks for {asked}: tokens "
                    "without ids cannot be verified"
                )
            raise PlanError(why) from error
        self._description = self._describe()

    @classmethod
    def version(cls) -> str:
        """Version of the interface; the server's own stands among the libraries."""
        return "completions-v1"

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Refuse what cannot be an endpoint of this machine, or declares what is no setting."""
        addresses_of(endpoint_of(options).host)
        caches.state_of(options)
        for name in ("threads", "weight_bytes"):
            if not options.get(name, "1").isdecimal() or int(options.get(name, "1")) < 1:
                raise PlanError(f"{name} is a whole number above 0, not {options[name]!r}")

    def processes(self) -> tuple[int, ...]:
        """The server's processes: what they compute is the arm's own work."""
        return listening(self._endpoint.host, self._endpoint.port)

    def describe(self) -> Description:
        """What is declared, marked as declared; what is not is unknown."""
        return self._description

    def run(self, trial: Trial) -> SystemRun:
        """All prompts, at most `trial.slots` of them out at a time, or each when it is due."""
        try:
            records = run_outstanding(
                self._endpoint,
                trial.prompts,
                max_tokens=trial.max_tokens,
                slots=trial.slots,
                due_ns=trial.due_ns,
            )
        except OSError as error:
            raise WorkerError(f"{self._options['url']} takes no connections: {error}") from error
        return SystemRun(
            system=self._launch.system,
            shape=self.shape,
            slots=trial.slots,
            records=records,
            settings=self._description.settings(self._launch),
        )

    def _probe(self) -> str | None:
        """Try the server before anything is measured; what it calls itself.

        Raises:
            ResponseRefused: It cannot be reached, or its tokens cannot be verified.
        """
        connection = Connection(self._endpoint)
        stream = Stream(prompt=(1, 2, 3), max_tokens=_PROBE_TOKENS)
        try:
            connection.complete(stream, lambda: 0)
        finally:
            connection.close()
        if len(stream.token_ids) != _PROBE_TOKENS:
            raise ResponseRefused(
                f"the server was asked for {_PROBE_TOKENS} tokens through any EOS, and gave "
                f"{len(stream.token_ids)}"
            )
        return connection.server

    def _describe(self) -> Description:
        launch, options = self._launch, self._options
        folder = Path(launch.model_path)
        studied = options.get("weights") == STUDY
        weights = launch.model_name if studied else options.get("weights")
        weight_bytes = int(options["weight_bytes"]) if "weight_bytes" in options else None
        if studied and weight_bytes is None:
            in_float32 = canonical.bytes_per_step(canonical.canonical_tensors(folder))
            weight_bytes = in_float32 if launch.dtype == "float32" else in_float32 // 2
        tokenizer = options.get("tokenizer")
        if tokenizer == STUDY:
            tokenizer = tokenizer_digest(folder)
        server = options.get("server")
        called = _declared(server) if server else self._server
        return Description(
            version=self.version(),
            revision=None,
            shape=self.shape.value,
            stamps=self.stamps,
            device_name=cpu_model() if launch.device == "cpu" else f"declared:{launch.device}",
            dtype=launch.dtype,
            matmul_precision=_declared(options.get("precision")),
            threads=int(options["threads"]) if "threads" in options else None,
            weights=_declared(weights),
            weight_bytes_per_step=weight_bytes,
            tokenizer=_declared(tokenizer),
            attention=None,
            cache=_declared(options.get("cache")),
            decoding="greedy;ignore_eos",
            kernel_path=None,
            libraries=(("server", called.translate(_SEPARATORS)),) if called else (),
        )


_SEPARATORS = str.maketrans({";": " ", "=": " "})
"""What separates the entries of a list of libraries."""


def _declared(value: str | None) -> str | None:
    return None if value is None else f"declared:{value}"


def endpoint_of(options: Mapping[str, str]) -> Endpoint:
    """The endpoint that options describe.

    Raises:
        PlanError: An option is missing or wrong.
    """
    for name in ("url", "model"):
        if name not in options:
            raise PlanError(f"say {name}=...: {OpenAi.options[name]}")
    try:
        host, port, path, secure = split_url(options["url"])
        silence_s = float(options.get("silence_s", _DEFAULT_SILENCE_S))
    except ValueError as error:
        raise PlanError(str(error)) from error
    if not (math.isfinite(silence_s) and silence_s > 0):
        raise PlanError(f"silence_s is a time in seconds, not {options['silence_s']!r}")
    asked = options.get("ids", _DEFAULT_WAY)
    if asked not in _ASKED_FOR:
        raise PlanError(f"ids is one of {', '.join(_ASKED_FOR)}, not {asked!r}")
    return Endpoint(
        host=host,
        port=port,
        path=path,
        secure=secure,
        headers=_headers(options),
        body={
            "model": options["model"],
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **_ASKED_FOR[asked],
            **_further(options),
        },
        silence_s=silence_s,
    )


def _headers(options: Mapping[str, str]) -> dict[str, str]:
    if "key_env" not in options:
        return {}
    key = os.environ.get(options["key_env"])
    if not key:
        raise PlanError(f"the environment variable {options['key_env']} holds no key")
    return {"Authorization": f"Bearer {key}"}


_OURS = frozenset({"prompt", "max_tokens", "stream", "model"})


def _further(options: Mapping[str, str]) -> dict[str, object]:
    body: dict[str, object] = {}
    for name, value in options.items():
        family, dot, member = name.partition(".")
        if family != "body" or not dot:
            continue
        if member in _OURS:
            raise PlanError(f"{name} is what the sweep itself decides")
        try:
            body[member] = json.loads(value)
        except ValueError as error:
            raise PlanError(f"{name} is in JSON, such as true or 1, not {value!r}") from error
    return body
