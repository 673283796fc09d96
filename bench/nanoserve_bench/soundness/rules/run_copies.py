"""Whether every trial is a measurement of its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping

import numpy as np
import numpy.typing as npt

from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.records import RunRecord
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.likeness import (
    LEAST_SPANS,
    SURE,
    Floats,
    Likeness,
    copies,
    spans_of,
)
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.trialset import TrialSet

LEAST_SHARED = 0.5
"""A trial that shares at least this much of its requests' durations with another is a copy."""


def durations(record: RunRecord) -> tuple[int | None, int | None, int | None]:
    """What shifting all stamps of a request by a constant leaves unchanged (ns)."""
    return record.resident_ns, record.served_ns, record.ttft_ns


def _hashes(trials: TrialSet) -> npt.NDArray[np.uint64]:
    """A number for each request, equal where the durations are."""
    arrival = trials.numbers("arrival_ns")
    mixed = np.zeros(len(arrival), np.uint64)
    for spans, known in (
        (trials.numbers("finished_ns") - arrival, trials.known("finished_ns")),
        (trials.served_ns, trials.known("holds_ns")),
        (trials.numbers("first_token_ns") - arrival, trials.known("first_token_ns")),
    ):
        mixed ^= np.where(known, spans, -1).astype(np.uint64)
        for factor, shift in ((0x9E3779B97F4A7C15, 29), (0xBF58476D1CE4E5B9, 32)):
            mixed *= np.uint64(factor)
            mixed ^= mixed >> np.uint64(shift)
    return mixed


def _shared(trials: TrialSet) -> Mapping[tuple[int, int], int]:
    """How many requests a trial shares with an earlier one: (earlier, later) to their number.

    Each duration is counted once per trial, against the first trial that has it (in a static
    batch all rows have the same), so that the work is linear in the requests.
    """
    hashes = _hashes(trials)
    order = np.lexsort((trials.owner, hashes))
    value, owner = hashes[order], trials.owner[order]
    new_value = np.ones(len(value), np.bool_)
    new_value[1:] = value[1:] != value[:-1]
    first = owner[np.maximum.accumulate(np.where(new_value, np.arange(len(value)), 0))]
    # Rows of one trial with one value count as often as both trials have them, at most.
    apart = owner != first
    return Counter(zip(first[apart].tolist(), owner[apart].tolist(), strict=True))


def _copies(evidence: Evidence, inspection: Inspection) -> None:
    by_number = {trial.number: trial for trial in evidence.trials}
    inspection.saw(sum(1 for trial in evidence.measured if trial.run.records))
    for (earlier, later), count in sorted(_shared(evidence.columns).items()):
        one, other = by_number[earlier], by_number[later]
        if count >= LEAST_SHARED * min(len(one.run.records), len(other.run.records)):
            _refuse(one, other, evidence, inspection)
    _shaken(evidence, inspection)


def _shaken(evidence: Evidence, inspection: Inspection) -> None:
    """Copies whose stamps were shaken, so that no duration is left as it was."""
    alike: dict[tuple[int, int], list[tuple[Trial, Floats]]] = defaultdict(list)
    steady = {workload.name for workload in evidence.plan.workloads if _is_steady(workload)}
    tokens = evidence.columns.requests.lists("token_ns")
    for trial in evidence.trials:
        if trial.row.warmup or trial.cell.workload not in steady:
            continue
        own = [int(evidence.columns.bounds[trial.number + i]) for i in (0, 1)]
        rows = min(trial.run.slots, own[1] - own[0])
        spans = spans_of(tokens.part(*own), rows) if rows > 0 else None
        if spans is not None:
            alike[rows, len(spans)].append((trial, spans))
    for group in alike.values():
        trials = [trial for trial, _ in group]
        seen: set[tuple[int, int]] = set()
        for found in copies(
            [spans for _, spans in group],
            [trial.cell.id for trial in trials],
            [_measures(trial) for trial in trials],
        ):
            one, other = trials[found.earlier], trials[found.later]
            if (found.earlier, found.later) not in seen:
                _refuse_shaken(one, other, found, evidence, inspection)
            seen.add((found.earlier, found.later))


def _measures(trial: Trial) -> Hashable:
    """What a trial measures: the same for the two cells of an A/A, and for no others."""
    cell = trial.cell
    arms = {arm.name: arm for arm in trial.results.plan.arms}
    told = (arms[cell.arm].system, arms[cell.arm].version, arms[cell.arm].revision)
    options = frozenset(arms[cell.arm].options)
    return (*told, options, cell.device, cell.dtype, cell.slots, cell.workload)


def _is_steady(workload: WorkloadPlan) -> bool:
    """Whether all blocks of a workload have one shape in time, but for its noise."""
    return workload.arrivals is None and len(workload.lengths) <= workload.requests


def _refuse_shaken(
    one: Trial, other: Trial, found: Likeness, evidence: Evidence, inspection: Inspection
) -> None:
    for trial, twin in ((one, other), (other, one)):
        if id(trial) in evidence.measured_ids:
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"its steps are long and short where those of {twin.cell.id} in block "
                    f"{twin.block} are: one of the two is a copy whose stamps were shaken",
                    evidence=f"their noise has the rank correlation {found.agreement:.3f}, and "
                    f"{found.chance:.3f} is the most by chance",
                ),
            )


def _refuse(one: Trial, other: Trial, evidence: Evidence, inspection: Inspection) -> None:
    """Look at the durations themselves: the hashes only say where."""
    there = Counter(durations(record) for record in one.run.records)
    same = there & Counter(durations(record) for record in other.run.records)
    size = min(len(one.run.records), len(other.run.records))
    if same.total() < max(1.0, LEAST_SHARED * size):
        return
    for trial, twin in ((one, other), (other, one)):
        if id(trial) in evidence.measured_ids:
            kind = "the warm-up of " if twin.row.warmup else ""
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"the durations of {same.total()} of its {len(trial.run.records)} requests "
                    f"equal, to the nanosecond, those of {kind}{twin.cell.id} in block "
                    f"{twin.block}: one of the two is a copy",
                    evidence=f"in the system, in a slot, to the first token: {next(iter(same))} ns",
                ),
            )


COPIES = StudyRule(
    code="RUN017",
    name="trial-not-a-copy",
    sentence="No trial shares half of its requests' durations, or the noise of its steps, with "
    "another.",
    rationale=(
        "Two runs never take the same number of nanoseconds for one request after the other. A "
        "trial that was copied with its stamps shifted, or a best trial that was written over a "
        "bad one, does, even if some of its stamps were touched up. If all were shaken, the "
        "steps that happened to be long in the one are long in the other still. So what is left of "
        "the time of each step when the cell's usual time for it is taken off is ranked, and no "
        f"two trials may agree in it by more than {SURE:.0f} times what chance allows (in 26,000 "
        "pairs of real trials 3.5 times was the most). It needs token stamps, "
        f"{LEAST_SPANS} steps, and a workload of one shape in all blocks; noise that was drawn as "
        "large as the machine's own hides a copy from it."
    ),
    remedy="Measure again; find out how the rows came to be written twice.",
    check=_copies,
)
