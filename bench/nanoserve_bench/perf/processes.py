"""Probes of the engine: modules of `systems` that run once, in a process of their own.

They read one JSON object and write another. Ctrl-C ends them with whoever started them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from nanoserve_bench.errors import WorkerError
from nanoserve_bench.launcher import environment_of

_TAIL_CHARACTERS = 2000
_LINE_CHARACTERS = 400


def one_line(text: str) -> str:
    """A reason as it can stand in a cell; of a long one the end, where a traceback says what."""
    line = " ".join(text.split())
    return line if len(line) <= _LINE_CHARACTERS else f"... {line[-_LINE_CHARACTERS:]}"


def run_probe(module: str, asked: object, *, threads: int, timeout_s: float) -> Any:
    """Run `nanoserve_bench.systems.<module>`, and return what it answered.

    Raises:
        WorkerError: It failed, or took too long; the message ends with what it wrote.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own module in our own interpreter
            [sys.executable, "-P", "-m", f"nanoserve_bench.systems.{module}"],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=environment_of(threads),
        )
    except subprocess.TimeoutExpired:
        raise WorkerError(f"{module} did not answer in {timeout_s:g} s") from None
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        tail = done.stderr[-_TAIL_CHARACTERS:].rstrip()
        raise WorkerError(f"{module} ended with exit code {done.returncode}:\n{tail}")
    try:
        return json.loads(lines[-1])
    except ValueError as error:
        raise WorkerError(f"{module} wrote something that is no answer: {lines[-1]!r}") from error
