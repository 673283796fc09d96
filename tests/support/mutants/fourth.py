"""Mutants of a fourth look: stamps that come too soon, and files that agree on what is not so."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from nanoserve_bench.plan import Fact, Option, SkippedArm, SkippedDevice
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support import load_studies, sound
from support.mutants.base import Mutant, mutants_of
from support.mutants.steps import shaken
from support.rebuild import (
    BASE,
    change,
    change_arm,
    engine,
    measured,
    rebuild,
    replace,
    rows_of,
    set_plan,
)
from support.sound import Study, study

ENGINE = engine(4)


def _first_tokens(when: Callable[[Any], int]) -> Study:
    """The baseline's first tokens at another instant, those behind them not before."""
    return change(
        study(),
        "requests",
        cell=BASE,
        first_token_ns=when,
        token_ns=lambda row: (when(row), *(max(when(row), t) for t in row.token_ns[1:])),
    )


def _one_trial_in_all_blocks() -> Study:
    """Block 0 of the baseline in all of its blocks, shaken anew in each."""
    broken = study()
    first = next(trial for trial in broken.blocks[0].trials if measured(BASE)(trial))
    source = rows_of(broken.blocks[0], "requests", first)

    def make(
        trial: TrialRow, requests: list[RequestRow], log: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        rows, _ = shaken(source, [], share=0.001, seed=trial.block)
        return [
            replace(
                row,
                block=trial.block,
                prompt_sha256=own.prompt_sha256,
                output_sha256=own.output_sha256,
            )
            for row, own in zip(rows, requests, strict=True)
        ], log

    return rebuild(broken, make, cells=[BASE], blocks=range(1, 8))


def _arrived_when_served() -> Study:
    """Requests arrive when their slot is free, and the log counts no queue."""
    broken = change(
        study(),
        "requests",
        cell=ENGINE,
        arrival_ns=lambda row: row.holds_ns[0].acquired_ns,
        submitted_ns=lambda row: row.holds_ns[0].acquired_ns,
    )
    assert broken.edit("steps", lambda row: replace(row, waiting=0), where=measured(ENGINE))
    return broken


def _cold_worker() -> Study:
    """The warm-ups of the baseline ran in the worker of its A/A arm."""
    broken = study()
    for index, block in enumerate(broken.blocks):
        launch = next(row.launch for row in block.systems if row.arm == "hf-generate-again")
        assert broken.edit(
            "trials",
            lambda row, launch=launch: replace(row, launch=launch),
            where=lambda row: row.warmup and row.cell == BASE,
            blocks=[index],
        )
    return broken


def _warmed_up_afterwards() -> Study:
    def reorder(_: int, trials: list[TrialRow]) -> list[TrialRow]:
        return sorted(trials, key=lambda trial: trial.warmup)

    return rebuild(study(), lambda _, rows, log: (rows, log), cells=[], reorder=reorder)


def _more_time_than_cores() -> Study:
    broken = study()
    broken.facts += (Fact(name="logical_cores", value=2, unit="cores"),)
    return change(broken, "trials", cell=ENGINE, cpu_ns=lambda row: 4 * row.wall_ns)


def _other_card() -> Study:
    return change_arm(study(device="cuda:0"), "nanoserve", device_name="A faster card")


def _twin_cell() -> Study:
    """The engine at four slots a second time, under an id of its own."""
    broken = study()
    twin = "four-slots-again"
    (cell,) = (cell for cell in broken.plan.cells if cell.id == ENGINE)
    orders = tuple(
        (*order, twin) if place % 2 else (twin, *order)
        for place, order in enumerate(broken.plan.orders)
    )
    set_plan(broken, cells=(*broken.plan.cells, replace(cell, id=twin)), orders=orders)
    for index, block in enumerate(broken.blocks):
        tables = {
            table: (
                *getattr(block, table),
                *(replace(r, cell=twin) for r in getattr(block, table) if r.cell == ENGINE),
            )
            for table in ("trials", "requests", "steps")
        }
        broken.blocks[index] = replace(block, **tables)

    def reorder(index: int, trials: list[TrialRow]) -> list[TrialRow]:
        return sorted(trials, key=lambda t: (not t.warmup, orders[index].index(t.cell)))

    rng = random.Random(9)
    return rebuild(
        broken,
        lambda _, rows, log: shaken(rows, log, share=0.02, seed=rng.randrange(10**6)),
        cells=[twin],
        reorder=reorder,
    )


def _told_apart() -> Study:
    arms = tuple(
        replace(arm, options=(Option(name="compile", value="yes"),))
        if arm.name == "hf-generate-again"
        else arm
        for arm in sound.plan().arms
    )
    return set_plan(study(), arms=arms)


def _objective_of_nothing() -> Study:
    (load,) = load_studies.loads(0.9)
    made = load_studies.study(0.9)
    assert load.arrivals is not None
    other = replace(load, arrivals=replace(load.arrivals, objective_ttft_ms=-5.0))
    return set_plan(made, workloads=(made.plan.workloads[0], other))


def _named_twice() -> Study:
    broken = study()
    broken.facts += (Fact(name="physical_cores", value=64, unit="cores"),)
    return broken


def _skipped(**values: Any) -> Study:
    arm = {"device": "cpu", "dtype": "float32", "reason": "it does not run there", **values}
    return set_plan(study(), skipped_arms=(SkippedArm(**arm),))


SAMPLED = "sample;temperature=1.0;ignore_eos"
MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "RUN017",
        (
            "one-trial-in-all-blocks",
            "All trials of the baseline are the first one, each shaken anew by 0.1 %.",
            _one_trial_in_all_blocks,
        ),
    ),
    *mutants_of(
        "RUN018",
        (
            "first-token-at-once",
            "The baseline's first tokens come a microsecond after their arrival.",
            lambda: _first_tokens(lambda row: row.arrival_ns + 1000),
        ),
        (
            "all-tokens-at-the-end",
            "The baseline's tokens all come with its last one, which takes its TTFT along.",
            lambda: _first_tokens(lambda row: row.token_ns[-1]),
        ),
        (
            "discarded-beyond-measure",
            "The baseline says that it discarded a thousand million tokens.",
            lambda: change(study(), "requests", cell=BASE, discarded_tokens=10**9),
        ),
    ),
    *mutants_of(
        "RUN020",
        (
            "cold-worker",
            "The warm-ups of an arm ran in another arm's worker.",
            _cold_worker,
        ),
    ),
    *mutants_of(
        "RUN021",
        (
            "another-card",
            "The engine calls the card of all arms by the name of a faster one.",
            _other_card,
        ),
    ),
    *mutants_of(
        "RUN022",
        (
            "discarded-until-it-overflows",
            "An engine with a step log discarded so much that 64 bits cannot add it up.",
            lambda: change(study(), "requests", cell=engine(8), discarded_tokens=2**61),
        ),
    ),
    *mutants_of(
        "RUN023",
        (
            "arrived-when-served",
            "Requests that came at once are stamped when a slot was free, and the log agrees.",
            _arrived_when_served,
        ),
    ),
    *mutants_of(
        "PAIR009",
        (
            "sampling-as-planned",
            "Both sides sample, as the plan says, and their tokens agree all the same.",
            lambda: change_arm(set_plan(study(), decoding=SAMPLED), None, decoding=SAMPLED),
        ),
    ),
    *mutants_of(
        "STAT002",
        (
            "warmed-up-afterwards",
            "The warm-ups of every block ran after what they were to warm up for.",
            _warmed_up_afterwards,
        ),
    ),
    *mutants_of(
        "STAT004",
        (
            "more-time-than-cores",
            "A trial used four cores' time on a machine of two.",
            _more_time_than_cores,
        ),
        (
            "reading-left-out-once",
            "What others used of the machine is blank in one trial of the baseline.",
            lambda: change(study(), "trials", cell=BASE, blocks=[2], other_cpu_ns=None),
        ),
    ),
    *mutants_of(
        "STAT006",
        (
            "trial-of-another-day",
            "A trial of the last block was stamped a year after its neighbours.",
            lambda: change(
                study(),
                "trials",
                cell=ENGINE,
                blocks=[7],
                started_at="2027-01-01T07:30:00+00:00",
            ),
        ),
    ),
    *mutants_of(
        "REP010",
        (
            "one-cell-twice",
            "The plan measures one cell twice, under two ids.",
            _twin_cell,
        ),
        (
            "headline-over-nothing",
            "The plan's headline baseline is the engine, over which nothing is stated.",
            lambda: set_plan(study(), headline_baseline="nanoserve"),
        ),
        (
            "one-thing-in-two-settings",
            "The A/A arm was told something that the baseline was not.",
            _told_apart,
        ),
        (
            "objective-of-nothing",
            "The plan asks for a first token before its request.",
            _objective_of_nothing,
        ),
        (
            "fact-stated-twice",
            "The manifest gives the machine 2 cores, and 64.",
            _named_twice,
        ),
        (
            "skipped-and-measured",
            "The plan says that an arm is skipped where it has cells.",
            lambda: _skipped(arm="nanoserve", system="nanoserve"),
        ),
        (
            "skipped-without-a-reason",
            "The plan skips a rival, and does not say why.",
            lambda: _skipped(arm="vllm", system="vllm", reason=" "),
        ),
        (
            "device-skipped-without-a-reason",
            "The plan skips the card, and does not say why.",
            lambda: set_plan(study(), skipped_devices=(SkippedDevice(device="cuda", reason=""),)),
        ),
    ),
    *mutants_of(
        "REP011",
        (
            "time-in-words",
            "A trial says that it started soon.",
            lambda: change(study(), "trials", cell=ENGINE, blocks=[3], started_at="soon"),
        ),
    ),
)
