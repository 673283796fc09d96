"""Whether what was launched is what was planned, in every block."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict

from nanoserve_bench.plan import Arm, WorkloadPlan
from nanoserve_bench.schema import SystemRow
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule

OWN_SYSTEM = "nanoserve"
"""The system whose revision is the checkout's: others may tell one of their own repository."""

Ground = tuple[str, str, str]
"""Arm, device and dtype, as planned: what has a worker of its own in every block."""


def _as_planned(evidence: Evidence, inspection: Inspection) -> None:
    arms = {arm.name: arm for arm in evidence.plan.arms}
    workloads = {workload.name: workload for workload in evidence.plan.workloads}
    for trial in evidence.measured:
        inspection.saw()
        for column, planned, reported in _differences(trial, arms[trial.cell.arm], evidence):
            inspection.refuse_trial(
                trial,
                Flaw(f"{column} is {reported!r} in the worker, and {planned!r} in the plan"),
                file="systems.csv",
            )
        for flaw in _other_work(trial, workloads.get(trial.cell.workload), evidence):
            inspection.refuse_trial(trial, flaw, file="trials.csv")
    for trial, flaw in _other_warmup(evidence):
        inspection.refuse_trial(trial, flaw, file="trials.csv")


def _other_work(trial: Trial, workload: WorkloadPlan | None, evidence: Evidence) -> Iterator[Flaw]:
    """Where the requests of a trial are not those of the plan's workload."""
    requests = None if workload is None else workload.requests
    count = len(trial.run.records)
    if workload is None or requests != count:
        yield Flaw(f"it ran {count} requests, and workload {trial.cell.workload} has {requests}")
        return
    trials = evidence.columns
    own = slice(*(int(trials.bounds[trial.number + i]) for i in (0, 1)))
    asked = trials.requests.whole("max_tokens").part(own.start, own.stop)
    ran = Counter(zip(trials.prompt_lengths[own].tolist(), asked.tolist(), strict=True))
    planned = Counter((x.prompt_tokens, x.new_tokens) for x in workload.of_block(trial.block))
    if ran != planned:
        more, fewer = next(iter(ran - planned)), next(iter(planned - ran))
        yield Flaw(
            f"the plan has {(ran - planned).total()} request(s) of workload {workload.name} "
            f"with other lengths in block {trial.block}",
            evidence=f"ran a prompt of {more[0]} tokens that asked for {more[1]}, planned one "
            f"of {fewer[0]} that asks for {fewer[1]}",
        )
    if workload.prefix_tokens:
        beginnings = {record.prompt_ids[: workload.prefix_tokens] for record in trial.run.records}
        if len(beginnings) > 1:
            yield Flaw(
                f"its prompts have {len(beginnings)} different beginnings, and those of workload "
                f"{workload.name} share their first {workload.prefix_tokens} tokens"
            )


def _other_warmup(evidence: Evidence) -> Iterator[tuple[Trial, Flaw]]:
    """Measured trials whose warm-up another worker had."""
    warmed = {(t.block, t.cell.id): t.row.launch for t in evidence.trials if t.row.warmup}
    for trial in evidence.measured:
        launch = warmed.get((trial.block, trial.cell.id), trial.row.launch)
        if launch != trial.row.launch:
            yield (
                trial,
                Flaw(
                    f"it ran in launch {trial.row.launch}, and its warm-up in {launch}: its own "
                    "worker was cold"
                ),
            )


def _differences(
    trial: Trial, arm: Arm, evidence: Evidence
) -> Iterator[tuple[str, object, object]]:
    launch, cell = trial.launch, trial.cell
    for column, planned, reported in (
        ("arm", cell.arm, launch.arm),
        ("block", trial.block, launch.block),
        ("system", cell.system, launch.system),
        ("system", arm.system, launch.system),
        ("version", arm.version, launch.version),
        ("device", cell.device, launch.device),
        ("dtype", cell.dtype, launch.dtype),
        ("decoding", evidence.plan.decoding, launch.decoding),
    ):
        if planned != reported:
            yield column, planned, reported
    if arm.revision is not None and arm.revision != launch.revision:
        yield "revision", arm.revision, launch.revision
    if (
        arm.revision is None
        and launch.system == OWN_SYSTEM
        and launch.revision not in {None, evidence.plan.revision}
    ):
        yield "revision", evidence.plan.revision, launch.revision


AS_PLANNED = StudyRule(
    code="RUN020",
    name="launch-as-planned",
    sentence="A trial ran in a worker of its arm and block, on the system, device, dtype, decoding "
    "and workload of the plan.",
    rationale=(
        "What a worker reports about itself outweighs the name of the cell: rows of another arm, "
        "another version, a part of the requests, or requests of other lengths than the plan has "
        "(its own for each request where they differ, the workload's where they do not) are not "
        "the cell that was promised."
    ),
    remedy="Run what the plan says, or plan what you run.",
    check=_as_planned,
)

_OWN = frozenset({"launch", "block"})


def _constant(evidence: Evidence, inspection: Inspection) -> None:
    first: dict[Ground, SystemRow] = {}
    names: dict[str, SystemRow] = {}
    trials: dict[int, list[Trial]] = defaultdict(list)
    for trial in evidence.measured:
        trials[trial.row.launch].append(trial)
    for row in evidence.results.systems:
        if row.launch not in trials:
            continue
        inspection.saw()
        cell = trials[row.launch][0].cell
        reference = first.setdefault((row.arm, cell.device, cell.dtype), row)
        if not cell.device.startswith("cpu"):
            known = names.setdefault(cell.device, row)
            if known.device_name != row.device_name:
                for trial in trials[row.launch]:
                    message = (
                        f"device {cell.device} is a {row.device_name} in arm {row.arm}, and a "
                        f"{known.device_name} in arm {known.arm}"
                    )
                    inspection.refuse_trial(trial, Flaw(message), file="systems.csv")
        was, now = asdict(reference), asdict(row)
        for column in sorted(now.keys() - _OWN):
            if now[column] != was[column]:
                for trial in trials[row.launch]:
                    inspection.refuse_trial(
                        trial,
                        Flaw(
                            f"{column} is {now[column]!r} in block {row.block}, and was "
                            f"{was[column]!r} in block {reference.block}"
                        ),
                        file="systems.csv",
                    )


CONSTANT = StudyRule(
    code="RUN021",
    name="arm-constant",
    sentence="On one device and dtype, every launch of an arm reports the same about itself in "
    "every block.",
    rationale=(
        "Blocks are averaged, so they must be of one thing. A sweep that was resumed with another "
        "library, thread count or kernel is two half-sweeps. A machine may have two cards under "
        "two names: all arms must call an accelerator by the same one."
    ),
    remedy="Measure all blocks in one environment.",
    check=_constant,
)
