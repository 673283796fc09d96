"""Mutants of the rules about a run as a whole: shape, steps, wall (RUN009 to 014, RUN022)."""

from __future__ import annotations

from typing import Any

from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support.mutants.base import (
    Mutant,
    mutants_of,
)
from support.rebuild import (
    AGAIN,
    BASE,
    change,
    engine,
    measured,
    rebuild,
    replace,
    rerun,
    shifted_request,
)
from support.sound import MS, Study, study


def _swap_trials(table_cells: tuple[str, str]) -> Study:
    """Give the rows of two trials of block 2 each other's name."""
    one, other = table_cells
    names = {one: other, other: one}
    broken = study()
    for table in ("requests", "steps"):
        broken.edit(
            table,
            lambda row: replace(row, cell=names[row.cell]),
            where=lambda row: not row.warmup and row.cell in names,
            blocks=[2],
        )
    return broken


def _respaced(gap_ns: int) -> Study:
    """Move each request of the baseline away from (or into) the one before."""

    def make(
        _trial: TrialRow, requests: list[RequestRow], steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        return [shifted_request(row, i * gap_ns) for i, row in enumerate(requests)], steps

    return rebuild(study(), make, cells=[BASE, AGAIN])


def _hold_longer(row: RequestRow, by_ns: int = 1) -> tuple[Hold, ...]:
    (hold,) = row.holds_ns or ()
    return (Hold(hold.acquired_ns - by_ns, hold.released_ns),)


def _one_more_holder() -> Study:
    broken = study()
    broken.edit(
        "steps",
        lambda row: replace(row, holders=row.holders - 1, decode_rows=row.decode_rows - 1),
        where=lambda row: measured(engine(8))(row) and row.step == 5,
        blocks=[0],
    )
    return broken


def _no_last_step() -> Study:
    broken = study()
    broken.edit(
        "steps",
        lambda _: None,
        where=lambda row: measured(engine(8))(row) and row.holders == 0,
    )
    return broken


def _overlap_of_a_moment() -> Study:
    """One request at a time; each takes its slot a millisecond before the last one leaves."""

    def make(
        _trial: TrialRow, requests: list[RequestRow], steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        first, *rest = requests
        early = [replace(row, holds_ns=_hold_longer(row, MS)) for row in rest]
        extra = [
            replace(
                steps[0],
                start_ns=row.holds_ns[0].acquired_ns,
                prefill_rows=0,
                decode_rows=1,
                holders=2,
                waiting=len(rest) - number - 1,
            )
            for number, row in enumerate(early)
        ]
        log = sorted([*steps, *extra], key=lambda row: row.start_ns)
        return [first, *early], [replace(row, step=number) for number, row in enumerate(log)]

    alone = rerun(study(), [engine(4)], step_ms=lambda _, rows: 34.0 + 3 * rows, slots=1)
    return rebuild(alone, make, cells=[engine(4)])


def _first_tokens_early() -> Study:
    """The engine stamps first tokens half-way through their prefill."""
    broken = study()

    def early(row: Any) -> Any:
        instant = (row.holds_ns[0].acquired_ns + row.token_ns[0]) // 2
        return replace(row, first_token_ns=instant, token_ns=(instant, *row.token_ns[1:]))

    assert broken.edit("requests", early, where=measured(engine(4)))
    return broken


def _slots_passed_on_early() -> Study:
    """At four slots the first four requests hand theirs on 5 ms before their last step ends."""
    broken = study()

    def early(row: Any) -> Any:
        (hold,) = row.holds_ns
        if int(row.request[1:]) >= 4:
            return replace(row, holds_ns=(Hold(hold.acquired_ns - 5 * MS, hold.released_ns),))
        end = hold.released_ns - 5 * MS
        return replace(
            row,
            holds_ns=(Hold(hold.acquired_ns, end),),
            finished_ns=end,
            token_ns=(*row.token_ns[:-1], end),
        )

    assert broken.edit("requests", early, where=measured(engine(4)))
    return broken


def _steps_without_rows() -> Study:
    broken = study()
    assert broken.edit(
        "steps", lambda row: replace(row, decode_rows=0), where=lambda row: not row.warmup
    )
    return broken


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "RUN009",
        (
            "swapped-slot-counts",
            "The rows of the four-slot and the two-slot trial change places.",
            lambda: _swap_trials((engine(2), engine(4))),
        ),
        (
            "five-in-four",
            "Four slots, and the run was done with eight.",
            lambda: rerun(study(), [engine(4)], step_ms=lambda _, rows: 34.0 + 3 * rows, slots=8),
        ),
    ),
    *mutants_of(
        "RUN010",
        (
            "serial-overlap",
            "Each request of the baseline arrives before the one before has finished.",
            lambda: _respaced(-20 * MS),
        ),
        (
            "swapped-arms",
            "The rows of the baseline and of the engine at eight slots change places.",
            lambda: _swap_trials((BASE, engine(8))),
        ),
    ),
    *mutants_of(
        "RUN011",
        (
            "sleeps-between-requests",
            "The baselines sleep 50 ms between their requests.",
            lambda: _respaced(50 * MS),
        ),
        (
            "naps-between-requests",
            "The baselines sleep for a fortieth of each request.",
            lambda: _respaced(25 * MS),
        ),
    ),
    *mutants_of(
        "RUN012",
        (
            "never-batched",
            "Four slots were asked for, and one request at a time ran (occupancy reads 4.5).",
            lambda: rerun(study(), [engine(4)], step_ms=lambda _, rows: 34.0 + 3 * rows, slots=1),
        ),
        (
            "overlap-of-a-moment",
            "One request at a time ran, with a millisecond of two between one and the next.",
            _overlap_of_a_moment,
        ),
    ),
    *mutants_of(
        "RUN013",
        (
            "hold-one-ns-longer",
            "A hold begins one nanosecond before its step.",
            lambda: change(
                study(),
                "requests",
                cell=engine(8),
                request="r4",
                blocks=[0],
                holds_ns=_hold_longer,
            ),
        ),
        ("a-holder-less", "One step counts a holder less than there were.", _one_more_holder),
        ("log-cut-short", "The step log ends while slots are held.", _no_last_step),
    ),
    *mutants_of(
        "RUN014",
        (
            "work-before-the-stamps",
            "The parent waited seconds longer than the requests account for.",
            lambda: change(
                study(),
                "trials",
                cell=engine(8),
                wall_ns=lambda row: row.wall_ns + 3 * 10**9,
                cpu_ns=lambda row: row.cpu_ns + 6 * 10**9,
            ),
        ),
        (
            "longer-inside-than-outside",
            "The requests take longer than the parent waited for them.",
            lambda: change(study(), "trials", cell=BASE, wall_ns=lambda row: row.wall_ns * 9 // 10),
        ),
    ),
    *mutants_of(
        "RUN022",
        (
            "first-token-before-its-step",
            "The engine stamps its first tokens in the middle of the step that computes them.",
            _first_tokens_early,
        ),
        (
            "slot-passed-on-inside-a-step",
            "Slots change hands 5 ms before the step of their last token ends.",
            _slots_passed_on_early,
        ),
        (
            "steps-without-rows",
            "The step log leaves out the rows that decode, and with them what was read.",
            _steps_without_rows,
        ),
    ),
)
