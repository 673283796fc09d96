"""Mutants of a fifth look: trials that were copied in part, and stamps moved where no sum tells."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from nanoserve_bench.plan import PlannedComparison
from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support import load_studies
from support.mutants.base import Mutant, mutants_of
from support.mutants.steps import shaken
from support.rebuild import (
    AGAIN,
    BASE,
    change,
    change_arm,
    engine,
    measured,
    rebuild,
    replace,
    rows_of,
    set_plan,
    shifted_request,
    tamper_lines,
)
from support.sound import Study, study

Place = tuple[int, str]
"""Block and cell of a trial."""


def _rows(made: Study, place: Place) -> tuple[list[RequestRow], list[StepRow]]:
    block, cell = place
    trial = next(t for t in made.blocks[block].trials if measured(cell)(t))
    return rows_of(made.blocks[block], "requests", trial), rows_of(
        made.blocks[block], "steps", trial
    )


def requests_copied(
    broken: Study,
    source: Place,
    target: Place,
    places: Mapping[int, int],
    *,
    share: float = 0.0,
) -> Study:
    """Requests of a serial trial have the spans of another's: by place, the place they come from.

    Those that follow are shifted, so that everything still stands one behind the other.
    """
    taken, _ = _rows(broken, source)

    def make(
        _trial: TrialRow, requests: list[RequestRow], log: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        made: list[RequestRow] = []
        clock = requests[0].arrival_ns
        for place, own in enumerate(requests):
            row = own
            if place in places:
                ((row,), _) = shaken([taken[places[place]]], [], share=share, seed=place)
            row = shifted_request(row, clock - row.arrival_ns)
            names = ("block", "cell", "request", "prompt_sha256", "output_sha256")
            made.append(replace(row, **{name: getattr(own, name) for name in names}))
            clock = (row.finished_ns or 0) + 2000 + place
        return made, log

    return rebuild(broken, make, cells=[target[1]], blocks=[target[0]])


def steps_copied(source: Place, target: Place, first: int) -> Study:
    """From one step on a trial of the engine has the steps of another one, to the nanosecond."""
    broken = study()
    _, theirs = _rows(broken, source)

    def make(
        _trial: TrialRow, requests: list[RequestRow], log: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        bounds, others = ([row.start_ns for row in rows] for rows in (log, theirs))
        moved = dict(zip(bounds[: first + 1], bounds, strict=False))
        for place, (earlier, later) in enumerate(itertools.pairwise(bounds)):
            if place >= first:
                moved[later] = moved[earlier] + others[place + 1] - others[place]
        return moved_stamps(requests, log, lambda stamp: moved.get(stamp, stamp))

    return rebuild(broken, make, cells=[target[1]], blocks=[target[0]])


def moved_stamps(
    requests: list[RequestRow], log: list[StepRow], when: Callable[[int], int]
) -> tuple[list[RequestRow], list[StepRow]]:
    """A trial whose steps end at other instants, and with them its tokens and holds."""
    return [
        replace(
            row,
            holds_ns=tuple(Hold(*map(when, hold)) for hold in row.holds_ns or ()),
            first_token_ns=when(row.first_token_ns or 0),
            finished_ns=when(row.finished_ns or 0),
            token_ns=tuple(map(when, row.token_ns or ())),
        )
        for row in requests
    ], [replace(row, start_ns=when(row.start_ns)) for row in log]


def _from_everywhere() -> Study:
    """Each request of a trial is one of another block's."""
    broken = study()
    for place, block in enumerate((0, 1, 2, 3, 4, 6, 7)):
        requests_copied(broken, (block, BASE), (5, BASE), {place: place})
    return broken


