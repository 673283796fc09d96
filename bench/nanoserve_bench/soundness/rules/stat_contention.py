"""Whether the trials had the machine to themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nanoserve_bench.contention import (
    OTHER_CPU_SHARE,
    RESOLUTION_NS,
    STEAL_SHARE,
    contention,
)
from nanoserve_bench.occupancy import levels
from nanoserve_bench.plan import Manifest
from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.stamps import Stamps

LEAST_CPU_SHARE = 0.7
"""On a CPU, the worker itself must use at least this many cores while a trial runs."""
JUDGED = ("cpu_ns", "other_cpu_ns", "steal_ns")
"""What a trial is judged by: told of all trials of an arm, or of none."""
CORES = "logical_cores"
"""Name of the fact that says how many cores there are."""


def _contention(evidence: Evidence, inspection: Inspection) -> None:
    told = {
        (trial.cell.arm, name)
        for trial in evidence.measured
        for name in JUDGED
        if getattr(trial.row, name) is not None
    }
    cores = _cores(evidence.results.manifest)
    for trial in evidence.measured:
        inspection.saw()
        for message in (*_disturbances(trial), *_impossible(trial, cores)):
            inspection.refuse_trial(trial, Flaw(message), file="trials.csv")
        for name in JUDGED:
            if getattr(trial.row, name) is None and (trial.cell.arm, name) in told:
                message = f"{name} is blank, and other trials of the arm tell it"
                inspection.refuse_trial(trial, Flaw(message), file="trials.csv")


def _cores(manifest: Manifest) -> int | None:
    """Logical cores of the machine; None where nobody recorded them."""
    values = [fact.value for fact in manifest.facts if fact.name == CORES]
    return max((value for value in values if type(value) is int), default=None)


def _impossible(trial: Trial, cores: int | None) -> Iterator[str]:
    row = trial.row
    if cores and row.cpu_ns is not None and row.cpu_ns > cores * row.wall_ns + RESOLUTION_NS:
        yield (
            f"the worker used {row.cpu_ns / row.wall_ns:.2f} cores while it ran, and the machine "
            f"has {cores}: the trial took longer than it says"
        )


def _busy_ns(trial: Trial) -> int:
    """How long a trial had work: its wall, without what an open loop idled between requests."""
    workloads = {workload.name: workload for workload in trial.results.plan.workloads}
    workload = workloads.get(trial.cell.workload)
    if workload is None or workload.arrivals is None:
        return trial.row.wall_ns
    instants, holders, waiting = levels(Stamps.of(trial.run.records))
    return int(np.diff(instants)[holders + waiting > 0].sum())


def _disturbances(trial: Trial) -> Iterator[str]:
    row = trial.row
    reason = contention(row)
    if reason is not None:
        yield reason
    if row.other_cpu_ns is None and row.cpu_ns is None:
        yield "neither the CPU time of the worker nor that of others is recorded"
    values = (
        row.other_cpu_ns,
        row.steal_ns,
        row.cpu_ns,
        row.involuntary_switches,
        row.load_before,
        row.load_after,
        row.peak_memory_bytes,
    )
    if any(value is not None and value < 0 for value in values):
        yield f"a reading of the machine is negative: {values}"
    if (
        row.cpu_ns is not None
        and trial.cell.device.startswith("cpu")
        and row.cpu_ns < LEAST_CPU_SHARE * (busy_ns := _busy_ns(trial))
    ):
        yield (
            f"the worker used {row.cpu_ns / busy_ns:.2f} cores while it ran: it slept, or was "
            f"kept from its cores (least is {LEAST_CPU_SHARE})"
        )


CONTENTION = StudyRule(
    code="STAT004",
    name="machine-undisturbed",
    sentence="During a measured trial nobody else used the machine, and the worker did not sleep.",
    rationale=(
        "With two OpenMP threads one other busy process makes single operations 10 to 100 times "
        f"slower. Others may use {OTHER_CPU_SHARE} cores, the hypervisor may take {STEAL_SHARE}; "
        f"on a CPU the worker itself must use {LEAST_CPU_SHARE}. The sweep runs a disturbed block "
        "again within its limit; what is still disturbed is refused. Where a machine does not tell "
        "what others used, the worker's own CPU time must be there. A worker's sleep inside of a "
        "request shows here too, where no idle slot tells of it. A reading that some trials of an "
        "arm have and others lack is missing where it did not please, and more CPU time than all "
        "cores of the machine have is a wall that was cut."
    ),
    remedy="Stop what else is running, and start the sweep again.",
    check=_contention,
)
