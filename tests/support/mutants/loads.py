"""Mutants of open loops: loads that were not offered as the plan says (RUN023, REP010)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from nanoserve_bench.arrivals import offered
from nanoserve_bench.plan import PlannedComparison
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support import load_studies, sound
from support.mutants.base import Mutant, mutants_of
from support.rebuild import rebuild_outputs, replace, set_plan
from support.sound import MS, Study

(LOAD,) = load_studies.loads(0.9)
CELL = load_studies.cell(LOAD)


def _sent(when: Callable[[Sequence[int]], Sequence[int]]) -> Study:
    """The requests are sent at other instants than those at which they were due."""
    study = load_studies.study(0.9)
    rng = random.Random(3)

    def make(
        trial: TrialRow, requests: list[RequestRow], _steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        block = study.blocks[trial.block]
        lists = {sound.token_digest(ids): ids for ids in (*block.prompts, *block.outputs)}
        work = [(lists[row.prompt_sha256], lists[row.output_sha256]) for row in requests]
        due = offered(study.plan, LOAD, trial.block)
        rows, steps, _ = sound._engine(
            (trial.block, trial.cell, trial.warmup),
            work,
            LOAD.slots[0],
            0,
            lambda rows: round((34 + 3 * rows) * MS * (1 + 0.01 * rng.gauss(0, 1))),
            when(due),
        )
        first = rows[0].arrival_ns
        return [
            replace(row, arrival_ns=first + instant) for row, instant in zip(rows, due, strict=True)
        ], steps

    return rebuild_outputs(study, make, cells=[CELL], blocks=None)


def _stamped_when_sent() -> Study:
    """Arrivals are stamped at submission: what a request waited for the client is gone."""
    study = load_studies.study(0.9)
    changed = study.edit(
        "requests",
        lambda row: replace(row, arrival_ns=row.submitted_ns),
        where=lambda row: row.cell == CELL and not row.warmup,
    )
    assert changed
    return study


def _replanned(**arrivals: object) -> Study:
    study = load_studies.study(0.9)
    assert LOAD.arrivals is not None
    other = replace(LOAD, arrivals=replace(LOAD.arrivals, **arrivals))
    return set_plan(study, workloads=(study.plan.workloads[0], other))


def _compared() -> Study:
    study = load_studies.study(0.5, 0.9)
    half, most = (load_studies.cell(load) for load in load_studies.loads(0.5, 0.9))
    pair = PlannedComparison(baseline=half, candidate=most, kind="self")
    return set_plan(study, comparisons=(*study.plan.comparisons, pair))


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "RUN023",
        (
            "closed-loop",
            "Each request is sent when the one before has been answered, and stamped as due.",
            lambda: _sent(lambda due: [index * 800 * MS for index in range(len(due))]),
        ),
        (
            "a-client-that-sleeps-over",
            "The client sends three requests a third of a second late.",
            lambda: _sent(
                lambda due: (
                    [*due[:20], *(instant + 300 * MS for instant in due[20:23]), *due[23:]]
                    if due[23] > due[22] + 300 * MS
                    else [*due[:-1], due[-1] + 300 * MS]
                )
            ),
        ),
        (
            "arrivals-stamped-when-sent",
            "Arrivals are the submissions, not what was due.",
            _stamped_when_sent,
        ),
        (
            "half-the-load",
            "The plan offers twice the rate that arrived.",
            lambda: _replanned(rate_per_s=2 * (LOAD.arrivals.rate_per_s if LOAD.arrivals else 0)),
        ),
        (
            "evenly-spaced",
            "The plan says constant gaps, and the gaps were exponential.",
            lambda: _replanned(process="constant"),
        ),
    ),
    *mutants_of(
        "REP010",
        ("a-speedup-of-loads", "The plan compares two open loops.", _compared),
        (
            "arrivals-of-no-kind",
            "The plan offers bursts, which nobody has defined.",
            lambda: _replanned(process="bursts"),
        ),
    ),
)
