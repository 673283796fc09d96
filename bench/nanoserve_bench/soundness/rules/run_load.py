"""Whether the requests of an open-loop run arrived as they were offered."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from nanoserve_bench.arrivals import offerable, offered
from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.records import RunRecord, Shape, StepRecord, SystemRun
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.soundness.rules.run_shape import peak

MOST_LAG_NS = 10_000_000
"""How late a request may be submitted: what a sleeping client needs to wake up, many times over."""
LOOK_NS = 1_000_000
"""From a client's last look at what is due to the stamp at the start of the step that follows."""
SAME_INSTANT_NS = 1_000
"""Arrivals are drawn with a logarithm, whose last digit differs from platform to platform."""


def load_flaws(run: SystemRun, due_ns: Sequence[int] | None = None) -> Iterator[Flaw]:
    """What is wrong with a run as an open loop.

    Args:
        run: The run.
        due_ns: When each request was due, ns after the first; None where nobody says.
    """
    records = sorted(run.records, key=lambda record: record.arrival_ns)
    if not records:
        yield Flaw("the run has no requests, so no load was offered")
        return
    if due_ns is not None:
        yield from _other_arrivals(records, due_ns)
    yield from _late(records, run.steps)
    yield from _one_at_a_time(run, records)


def _other_arrivals(records: Sequence[RunRecord], due_ns: Sequence[int]) -> Iterator[Flaw]:
    if len(records) != len(due_ns):
        yield Flaw(f"{len(records)} requests arrived, and {len(due_ns)} were offered")
        return
    first = records[0].arrival_ns
    off = [
        (abs(record.arrival_ns - first - due), record, due)
        for record, due in zip(records, due_ns, strict=True)
    ]
    wrong = [entry for entry in off if entry[0] > SAME_INSTANT_NS]
    if wrong:
        worst, record, due = max(wrong, key=lambda entry: entry[0])
        yield Flaw(
            f"{len(wrong)} request(s) did not arrive when they were due: request {record.request} "
            f"arrived {record.arrival_ns - first} ns after the first, and was due after {due} ns",
            request=record.request,
            evidence=f"furthest off by {worst} ns",
        )


def _late(records: Sequence[RunRecord], steps: Sequence[StepRecord] | None) -> Iterator[Flaw]:
    late = []
    log = list(steps or ())
    starts = [step.start_ns for step in log]
    for record in records:
        lag = record.submitted_ns - _could_be_submitted(record.arrival_ns, log, starts)
        if lag > MOST_LAG_NS:
            late.append((lag, record))
    if late:
        worst, record = max(late, key=lambda entry: entry[0])
        yield Flaw(
            f"{len(late)} request(s) were submitted late: request {record.request} could be "
            f"submitted {worst} ns earlier, and {MOST_LAG_NS} ns are the most",
            request=record.request,
            evidence=f"due {record.arrival_ns}, submitted {record.submitted_ns}",
        )


def _could_be_submitted(due: int, log: Sequence[StepRecord], starts: Sequence[int]) -> int:
    """When a client could hand a request over at the earliest: when it is due, or no step runs.

    An engine that is stepped by its client takes no request during a step, and admits none then.
    A request that falls due between the client's look and the step's start has to wait for that
    step as well: it was seen 0.1 ms before the start of a step of 16 ms.
    """
    place = bisect_right(starts, due + LOOK_NS) - 1
    if place < 0 or place + 1 >= len(log):
        return due
    step = log[place]
    return starts[place + 1] if step.prefill_rows or step.decode_rows else due


def _one_at_a_time(run: SystemRun, records: Sequence[RunRecord]) -> Iterator[Flaw]:
    together = _most_together(records)
    if run.slots < 2 or together < 2:
        return
    if run.served_ns is not None and peak(run) < 2:
        yield Flaw(
            f"up to {together} requests were there at a time, for {run.slots} slots, and no two of "
            "them ever held a slot together: the run was one at a time after all"
        )
    pairs = itertools.pairwise(sorted(records, key=lambda record: record.submitted_ns))
    if all(
        earlier.finished_ns is not None
        and later.arrival_ns < earlier.finished_ns <= later.submitted_ns
        for earlier, later in pairs
    ):
        yield Flaw(
            "every request was submitted only when the one before had finished, although it was "
            "due before: the loop was closed"
        )


