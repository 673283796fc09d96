"""From rows back to runs: one `SystemRun` per trial, and which blocks a figure is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nanoserve_bench.records import Settings, Shape, SystemRun
from nanoserve_bench.results import ResultSet
from nanoserve_bench.schema import SystemRow, slot_of
from nanoserve_bench.trialset import StepLog, TrialRecords, TrialSet


class TrialKey(NamedTuple):
    """Names one trial of a study."""

    block: int
    cell: str
    warmup: bool


def assemble(results: ResultSet) -> Mapping[TrialKey, SystemRun]:
    """The run of every trial, requests in the order of their rows."""
    return {
        TrialKey(trial.block, trial.cell, trial.warmup): run
        for trial, run in zip(results.trials, runs_of(results, TrialSet.of(results)), strict=True)
    }


def runs_of(results: ResultSet, trials: TrialSet) -> Iterator[SystemRun]:
    """The runs of `results.trials`, in its order, as views of `trials`."""
    cells = {cell.id: cell for cell in results.plan.cells}
    offered = {w.name for w in results.plan.workloads if w.arrivals is not None}
    launches = {row.launch: (row, Shape(row.shape), _settings(row)) for row in results.systems}
    logged = (trials.step_bounds[1:] > trials.step_bounds[:-1]).tolist()
    for number, trial in enumerate(results.trials):
        launch, shape, settings = launches[trial.launch]
        cell = cells[trial.cell]
        if cell.workload in offered and not trial.warmup:
            shape = Shape.CONCURRENT  # requests come when they are due, whatever the system is
        yield SystemRun(
            system=launch.system,
            shape=shape,
            slots=cell.slots,
            records=TrialRecords(trials, number),
            settings=settings,
            steps=StepLog(trials, number) if logged[number] else None,
            slot=slot_of(launch.stamps),
        )


def measured_blocks(results: ResultSet) -> tuple[int, ...]:
    """The blocks that figures are made of: all but those that were run again."""
    replaced = {trial.replaces for trial in results.trials}
    return tuple(sorted({trial.block for trial in results.trials} - replaced))


def _settings(row: SystemRow) -> Settings:
    return Settings(
        machine=row.machine,
        device=row.device,
        dtype=row.dtype,
        matmul_precision=row.matmul_precision,
        threads=row.threads,
        weights=row.weights,
        tokenizer=row.tokenizer,
        decoding=row.decoding,
        cache=row.cache,
    )
