"""The exceptions of the benchmark::

    BenchError                what a command line prints without a traceback
    ├── RunUnsound            one run does not show what it claims to show
    ├── UnfairComparison      two sound runs, but not of the same thing
    ├── ResultsError          a results folder that cannot be read, with every fault in it
    ├── PlanError             a sweep that cannot be planned or may not go on
    └── WorkerError           a worker process that failed, with what it said
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


class WorkerError(BenchError):
    """A worker process failed; the message carries the end of what it wrote."""
