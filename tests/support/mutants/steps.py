"""Mutants of what a step log counts, and of copies that were shaken (RUN025, RUN017)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support.loops import Policy, scheduled
from support.mutants.base import Mutant, mutants_of
from support.rebuild import AGAIN, BASE, engine, measured, rebuild, replace, rows_of
from support.sound import Study, study

ENGINE = engine(4)


def _logged(
    edit: Callable[[StepRow], StepRow], made: Callable[[], Study] = study, cell: str = ENGINE
) -> Study:
    broken = made()
    assert broken.edit("steps", edit, where=lambda row: measured(cell)(row) and row.holders > 0)
    return broken


def _decoded_nothing(row: StepRow) -> StepRow:
    """Of the prompts that are half computed in step 1, one is told as a decode."""
    if row.step != 1:
        return row
    other: StepRow = replace(row, prefill_rows=row.prefill_rows - 1, decode_rows=1)
    return other


def shaken(
    rows: list[RequestRow],
    log: list[StepRow],
    *,
    share: float,
    stretch: float = 1.0,
    seed: int = 5,
) -> tuple[list[RequestRow], list[StepRow]]:
    """A trial of which every span is another by so much: what belongs together stays together."""
    rng = random.Random(seed)
    instants = sorted(
        {
            instant
            for row in rows
            for instant in (
                row.arrival_ns, row.submitted_ns, row.finished_ns or 0,
                *(stamp for hold in row.holds_ns or () for stamp in hold), *(row.token_ns or ()),
            )
        }
        | {row.start_ns for row in log}
    )  # fmt: skip
    moved = {instants[0]: instants[0]}
    for earlier, later in itertools.pairwise(instants):
        span = (later - earlier) * stretch * (1 + share * rng.gauss(0, 1))
        moved[later] = moved[earlier] + max(1, round(span))
    return [
        replace(
            row,
            arrival_ns=moved[row.arrival_ns],
            submitted_ns=moved[row.submitted_ns],
            holds_ns=tuple(Hold(*(moved[stamp] for stamp in hold)) for hold in row.holds_ns or ()),
            first_token_ns=moved[row.first_token_ns or 0],
            finished_ns=moved[row.finished_ns or 0],
            token_ns=tuple(moved[stamp] for stamp in row.token_ns or ()),
        )
        for row in rows
    ], [replace(row, start_ns=moved[row.start_ns]) for row in log]


def shaken_copy(
    source: tuple[int, str], target: tuple[int, str], *, share: float, stretch: float = 1.0
) -> Study:
    """The trial of a block and cell, shaken, in the place of another, with its prompts."""
    broken = study()
    block, cell = source
    trial = next(t for t in broken.blocks[block].trials if measured(cell)(t))
    rows, log = (rows_of(broken.blocks[block], table, trial) for table in ("requests", "steps"))
    rows, log = shaken(rows, log, share=share, stretch=stretch)

    def make(
        trial: TrialRow, requests: list[RequestRow], _steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        place = {"block": trial.block, "cell": trial.cell}
        return [
            replace(row, **place, prompt_sha256=own.prompt_sha256, output_sha256=own.output_sha256)
            for row, own in zip(rows, requests, strict=True)
        ], [replace(row, **place) for row in log]

    return rebuild(broken, make, cells=[target[1]], blocks=[target[0]])


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "RUN017",
        (
            "copied-and-shaken",
            "A trial of the baseline is that of block 1, each span longer or shorter by 0.1 %.",
            lambda: shaken_copy((1, BASE), (4, BASE), share=0.001),
        ),
        (
            "copied-shaken-and-stretched",
            "The same, with all of it slower by 3 %.",
            lambda: shaken_copy((1, BASE), (4, BASE), share=0.001, stretch=1.03),
        ),
        (
            "shaken-from-the-baseline",
            "The A/A arm's trial of a block is the baseline's, each span other by 0.2 %.",
            lambda: shaken_copy((6, BASE), (6, AGAIN), share=0.002),
        ),
        (
            "shaken-with-its-log",
            "A trial of the engine and its step log are those of another block, shaken alike.",
            lambda: shaken_copy((2, engine(2)), (5, engine(2)), share=0.001),
        ),
    ),
    *mutants_of(
        "RUN025",
        (
            "queue-hidden",
            "The step log says that nobody waited for the four slots.",
            lambda: _logged(lambda row: replace(row, waiting=0)),
        ),
        (
            "queue-invented",
            "The step log counts a waiting request more than there was.",
            lambda: _logged(lambda row: replace(row, waiting=row.waiting + 1)),
        ),
        (
            "prefills-called-decodes",
            "The step log calls the rows that computed prompts decodes.",
            lambda: _logged(
                lambda row: replace(
                    row, prefill_rows=0, decode_rows=row.prefill_rows + row.decode_rows
                )
            ),
        ),
        (
            "decodes-called-prefills",
            "The step log calls one decode of every step a prefill.",
            lambda: _logged(
                lambda row: (
                    replace(row, prefill_rows=row.prefill_rows + 1, decode_rows=row.decode_rows - 1)
                    if row.decode_rows
                    else row
                )
            ),
        ),
        (
            "a-decode-without-a-token",
            "A step log tells a decode of a step in which prompts were cut and no token came.",
            lambda: _logged(_decoded_nothing, made=lambda: scheduled(study(), Policy(pieces=3))),
        ),
    ),
)