def _most_together(records: Sequence[RunRecord]) -> int:
    """Most requests in the system at one instant."""
    events = sorted(
        event
        for record in records
        if record.finished_ns is not None
        for event in ((record.arrival_ns, 1), (record.finished_ns, -1))
    )
    return max(itertools.accumulate(change for _, change in events), default=0)


def _other_request_due(trial: Trial, workload: WorkloadPlan) -> Flaw | None:
    """A request whose lengths are those of one that was due at another time.

    How many there are of each length is for RUN020.
    """
    records = sorted(trial.run.records, key=lambda record: record.arrival_ns)
    if len({record.arrival_ns for record in records}) < len(records):
        return None  # of two that come at once it is not known which is which
    for place, (record, planned) in enumerate(
        zip(records, workload.of_block(trial.block), strict=False)
    ):
        if (len(record.prompt_ids), record.max_tokens) != (
            planned.prompt_tokens,
            planned.new_tokens,
        ):
            return Flaw(
                f"request {record.request} arrived as number {place}, with a prompt of "
                f"{len(record.prompt_ids)} tokens that asks for {record.max_tokens}, and the one "
                f"that was due has {planned.prompt_tokens} and {planned.new_tokens}",
                request=record.request,
            )
    return None


def _together(evidence: Evidence) -> Iterator[Trial]:
    """Trials of concurrent systems whose requests are handed over all at once."""
    burst = {w.name for w in evidence.plan.workloads if w.arrivals is None}
    for trial in evidence.measured:
        if trial.run.shape is Shape.CONCURRENT and trial.cell.workload in burst:
            yield trial


def _late_in_a_burst(evidence: Evidence, trial: Trial) -> Flaw | None:
    """A request of such a trial that arrived when another one had its first token."""
    trials = evidence.columns
    event, what = "finished_ns", "finished"
    if trials.full("first_token_ns", trial.number):
        event, what = "first_token_ns", "its first token"
    arrival, answered = (trials.of_trial(name, trial.number) for name in ("arrival_ns", event))
    if not trials.full(event, trial.number) or len(arrival) < 2 or (arrival.max() < answered.min()):
        return None
    request = trials.request(trials.place(trial.number)[0] + int(arrival.argmax()))
    return Flaw(
        f"request {request} arrived at {arrival.max()} ns, when another one had {what} at "
        f"{answered.min()} ns: the workload hands all of them over at once",
        request=request,
    )


def _offered(evidence: Evidence, inspection: Inspection) -> None:
    workloads = {workload.name: workload for workload in evidence.plan.workloads}
    trials = [
        trial
        for trial in evidence.measured
        if (workload := workloads.get(trial.cell.workload)) is not None
        and workload.arrivals is not None
        and offerable(workload.arrivals)  # REP010 refuses what is not
    ]
    for trial in _together(evidence):
        inspection.saw(len(trial.run.records))
        flaw = _late_in_a_burst(evidence, trial)
        if flaw is not None:
            inspection.refuse_trial(trial, flaw)
    if not trials and not inspection.examined:
        inspection.not_applicable = "no workload is an open loop, and no run concurrent"
    for trial in trials:
        workload = workloads[trial.cell.workload]
        inspection.saw(len(trial.run.records))
        # Another number of requests is for RUN020: of those it is not known when they were due.
        whole = workload.requests == len(trial.run.records)
        due = offered(evidence.plan, workload, trial.block) if whole else None
        for flaw in load_flaws(trial.run, due):
            inspection.refuse_trial(trial, flaw)
        flaw = _other_request_due(trial, workload)
        if flaw is not None:
            inspection.refuse_trial(trial, flaw)


OFFERED = StudyRule(
    code="RUN023",
    name="load-as-offered",
    sentence="In an open loop every request arrives when it is due and is submitted within 10 ms "
    "of when it could be, and none waits in the client; where all come at once, none arrives after "
    "another was answered.",
    rationale=(
        "A client that waits for an answer before it sends the next request measures a closed "
        "loop: the slower the system, the lighter its load, and the queue is nowhere to be seen. "
        "Arrivals are therefore stamped by when they were due, and the plan says when that is. A "
        "client that wakes up late offered another load. An engine that its client steps takes no "
        "request during a step; there the 10 ms begin at the end of the step in which it was due. "
        "Where all requests come at once, an arrival that is stamped when a slot became free hides "
        "the queue."
    ),
    remedy="Send by the clock, from a thread that does nothing else; stamp arrivals when due.",
    check=_offered,
)
