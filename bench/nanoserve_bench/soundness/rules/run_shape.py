"""Whether a run had the shape that it claims: one at a time, or rows that shared the slots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from nanoserve_bench.comparison import arrival_pattern
from nanoserve_bench.errors import RunUnsound
from nanoserve_bench.occupancy import levels
from nanoserve_bench.records import ROW, Shape, SystemRun
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.soundness.rule import Flaw, RunRule
from nanoserve_bench.stamps import Stamps
from nanoserve_bench.tables import Flags

SERIAL_OCCUPANCY = Fraction(98, 100)
"""Least batch occupancy of a serial run: below it the run idled between requests."""
CERTAINLY_BATCHED = Fraction(3, 2)
"""A mean of so many rows needs no closer look."""
LEAST_TOGETHER = 0.05
"""Least share of the time with two requests in the system in which two rows were held."""


def _not_serial(run: SystemRun) -> str | None:
    return None if run.shape is Shape.SERIAL else "no run is serial"


def _without_wall(run: SystemRun) -> bool:
    """Whether RUN001 or RUN003 refuse the run for having no wall to be a share of."""
    try:
        _ = run.wall_ns
    except RunUnsound:
        return True
    return False


def _not_serial_or_no_wall(run: SystemRun) -> str | None:
    return _not_serial(run) or ("no serial run has a wall" if _without_wall(run) else None)


def _serial_overlap(run: SystemRun) -> Iterator[Flaw]:
    finishes = [
        (record.finished_ns, record) for record in run.records if record.finished_ns is not None
    ]
    finishes.sort(key=lambda pair: pair[1].arrival_ns)
    for (finished, earlier), (_, later) in itertools.pairwise(finishes):
        if later.arrival_ns < finished:
            yield Flaw(
                f"request {later.request} arrived {finished - later.arrival_ns} ns before request "
                f"{earlier.request} had finished: a serial run works on one at a time",
                request=later.request,
                evidence=f"finished {finished}, next arrival {later.arrival_ns}",
            )


def _none_overlap(profile: Profile) -> Flags:
    trials = profile.trials
    order = np.lexsort((trials.numbers("arrival_ns"), trials.owner))
    arrival, finished = trials.numbers("arrival_ns")[order], trials.numbers("finished_ns")[order]
    owner = trials.owner[order]
    early = np.zeros(len(order), np.bool_)
    early[1:] = (arrival[1:] < finished[:-1]) & (owner[1:] == owner[:-1])
    # Sorting keeps each trial's rows where they are, so flags in this order count all the same.
    return profile.none(early) & profile.none(~trials.known("finished_ns"))


SERIAL_OVERLAP = RunRule(
    code="RUN010",
    name="serial-one-at-a-time",
    sentence="In a serial run a request arrives only when the one before has finished.",
    rationale=(
        "A serial baseline stands for a caller who has no batching. If its requests overlap, its "
        "times are those of something else."
    ),
    remedy="Hand over the next request after the last one has returned, or declare it concurrent.",
    check=_serial_overlap,
    clear=_none_overlap,
    exempt=_not_serial,
)


def _serial_idle(run: SystemRun) -> Iterator[Flaw]:
    # A serial system that tells no holds serves a request all the time that it is in the system.
    served = run.resident_ns if run.served_ns is None else run.served_ns
    occupancy = Fraction(served, run.wall_ns)
    if occupancy < SERIAL_OCCUPANCY:
        yield Flaw(
            f"the only slot was held for {float(occupancy):.4f} of the wall, below "
            f"{float(SERIAL_OCCUPANCY)}: the run idled between its requests",
            evidence=f"served {served} ns of {run.wall_ns} ns",
        )


SERIAL_IDLE = RunRule(
    code="RUN011",
    name="serial-not-idle",
    sentence="A serial run holds its slot for at least 0.98 of its wall.",
    rationale=(
        "A baseline that sleeps between requests has the throughput of its sleep, and every "
        "batching factor over it is inflated by as much. What a loop needs between two calls of "
        "generate is far below two percent."
    ),
    remedy="Send the requests back to back; do other work before the first or after the last.",
    check=_serial_idle,
    exempt=_not_serial_or_no_wall,
)


def _could_not_batch(run: SystemRun) -> str | None:
    if run.shape is not Shape.CONCURRENT:
        return "no run is concurrent"
    if min(run.slots, len(run.records)) < 2:
        return "no run has slots and requests for two rows"
    if run.served_ns is None:
        return "the systems tell no holds, so nothing is said about their slots"
    if run.slot != ROW:
        return "the systems' slots are no rows, so nothing is said about their batch"
    return "no concurrent run has a wall" if _without_wall(run) else None


def _never_batched(run: SystemRun) -> Iterator[Flaw]:
    occupancy = run.batch_occupancy
    if occupancy is None:
        raise ValueError("the run tells no holds")
    if occupancy >= CERTAINLY_BATCHED:
        return
    burst = arrival_pattern(run) == "burst"
    together, possible = _two_rows(run)
    if (burst and occupancy <= 1) or together < LEAST_TOGETHER * possible:
        yield Flaw(
            f"{run.slots} slots and {len(run.records)} requests allow two rows, and the batch "
            f"occupancy reads {float(occupancy):.4f} rows with at most {peak(run)} at a time: the "
            f"run never batched (its system occupancy reads {float(run.system_occupancy):.2f} "
            "requests, which is the queue and not the batch)",
            evidence=(
                f"served {run.served_ns} ns in {run.wall_ns} ns; two requests were there for "
                f"{possible} ns and held two slots for {together} ns of them"
            ),
        )


def _two_rows(run: SystemRun) -> tuple[int, int]:
    """How long at least two slots were held, and how long two requests were in the system (ns)."""
    instants, holders, waiting = levels(Stamps.of(run.records))
    spans = np.diff(instants)
    return int(spans[holders >= 2].sum()), int(spans[holders + waiting >= 2].sum())


CONCURRENT_BATCHES = RunRule(
    code="RUN012",
    name="concurrent-batches",
    sentence="A concurrent run holds more than one slot on average where slots and requests allow.",
    rationale=(
        "A benchmark that quietly fell back to one request at a time still prints a throughput. "
        "The rule reads batch occupancy: system occupancy counts the queue, and reads 4.83 for "
        "eight requests in a single slot. Two slots must be held for at least 5 % of the time in "
        "which two requests are there, so that a moment's overlap between one request and the next "
        "is no batch. A run that was asked for one slot is exempt, and so is one whose requests "
        "came so far apart that no two were ever there together."
    ),
    remedy="Find out why no second row was admitted: slots, memory for the cache, the arrivals.",
    check=_never_batched,
    exempt=_could_not_batch,
)


def _no_holds(run: SystemRun) -> str | None:
    return "the systems tell no holds" if run.served_ns is None else None


def _slots_exceeded(run: SystemRun) -> Iterator[Flaw]:
    holders = 0
    for instant, change, request in _hold_events(run):
        holders += change
        if holders > run.slots:
            yield Flaw(
                f"at {instant} ns {holders} requests hold a slot, and there are {run.slots}",
                request=request,
            )
            return  # every later instant would repeat it


def _none_exceeded(profile: Profile) -> Flags:
    trials = profile.trials
    holds = trials.requests.lists("holds_ns").flat
    owner = np.repeat(trials.trials_of_holds(), 2)
    change = np.tile(np.array([1, -1]), len(holds) // 2)
    order = np.lexsort((change, holds, owner))
    # The holds of a trial end at zero holders, so one sum runs over all trials.
    holders, owner = np.cumsum(change[order]), owner[order]
    clear = np.ones(len(trials), np.bool_)
    clear[owner[holders > profile.slots[owner]]] = False
    return clear


SLOTS_EXCEEDED = RunRule(
    code="RUN009",
    name="slots-not-exceeded",
    sentence="At no instant do more requests hold a slot than there are slots.",
    rationale=(
        "Slots are what a cell is named after. More holders than slots means that the holds are "
        "wrong, or that the run was not the one asked for. Holds are half-open, so a slot passes "
        "from one request to the next in an instant."
    ),
    remedy="Check what the system counts as a slot, and when it stamps acquire and release.",
    check=_slots_exceeded,
    clear=_none_exceeded,
    exempt=_no_holds,
)


def _hold_events(run: SystemRun) -> list[tuple[int, int, str]]:
    events = []
    for record in run.records:
        for acquired, released in record.holds or ():
            events.append((acquired, 1, record.request))
            events.append((released, -1, record.request))
    events.sort()
    return events


def peak(run: SystemRun) -> int:
    """Most requests that held a slot at one instant."""
    return max(itertools.accumulate(change for _, change, _ in _hold_events(run)), default=0)
