"""The sweep's end of a worker process: start it, ask it, and know when it has failed.

A worker that dies, that does not answer in time, or whose answer is not a message is ended, and the
`WorkerError` carries the end of what it wrote to standard error.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

from nanoserve_bench import protocol
from nanoserve_bench.errors import WorkerError
from nanoserve_bench.protocol import (
    Close,
    Closed,
    Description,
    Failure,
    Launch,
    Reply,
    Request,
)
from nanoserve_bench.systems import interpreter_of

T = TypeVar("T", bound=Reply)

LAUNCH_TIMEOUT_S = 600.0
CLOSE_TIMEOUT_S = 20.0
_TAIL_CHARACTERS = 2000
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def environment_of(
    threads: int, *, engine: Path | None = None, python: str = sys.executable
) -> dict[str, str]:
    """The environment of a worker: the same threads for every library, and no network.

    In this interpreter the worker finds the modules that the sweep finds, however the sweep was
    started. Another one has libraries of its own and finds only this package, from these files.

    Args:
        threads: Compute threads.
        engine: Folder whose packages are found before all others: a built revision.
        python: Interpreter of the worker.
    """
    search = [entry for entry in sys.path if entry] if python == sys.executable else [_bridge()]
    search = ([str(engine)] if engine else []) + search
    return {
        **os.environ,
        **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(search),
    }


@cache
def _bridge() -> str:
    """A folder that holds this package and nothing else."""
    folder = tempfile.mkdtemp(prefix="nanoserve-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = Path(__file__).resolve().parent
    (Path(folder) / package.name).symlink_to(package, target_is_directory=True)
    return folder


class Worker:
    """A running worker; leave the `with` block and it is gone."""

    def __init__(self, launch: Launch, *, arm: str, engine: Path | None = None) -> None:
        self.launch = launch
        self.arm = arm
        python = interpreter_of(launch.system)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter that a system names
                [python, "-P", "-m", "nanoserve_bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment_of(launch.threads, engine=engine, python=python),
                # Ctrl-C in a terminal reaches the sweep alone, which then closes its workers.
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise WorkerError(f"the worker of {arm} cannot be started: {error}") from error
        if self._process.stdin is None or self._process.stdout is None:
            raise WorkerError(f"the worker of {arm} has no pipes")
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def describe(self) -> Description:
        """Load the system, and say what was loaded."""
        return self.ask(self.launch, Description, timeout_s=LAUNCH_TIMEOUT_S)

    def ask(self, request: Request, answer: type[T], *, timeout_s: float) -> T:
        """Send a request and sleep until its answer is there.

        Raises:
            WorkerError: There is no answer, or another one than this request has.
        """
        self._send(request)
        line = self._receive(request, timeout_s)
        try:
            reply = protocol.parse(line)
        except protocol.ProtocolError as error:
            raise self._failed(f"wrote something that is {error}") from error
        if isinstance(reply, Failure):
            raise self._failed(f"could not carry out {_name(request)}:\n{reply.error.rstrip()}")
        if not isinstance(reply, answer):
            raise self._failed(f"answered {_name(request)} with {_name(reply)}")
        return reply

    def close(self) -> None:
        """End the worker, kindly first. Errors here concern nobody: its results are in."""
        with contextlib.suppress(WorkerError):
            self.ask(Close(), Closed, timeout_s=CLOSE_TIMEOUT_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=CLOSE_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the worker now."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._requests, self._replies, self._log):
            with contextlib.suppress(OSError):
                stream.close()

    def _send(self, request: Request) -> None:
        try:
            self._requests.write(protocol.dump(request).encode() + b"\n")
            self._requests.flush()
        except (OSError, ValueError) as error:
            raise self._failed(f"was gone before {_name(request)}") from error

    def _receive(self, request: Request, timeout_s: float) -> str:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise self._failed(f"did not answer {_name(request)} in {timeout_s:g} s") from None
        if line is None:
            code = self._process.wait()
            raise self._failed(f"ended with exit code {code} during {_name(request)}")
        return line

    def _read(self) -> None:
        for line in self._replies:
            self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put(None)

    def _failed(self, what: str) -> WorkerError:
        tail = ""
        if not self._log.closed:
            self._process.kill()
            self._process.wait()
            self._log.seek(0)
            tail = self._log.read().decode("utf-8", "replace")[-_TAIL_CHARACTERS:].rstrip()
        message = f"the worker of {self.arm} ({self.launch.device}) {what}"
        return WorkerError(f"{message}\nThe end of what it wrote:\n{tail}" if tail else message)


def _name(message: Request | Reply) -> str:
    return type(message).__name__
