"""Where the slot time of a run went: held, ramp, starvation, drain or idle, to the nanosecond.

At an instant with e empty slots and q waiting requests, min(e, q) slots stand empty although
somebody waits: that is *ramp* until all slots were once full or the queue once empty, and
*starvation* afterwards. The other empty slots have nobody to serve: *drain* after the last arrival,
*idle* before it. Integrated over the run, held + ramp + starvation + drain + idle = slots x W.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

from nanoserve_bench.errors import RunUnsound
from nanoserve_bench.records import SystemRun


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
    events: list[tuple[int, int, int]] = []  # (instant, change of holders, change of waiting)
    for record in run.records:
        if record.holds is None:
            return None
        if record.finished_ns is None:
            raise RunUnsound(f"{run.system}: request {record.request} has no finish stamp")
        events.append((record.arrival_ns, 0, 1))
        events.append((record.finished_ns, 0, -1))
        for hold in record.holds:
            events.append((hold.acquired_ns, 1, -1))
            events.append((hold.released_ns, -1, 1))
    events.sort()
    start, end = run.started_ns, run.finished_ns
    last_arrival = max(record.arrival_ns for record in run.records)
    parts = dict.fromkeys(("held", "ramp", "starvation", "drain", "idle"), 0)
    holders = waiting = 0
    warm = False
    now = start
    # The last arrival is an event of its own, so no span crosses it.
    for instant, group in itertools.groupby(events, key=lambda event: event[0]):
        if span := instant - now:
            empty = run.slots - holders
            if empty < 0 or waiting < 0 or not start <= now < instant <= end:
                raise RunUnsound(
                    f"{run.system}: at {now} ns, {holders} of {run.slots} slots are held and "
                    f"{waiting} requests wait"
                )
            warm = warm or empty == 0 or waiting == 0
            wanted = min(empty, waiting)
            parts["held"] += holders * span
            parts["starvation" if warm else "ramp"] += wanted * span
            parts["drain" if now >= last_arrival else "idle"] += (empty - wanted) * span
        for _, held, queued in group:
            holders += held
            waiting += queued
        now = instant
    return OccupancySplit(
        slots=run.slots,
        wall_ns=run.wall_ns,
        held_ns=parts["held"],
        ramp_ns=parts["ramp"],
        starvation_ns=parts["starvation"],
        drain_ns=parts["drain"],
        idle_ns=parts["idle"],
    )