def _free_prefills() -> Study:
    """A step that computes prompts beside decodes is over at once; the next one takes its time."""

    def make(
        _trial: TrialRow, requests: list[RequestRow], log: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        moved = {
            later.start_ns: earlier.start_ns + 1000
            for earlier, later in itertools.pairwise(log)
            if earlier.prefill_rows and earlier.step
        }
        return moved_stamps(requests, log, lambda stamp: moved.get(stamp, stamp))

    return rebuild(study(), make, cells=[engine(2)])


def _arrived_in_time() -> Study:
    """Whoever had to wait arrives a microsecond before the first request is done."""
    broken = study()
    cell = engine(2)
    for block in broken.blocks:
        done = min(row.finished_ns or 0 for row in block.requests if measured(cell)(row)) - 1000
        change(
            broken,
            "requests",
            cell=cell,
            blocks=[block.trials[0].block],
            arrival_ns=lambda row, done=done: done if row.holds_ns[0][0] > done else row.arrival_ns,
            submitted_ns=lambda row, done=done: (
                done if row.holds_ns[0][0] > done else row.submitted_ns
            ),
        )
        broken.edit(
            "steps",
            lambda row, done=done: replace(row, waiting=0 if row.start_ns < done else row.waiting),
            where=measured(cell),
            blocks=[block.trials[0].block],
        )
    return broken


def _long_ones_when_it_is_quiet() -> Study:
    """Two requests of unequal prompts arrive at each other's time."""
    broken = load_studies.of_many_lengths()
    cell = load_studies.cell(broken.plan.workloads[1])
    names = ("prompt_sha256", "prompt_tokens", "output_sha256")
    for block in broken.blocks:
        rows = [row for row in block.requests if measured(cell)(row)]
        other = {"r2": rows[3], "r3": rows[2]}
        for request, row in other.items():
            values = {name: getattr(row, name) for name in names}
            change(broken, "requests", cell=cell, request=request, blocks=[row.block], **values)
    return broken


def _called_revisions() -> Study:
    broken = change_arm(study(), None, libraries="torch=2.13.0")
    pairs = tuple(
        PlannedComparison(baseline=pair.baseline, candidate=pair.candidate, kind="revision")
        if pair.kind == "rival"
        else pair
        for pair in broken.plan.comparisons
    )
    return set_plan(broken, comparisons=pairs)


def _signed(line: str) -> str:
    """A row of `trials.csv` that was written with a load of 0.5."""
    assert ",0.5," in line
    return line.replace(",0.5,", ",-0.0,", 1)


def _slots_twice() -> Study:
    broken = study()
    (workload,) = broken.plan.workloads
    return set_plan(broken, workloads=(replace(workload, slots=(*workload.slots, 8)),))


GREEDY_IN_NAME = "greedy;do_sample=true;ignore_eos"
HALF = {place: place for place in range(4)}

MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "RUN017",
        (
            "one-request-copied",
            "One request of the baseline is one of another block, later by so much.",
            lambda: requests_copied(study(), (1, BASE), (5, BASE), {3: 6}),
        ),
        (
            "one-request-of-each-block",
            "Seven requests of the baseline's trial are of seven other blocks, one of each.",
            _from_everywhere,
        ),
        (
            "half-copied-and-shaken",
            "Half of a trial's requests are those of another block, each span other by 0.1 %.",
            lambda: requests_copied(study(), (1, BASE), (5, BASE), HALF, share=0.001),
        ),
        (
            "every-second-request-shaken",
            "Every second request of the A/A arm is the baseline's, each span other by 0.1 %.",
            lambda: requests_copied(
                study(), (5, BASE), (5, AGAIN), {1: 1, 3: 3, 5: 5, 7: 7}, share=0.001
            ),
        ),
        (
            "copied-in-another-order",
            "A trial of the baseline is that of block 1 from its last request on, and shaken.",
            lambda: requests_copied(
                study(), (1, BASE), (5, BASE), {n: 7 - n for n in range(8)}, share=0.001
            ),
        ),
        (
            "second-half-of-its-steps-copied",
            "The last eight steps of eight slots are those of another block.",
            lambda: steps_copied((1, engine(8)), (5, engine(8)), 8),
        ),
    ),
    *mutants_of(
        "RUN018",
        (
            "prefills-for-nothing",
            "The engine's steps that compute a prompt beside a decode are over in a microsecond.",
            _free_prefills,
        ),
        (
            "slot-taken-with-the-first-token",
            "The baseline holds its slot from a millisecond before each first token.",
            lambda: change(
                study(),
                "requests",
                cell=BASE,
                holds_ns=lambda row: (
                    Hold(row.first_token_ns - 10**6, row.holds_ns[0].released_ns),
                ),
            ),
        ),
    ),
    *mutants_of(
        "RUN023",
        (
            "arrived-in-time",
            "Whoever had to wait arrives just before the first request is done, in the log too.",
            _arrived_in_time,
        ),
        (
            "long-prompts-when-it-is-quiet",
            "In an open loop two requests of unequal prompts arrive at each other's time.",
            _long_ones_when_it_is_quiet,
        ),
    ),
    *mutants_of(
        "PAIR009",
        (
            "greedy-in-name",
            "The decoding calls itself greedy and samples, in the plan and on both sides.",
            lambda: change_arm(
                set_plan(study(), decoding=GREEDY_IN_NAME), None, decoding=GREEDY_IN_NAME
            ),
        ),
    ),
    *mutants_of(
        "REP004",
        (
            "load-of-minus-zero",
            "The load before a trial is zero, with a minus.",
            None,
            tamper_lines("trials.csv", lambda rows: [rows[0], _signed(rows[1]), *rows[2:]]),
        ),
    ),
    *mutants_of(
        "REP010",
        (
            "two-systems-as-revisions",
            "The plan calls the engine another revision of the baseline.",
            _called_revisions,
        ),
        (
            "slots-listed-twice",
            "The workload lists eight slots twice.",
            _slots_twice,
        ),
    ),
)
