"""Whether every trial is a measurement of its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.records import RunRecord
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.likeness import (
    LEAST_PART,
    LEAST_SPANS,
    PARTS,
    SURE,
    Floats,
    Likeness,
    copies,
    part_length,
    partial_copies,
    shares_of,
    spans_of,
)
from nanoserve_bench.soundness.repeats import Repeat, mixed, repeats, shared, tells_apart
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.tables import Ints
from nanoserve_bench.trialset import TrialSet

LEAST_SHARED = 0.25
"""A trial that shares at least this much of its requests' durations with another is a copy.

The durations of two requests, told in nanoseconds, are never equal by chance; a few may be where a
system tells nothing but holds, and a trial has thousands of them.
"""


class _Noise(NamedTuple):
    """What a trial is held against others by; `fine` where its clock tells spans apart."""

    trial: Trial
    shares: Floats
    thing: Hashable
    fine: bool


def durations(record: RunRecord) -> tuple[int | None, int | None, int | None]:
    """What shifting all stamps of a request by a constant leaves unchanged (ns)."""
    return record.resident_ns, record.served_ns, record.ttft_ns


def _hashes(trials: TrialSet) -> npt.NDArray[np.uint64]:
    """A number for each request, equal where the durations are."""
    arrival = trials.numbers("arrival_ns")
    return mixed(
        np.where(known, spans, -1)
        for spans, known in (
            (trials.numbers("finished_ns") - arrival, trials.known("finished_ns")),
            (trials.served_ns, trials.known("holds_ns")),
            (trials.numbers("first_token_ns") - arrival, trials.known("first_token_ns")),
        )
    )


def _copies(evidence: Evidence, inspection: Inspection) -> None:
    by_number = {trial.number: trial for trial in evidence.trials}
    inspection.saw(sum(1 for trial in evidence.measured if trial.run.records))
    # Rows of one trial may have one value: in a static batch all are resident as long.
    pairs = {
        pair: count
        for pair, count in shared(_hashes(evidence.columns), evidence.columns.owner).items()
        if pair[0] != pair[1]
    }
    # Of what a trial shares with one, some may be told of trials before that one: so its sum.
    sums: Counter[int] = Counter()
    for (_, later), count in pairs.items():
        sums[later] += count
    for earlier, later in sorted(pairs):
        one, other = by_number[earlier], by_number[later]
        if sums[later] >= LEAST_SHARED * min(len(one.run.records), len(other.run.records)):
            _refuse(one, other, evidence, inspection)
    spans = _spans(evidence)
    for found in repeats([spans for _, spans in spans]):
        one, other = (spans[place][0] for place in (found.earlier, found.later))
        _refuse_repeat(one, other, found, evidence, inspection)
    _shaken(spans, evidence, inspection)


def _spans(evidence: Evidence) -> list[tuple[Trial, Ints]]:
    """Of every trial that is no warm-up and tells its tokens, the spans between its steps."""
    tokens = evidence.columns.requests.lists("token_ns")
    told = []
    for trial in evidence.trials:
        own = evidence.columns.place(trial.number)
        rows = min(trial.run.slots, own[1] - own[0])
        if rows > 0 and not trial.row.warmup:
            told.append((trial, spans_of(tokens.part(*own), rows)))
    return told


def _shaken(
    spans: Sequence[tuple[Trial, Ints]], evidence: Evidence, inspection: Inspection
) -> None:
    """Copies whose stamps were shaken, so that no duration is left as it was."""
    steady = {w.name: w for w in evidence.plan.workloads if _is_steady(w)}
    groups: dict[tuple[int, int, str], list[_Noise]] = defaultdict(list)
    for trial, whole in spans:
        shares = shares_of(whole) if trial.cell.workload in steady else None
        if shares is not None:
            rows = min(trial.run.slots, len(trial.run.records))
            noise = _Noise(trial, shares, _measures(trial), tells_apart(whole))
            groups[rows, len(shares), trial.cell.workload].append(noise)
    for (rows, _, name), group in groups.items():
        seen: set[tuple[int, int]] = set()
        for found in _likenesses(group, rows, steady[name]):
            pair = found.earlier, found.later
            if pair not in seen:
                one, other = (group[place].trial for place in pair)
                _refuse_shaken(one, other, found, evidence, inspection)
            seen.add(pair)


def _likenesses(group: Sequence[_Noise], rows: int, workload: WorkloadPlan) -> Iterator[Likeness]:
    """What agrees among trials of one shape, of `rows` slots: whole trials, then parts of them."""
    yield from copies(
        [noise.shares for noise in group],
        [noise.trial.cell.id for noise in group],
        [noise.thing for noise in group],
    )
    fine = [place for place, noise in enumerate(group) if noise.fine]
    for found in partial_copies(
        [group[place].shares for place in fine],
        [group[place].thing for place in fine],
        part_length(workload.new_tokens),
        alike=rows == 1 and not workload.lengths,
    ):
        yield found._replace(earlier=fine[found.earlier], later=fine[found.later])


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
            what = "its steps"
            because = f"their noise has the rank correlation {found.agreement:.3f}, and "
            because += f"{found.chance:.3f} is the most by chance"
            if found.parts:
                what = f"{found.parts} part(s) of its steps"
                because = f"parts agree so much in {found.agreement:.1e} studies by chance"
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"{what} are long and short where those of {twin.cell.id} in block "
                    f"{twin.block} are: one of the two is a copy whose stamps were shaken",
                    evidence=because,
                ),
            )


def _refuse_repeat(
    one: Trial, other: Trial, found: Repeat, evidence: Evidence, inspection: Inspection
) -> None:
    for trial, twin in ((one, other),) if one is other else ((one, other), (other, one)):
        if id(trial) in evidence.measured_ids:
            inspection.refuse_trial(
                trial,
                Flaw(
                    "its steps take, one behind the other and to the nanosecond, the time of "
                    f"those of {twin.cell.id} in block {twin.block}: a part of it is a copy",
                    evidence=f"{found.times} time(s) {found.length} steps in a row, which chance "
                    "does not show once",
                ),
            )


def _refuse(one: Trial, other: Trial, evidence: Evidence, inspection: Inspection) -> None:
    """Look at the durations themselves: the hashes only say where."""
    there = Counter(durations(record) for record in one.run.records)
    same = there & Counter(durations(record) for record in other.run.records)
    size = min(len(one.run.records), len(other.run.records))
    if same.total() < LEAST_SHARED * size:
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
    sentence="No trial shares a quarter of its requests' durations, spans in a row, or the noise "
    "of its steps, with another.",
    rationale=(
        "Two runs never take the same number of nanoseconds for one request after the other. A "
        "trial that was copied with its stamps shifted, or a best trial that was written over a "
        "bad one, does, even if some of its stamps were touched up; and where only a part of it "
        "was copied, the spans between its tokens are the other's for that part, which is looked "
        "for as long as the clock tells spans apart. If all were shaken, the "
        "steps that happened to be long in the one are long in the other still. So what is left of "
        "the time of each step when the cell's usual time for it is taken off is ranked, and no "
        f"two trials may agree in it by more than {SURE:.0f} times what chance allows (in 26,000 "
        f"pairs of real trials 3.5 times was the most), and parts of {LEAST_PART} steps or more of "
        f"two trials may not agree as chance shows it in one of {1 / PARTS:,.0f} studies. It needs "
        f"token stamps, {LEAST_SPANS} steps, and a workload of one shape in all blocks; noise that "
        "was drawn as large as the machine's own hides a copy from it."
    ),
    remedy="Measure again; find out how the rows came to be written twice.",
    check=_copies,
)
