"""The worker process: one system, loaded once, that runs trials until it is closed.

Started by `launcher.py` as `python -m nanoserve_bench.worker`. The protocol has streams of its own:
before anything else is imported the real standard output is set aside and descriptor 1 is pointed
at standard error, so that whatever a library prints cannot get between two messages.

The main thread runs the model (a thread that is not the main one gets fewer OpenMP threads in some
libraries). A second thread sleeps on the requests; when the sweep is gone it ends the process at
once, even in the middle of a trial, so that a killed sweep leaves nothing running.
"""

from __future__ import annotations

import gc
import os
import queue
import threading
import traceback
from collections.abc import Iterator
from typing import TextIO

import psutil

from nanoserve_bench import protocol
from nanoserve_bench.errors import BenchError
from nanoserve_bench.meters import Meter, family_of, settle
from nanoserve_bench.protocol import (
    Ceilings,
    Close,
    Closed,
    Divergence,
    Failure,
    Launch,
    MeasureCeilings,
    Reply,
    Request,
    Settle,
    Settled,
    Trial,
    TrialResult,
)
from nanoserve_bench.systems import System, find

_ERROR_CHARACTERS = 2000


def take_streams() -> tuple[TextIO, TextIO]:
    """Keep standard input and output for the protocol, and give the libraries others."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


class Session:
    """Answers requests with the system that the first of them launches."""

    def __init__(self) -> None:
        self._system: System | None = None
        self._launch: Launch | None = None
        self._helpers: tuple[psutil.Process, ...] = ()

    def answer(self, request: Request | Reply) -> Reply:
        """Carry out a request; whatever goes wrong is the answer."""
        try:
            return self._carry_out(request)
        except BenchError as error:
            return Failure(error=str(error))
        except Exception:  # noqa: BLE001 - a system may fail in any way, and the sweep must know
            return Failure(error=traceback.format_exc()[-_ERROR_CHARACTERS:])

    def _carry_out(self, request: Request | Reply) -> Reply:
        if isinstance(request, Launch):
            self._system = find(request.system)(request)
            self._launch = request
            self._helpers = family_of((os.getpid(), *self._system.processes()))
            # What has been loaded stays; the collector need not walk it during a trial.
            gc.collect()
            gc.freeze()
            return self._system.describe()
        if isinstance(request, Close):
            return Closed()
        if self._system is None or self._launch is None:
            raise protocol.ProtocolError("the first request must be a launch")
        if isinstance(request, Trial):
            return self._run(self._system, self._launch, request)
        if isinstance(request, Settle):
            settle(self._helpers)
            return Settled()
        if isinstance(request, MeasureCeilings):
            return self._measure(self._launch, request)
        if isinstance(request, Divergence):
            return self._system.triage(request)
        raise protocol.ProtocolError(f"{type(request).__name__} is not a request")

    def _run(self, system: System, launch: Launch, trial: Trial) -> TrialResult:
        meter = Meter(launch.device, self._helpers)
        run = system.run(trial)
        return TrialResult(
            records=tuple(run.records),
            steps=None if run.steps is None else tuple(run.steps),
            reading=meter.read(),
        )

    @staticmethod
    def _measure(launch: Launch, request: MeasureCeilings) -> Ceilings:
        from nanoserve_bench.systems.ceilings import measure  # noqa: PLC0415 - imports torch

        return measure(device=launch.device, dtype=launch.dtype, buffer_bytes=request.buffer_bytes)


def _receive(requests: TextIO) -> Iterator[str]:
    """Lines as they come; the end of the stream ends the process."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in requests:
            lines.put(line)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def _dump(reply: Reply) -> str:
    """A reply as its line; what a system put in that is no JSON is a failure that says so."""
    try:
        return protocol.dump(reply)
    except (TypeError, ValueError) as error:
        failure = f"its {type(reply).__name__} cannot be written: {error}"
        return protocol.dump(Failure(error=failure))


def main() -> None:
    """Serve the sweep until it closes the worker."""
    requests, replies = take_streams()
    session = Session()
    for line in _receive(requests):
        reply = session.answer(protocol.parse(line))
        replies.write(_dump(reply) + "\n")
        replies.flush()
        if isinstance(reply, Closed):
            # Some libraries leave threads that never end, or abort while they are torn down.
            os._exit(0)


if __name__ == "__main__":
    main()
