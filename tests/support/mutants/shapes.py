"""Mutants of the rules about a run as a whole: shape, walls, prompts (RUN009 to RUN021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nanoserve_bench.plan import RequestLengths, WorkloadPlan
from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support.mutants.base import (
    Mutant,
    drop_request,
    mutants_of,
    prompts,
)
from support.rebuild import (
    AGAIN,
    BASE,
    change,
    change_arm,
    engine,
    measured,
    rebuild,
    replace,
    rerun,
    set_plan,
    shifted_request,
)
from support.sound import DAY44, MS, Study, ragged_plan, study

Lengths = tuple[RequestLengths, ...]


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


def _hold_longer(row: RequestRow) -> tuple[Hold, ...]:
    (hold,) = row.holds_ns or ()
    return (Hold(hold.acquired_ns - 1, hold.released_ns),)


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


def _earlier_prompts() -> Study:
    broken = study()
    earlier = broken.blocks[0].prompts
    return prompts(broken, lambda number, _: earlier[number])


def _warmup_prompts() -> Study:
    """Block 5 measures what block 4 warmed up with."""
    broken = study()
    warm = broken.blocks[4].prompts[8:]
    return prompts(broken, lambda number, _: warm[number], blocks=[5])


def _copied_trial(source: int, target: int, cell: str) -> Study:
    broken = study()
    originals = sorted(
        (r for r in broken.blocks[source].requests if measured(cell)(r)), key=lambda r: r.request
    )

    def make(
        trial: TrialRow, requests: list[RequestRow], steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        shift = 10**9
        copies = [
            replace(
                shifted_request(original, shift),
                block=trial.block,
                prompt_sha256=row.prompt_sha256,
                output_sha256=row.output_sha256,
            )
            for original, row in zip(originals, requests, strict=True)
        ]
        return copies, steps

    return rebuild(broken, make, cells=[cell], blocks=[target])


def _flat_steps() -> Study:
    """32 rows in the time of one: what the weights allow, and the arithmetic does not."""
    workload = WorkloadPlan(
        name="day44", requests=32, prompt_tokens=6, new_tokens=16, slots=(1, 32)
    )
    return study(
        workload=workload, step_ms=lambda system, _: 62.0 if system != "nanoserve" else 20.0
    )


def _bytes(value: int | None) -> Study:
    return change_arm(study(), "nanoserve", weight_bytes_per_step=value)


def _swapped_launches() -> Study:
    broken = study()
    launches = {6: 7, 7: 6}  # both baselines of block 2
    broken.edit(
        "trials",
        lambda row: replace(row, launch=launches[row.launch]),
        where=lambda row: row.launch in launches,
    )
    return broken


def _planned_lengths(edit: Callable[[Lengths], Lengths]) -> Study:
    """Run a plan's lengths, and plan others."""
    ran = ragged_plan(blocks=10)
    broken = study(workload=ran)
    return set_plan(broken, workloads=(replace(ran, lengths=edit(ran.lengths)),))


def _shorter_than_planned() -> Study:
    """One request less long than the longest, so that the plan stays one that can be kept."""

    def longer(lengths: Lengths) -> Lengths:
        place = 16 + min(range(8), key=lambda i: lengths[16 + i].new_tokens)
        one = lengths[place]
        return (
            *lengths[:place],
            replace(one, new_tokens=one.new_tokens + 1),
            *lengths[place + 1 :],
        )

    return _planned_lengths(longer)


def _one_prompt() -> Study:
    broken = study()
    first = broken.blocks[3].prompts[0]
    return prompts(broken, lambda _number, _ids: first)


