"""Where the slot time of a run went: held, ramp, starvation, drain or idle, to the nanosecond.

At an instant with e empty slots and q waiting requests, min(e, q) slots stand empty although
somebody waits: that is *ramp* until all slots were once full or the queue once empty, and
*starvation* afterwards. The other empty slots have nobody to serve: *drain* after the last arrival,
*idle* before it. Integrated over the run, held + ramp + starvation + drain + idle = slots x W.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from nanoserve_bench.errors import RunUnsound
from nanoserve_bench.records import SystemRun
from nanoserve_bench.stamps import Stamps
from nanoserve_bench.tables import Ints


@dataclass(frozen=True, kw_only=True, slots=True)
class OccupancySplit:
    """Slot time by use, in slot-nanoseconds."""

    slots: int
    wall_ns: int
    held_ns: int
    ramp_ns: int
    starvation_ns: int
    drain_ns: int
    idle_ns: int

    def rows(self, part: str) -> Fraction:
        """A part as a mean number of slots, such as `rows("held")` for the batch occupancy."""
        return Fraction(int(getattr(self, f"{part}_ns")), self.wall_ns)


def split(run: SystemRun) -> OccupancySplit | None:
    """Split a run's slot time; None where the system does not tell its holds.

    Raises:
        RunUnsound: More holders than slots, a hold outside of its request's time in the system, or
            a stamp missing: there is no such thing as a negative number of empty slots.
    """
    stamps = Stamps.of(run.records)
    if not stamps.told:
        return None
    start, end = run.started_ns, run.finished_ns  # raises where a finish is missing
    instants, holders, waiting = levels(stamps)
    now, spans = instants[:-1], np.diff(instants)
    empty = run.slots - holders
    impossible = (empty < 0) | (waiting < 0)
    if impossible.any() or instants[0] < start or instants[-1] > end:
        place = int(np.argmax(impossible))
        raise RunUnsound(
            f"{run.system}: at {now[place]} ns, {holders[place]} of {run.slots} slots are held and "
            f"{waiting[place]} requests wait"
        )
    wanted = np.minimum(empty, waiting)
    warm = np.logical_or.accumulate((empty == 0) | (waiting == 0))
    # The last arrival is an event of its own, so no span crosses it.
    arrived = now >= (run.totals.last_arrival_ns or 0)
    parts = {
        "held": holders * spans,
        "ramp": np.where(warm, 0, wanted) * spans,
        "starvation": np.where(warm, wanted, 0) * spans,
        "drain": np.where(arrived, empty - wanted, 0) * spans,
        "idle": np.where(arrived, 0, empty - wanted) * spans,
    }
    sums = {f"{name}_ns": int(part.sum()) for name, part in parts.items()}
    if sum(sums.values()) != run.slots * run.wall_ns:
        raise RunUnsound(f"{run.system}: the parts of its slot time do not add up to the whole")
    return OccupancySplit(slots=run.slots, wall_ns=run.wall_ns, **sums)


def levels(stamps: Stamps) -> tuple[Ints, Ints, Ints]:
    """The instants at which something happens, and holders and waiting from each to the next."""
    requests, holds = len(stamps.arrival_ns), len(stamps.holds_ns) // 2
    instants = np.concatenate(
        [stamps.arrival_ns, stamps.finished_ns, stamps.holds_ns[::2], stamps.holds_ns[1::2]]
    )
    sizes = (requests, requests, holds, holds)
    held = np.repeat(np.array([0, 0, 1, -1]), sizes)
    queued = np.repeat(np.array([1, -1, -1, 1]), sizes)
    order = np.argsort(instants, kind="stable")
    instants = instants[order]
    last = np.append(np.flatnonzero(np.diff(instants)), len(instants) - 1)
    return instants[last], np.cumsum(held[order])[last[:-1]], np.cumsum(queued[order])[last[:-1]]
