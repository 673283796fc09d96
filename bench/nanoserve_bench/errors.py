"""The exceptions of the benchmark.

`BenchError` is the base of everything that a command line prints without a traceback: `RunUnsound`
and `UnfairComparison` come from the gate, `ResultsError` (in `results.py`, with every fault of a
folder) from the reader, `PlanError` from a sweep that may not start, `WorkerError` from a worker.
"""

from __future__ import annotations


class BenchError(Exception):
    """Base of everything the benchmark raises on purpose; the message says what to do."""


class RunUnsound(BenchError):
    """A run whose figures must not be printed: it does not measure what it claims."""


class UnfairComparison(BenchError):
    """A pair of runs that did not do the same work, so that their ratio means nothing."""


class PlanError(BenchError):
    """A sweep that cannot be planned, started or resumed as asked."""


class UnavailableError(PlanError):
    """A system that cannot run here.

    Attributes:
        reason: Why.
        optional: Whether a sweep goes on without it.
    """

    def __init__(self, system: str, reason: str, *, optional: bool) -> None:
        super().__init__(f"system {system!r} cannot run here: {reason}")
        self.reason = reason
        self.optional = optional


class WorkerError(BenchError):
    """A worker process failed; the message carries the end of what it wrote."""