def _copied_thrice() -> Study:
    """The A/A arm's block 1 stands in blocks 2 and 3 as well."""
    broken = study()
    originals = [r for r in broken.blocks[1].requests if measured(AGAIN)(r)]

    def make(
        trial: TrialRow, requests: list[RequestRow], steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        copies = [
            replace(
                original,
                block=trial.block,
                prompt_sha256=row.prompt_sha256,
                output_sha256=row.output_sha256,
            )
            for original, row in zip(originals, requests, strict=True)
        ]
        return copies, steps

    return rebuild(broken, make, cells=[AGAIN], blocks=[2, 3])


def _ceilings(blocks: Sequence[int] = range(8), **values: Any) -> Study:
    broken = study()
    for index in blocks:
        block = broken.blocks[index]
        rows = tuple(replace(row, **values) for row in block.ceilings)
        broken.blocks[index] = replace(block, ceilings=rows)
    return broken


def _without_ceilings(blocks: Sequence[int]) -> Study:
    broken = study()
    for index in blocks:
        broken.blocks[index] = replace(broken.blocks[index], ceilings=())
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
    ),
    *mutants_of(
        "RUN012",
        (
            "never-batched",
            "Four slots were asked for, and one request at a time ran (occupancy reads 4.5).",
            lambda: rerun(study(), [engine(4)], step_ms=lambda _, rows: 34.0 + 3 * rows, slots=1),
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
        "RUN015",
        (
            "one-prompt-eight-times",
            "All requests of a block have the same prompt, on every side.",
            _one_prompt,
        ),
    ),
    *mutants_of(
        "RUN016",
        (
            "prompts-of-an-earlier-block",
            "Block 3 runs the prompts of block 0.",
            _earlier_prompts,
        ),
        (
            "warmed-up-prompts",
            "Block 5 measures the prompts that block 4 warmed up with.",
            _warmup_prompts,
        ),
    ),
    *mutants_of(
        "RUN017",
        (
            "copied-trial",
            "A trial of the baseline is that of block 1 with its stamps shifted.",
            lambda: _copied_trial(1, 4, BASE),
        ),
        (
            "best-trial-kept",
            "The A/A arm's trial of one block stands in three blocks.",
            _copied_thrice,
        ),
    ),
    *mutants_of(
        "RUN018",
        (
            "not-synchronised",
            "The engine's steps take 1 ms, and reading the weights takes 19.",
            lambda: study(step_ms=lambda s, _: 62.0 if s != "nanoserve" else 1.0),
        ),
        ("free-rows", "32 rows multiply in the time of one.", _flat_steps),
        ("no-ceilings", "No ceiling was measured.", lambda: _without_ceilings(range(8))),
        ("ceiling-missing-once", "One block has no ceiling.", lambda: _without_ceilings([4])),
        (
            "ceiling-out-of-a-cache",
            "The read bandwidth was measured over one megabyte.",
            lambda: _ceilings(buffer_bytes=2**20),
        ),
        (
            "one-ceiling-in-the-clouds",
            "One block claims a hundred times the bandwidth of the others.",
            lambda: _ceilings(blocks=[3], read_bytes_per_s=2.8e12),
        ),
        ("bytes-unknown", "The engine does not say what a step reads.", lambda: _bytes(None)),
        ("bytes-zero", "A step reads nothing.", lambda: _bytes(0)),
    ),
    *mutants_of(
        "RUN019",
        (
            "hits-a-cache-that-is-off",
            "Requests were served from a prefix cache that is declared off, on every side.",
            lambda: change(study(), "requests", blocks=[2], cached_tokens=6),
        ),
        (
            "cached-beyond-the-prompt",
            "More cached tokens than the prompt has.",
            lambda: change(change_arm(study(), None, cache="on"), "requests", cached_tokens=7),
        ),
        (
            "cached-untold",
            "The cache is on, and nobody says what it served.",
            lambda: change(change_arm(study(), None, cache="on"), "requests", cached_tokens=None),
        ),
    ),
    *mutants_of(
        "RUN020",
        ("swapped-launches", "The launches of two arms change places.", _swapped_launches),
        (
            "another-version",
            "The worker ran another version than the arm declares.",
            lambda: change_arm(study(), "nanoserve", version="0.2.0"),
        ),
        (
            "request-left-out-everywhere",
            "The request that failed is left out, on every side.",
            lambda: drop_request(lambda _: True),
        ),
        (
            "shorter-than-planned-everywhere",
            "Both sides asked for a token less than the plan records, in one block.",
            _shorter_than_planned,
        ),
        (
            "lengths-of-another-block",
            "Both sides ran the lengths of the next block.",
            lambda: _planned_lengths(lambda lengths: (*lengths[8:], *lengths[:8])),
        ),
        (
            "other-beginnings",
            "The prompts do not begin alike, and the plan says so.",
            lambda: set_plan(study(), workloads=(replace(DAY44, prefix_tokens=2),)),
        ),
        (
            "sampling-everywhere",
            "Both sides sample, and the plan says greedy.",
            lambda: change_arm(study(), None, decoding="sample;temperature=1.0;ignore_eos"),
        ),
        (
            "another-dtype-everywhere",
            "Every worker ran bfloat16 under cells of float32.",
            lambda: change_arm(study(), None, dtype="bfloat16"),
        ),
    ),
    *mutants_of(
        "RUN021",
        (
            "resumed-with-another-library",
            "From block 4 on all workers have another torch.",
            lambda: change_arm(
                study(), None, blocks=[4, 5, 6, 7], libraries="torch=2.14.0;transformers=5.24.0"
            ),
        ),
        (
            "threads-change",
            "One block ran on one thread, on every side.",
            lambda: change_arm(study(), None, blocks=[6], threads=1),
        ),
    ),
)
