"""When the requests of an open-loop workload are due.

In an open loop a client sends when the clock says so, and not when the system is ready: a system
that stalls does not slow down its load. Arrivals are stamped by when they were due, so that a
client that comes late cannot hide the wait.
"""

from __future__ import annotations

import math
import random

from nanoserve_bench.plan import Arrivals, Plan, WorkloadPlan
from nanoserve_bench.records import NS_PER_S

PROCESSES = ("poisson", "constant")
LEAST_RATE, MOST_RATE = 1e-6, 1e6
"""Requests a second that nobody waits for, and that nobody offers one by one."""


def offerable(arrivals: Arrivals) -> bool:
    """Whether a load can be offered at all: its process is known, and its rate is one."""
    return arrivals.process in PROCESSES and LEAST_RATE < arrivals.rate_per_s < MOST_RATE


def due_ns(arrivals: Arrivals, requests: int, seed: str) -> tuple[int, ...]:
    """When each request is due, ns after the first, ascending.

    The gaps of a Poisson process are exponential with mean 1 / rate: `-log(1 - u) / rate`. The same
    seed gives the same arrivals everywhere, to a nanosecond or so of the platform's logarithm.
    """
    # `random()` is what Python promises to keep the same for ever.
    source = random.Random(seed)  # noqa: S311 - nothing secret
    mean_ns = NS_PER_S / arrivals.rate_per_s
    due, instants = 0.0, []
    for _ in range(requests):
        instants.append(round(due))
        share = source.random()
        due += mean_ns if arrivals.process == "constant" else -math.log(1 - share) * mean_ns
    return tuple(instants)


def offered(plan: Plan, workload: WorkloadPlan, block: int) -> tuple[int, ...]:
    """When the requests of a workload are due in a block; empty where all come at once."""
    if workload.arrivals is None:
        return ()
    seed = f"{plan.seed}/arrivals/{block}/{workload.name}"
    return due_ns(workload.arrivals, workload.requests, seed)
