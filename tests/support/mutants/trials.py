"""Mutants of the rules about a trial among others: prompts, ceilings, launches (RUN015 to 021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nanoserve_bench.plan import RequestLengths, WorkloadPlan
from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow, token_digest
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
    measured,
    rebuild,
    replace,
    set_plan,
    shifted_request,
)
from support.sound import DAY44, Study, ragged_plan, study

Lengths = tuple[RequestLengths, ...]


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


def _one_prompt_twice() -> Study:
    broken = study()
    first = broken.blocks[3].prompts[0]
    return prompts(broken, lambda number, ids: first if number == 7 else ids)


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


def _warmed_up_with_the_prompts() -> Study:
    """The warm-ups of every block run what is measured after them."""
    broken = study()
    for index, block in enumerate(broken.blocks):
        measured_prompts, warm = block.prompts[:8], block.prompts[8:]
        swapped = {
            token_digest(old): token_digest(new)
            for old, new in zip(warm, measured_prompts, strict=True)
        }
        broken.edit(
            "requests",
            lambda row, swapped=swapped: replace(row, prompt_sha256=swapped[row.prompt_sha256]),
            where=lambda row: row.warmup,
            blocks=[index],
        )
    return broken


def _touched_up_copy() -> Study:
    """A copied trial of which one request was made a nanosecond longer."""
    broken = _copied_trial(1, 4, BASE)
    broken.edit(
        "requests",
        lambda row: replace(
            row,
            finished_ns=row.finished_ns + 1,
            holds_ns=(Hold(row.holds_ns[0].acquired_ns, row.holds_ns[0].released_ns + 1),),
        ),
        where=measured(BASE, "r3"),
        blocks=[4],
    )
    return broken


def _copied_from_the_baseline() -> Study:
    """In block 6 the A/A arm is the baseline's trial, a second later."""
    broken = study()
    originals = [r for r in broken.blocks[6].requests if measured(BASE)(r)]

    def make(
        trial: TrialRow, _requests: list[RequestRow], steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        return [replace(shifted_request(r, 10**9), cell=trial.cell) for r in originals], steps

    return rebuild(broken, make, cells=[AGAIN], blocks=[6])


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "RUN015",
        (
            "one-prompt-eight-times",
            "All requests of a block have the same prompt, on every side.",
            _one_prompt,
        ),
        (
            "one-prompt-twice",
            "The last request of a block has the prompt of the first, on every side.",
            _one_prompt_twice,
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
        (
            "warmed-up-with-the-measured-prompts",
            "Every worker has answered the prompts of its block once, in the warm-up.",
            _warmed_up_with_the_prompts,
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
        (
            "copied-and-touched-up",
            "A copied trial has one request that takes a nanosecond longer.",
            _touched_up_copy,
        ),
        (
            "copied-from-the-baseline",
            "The A/A arm's trial of one block is the baseline's, a second later.",
            _copied_from_the_baseline,
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
        (
            "bytes-understated",
            "The engine says that a step reads a megabyte of the tensors that others read whole.",
            lambda: _bytes(10**6),
        ),
        (
            "remembered-answers",
            "The engine's steps take a nanosecond: 1e14 tok/s.",
            lambda: study(step_ms=lambda s, _: 62.0 if s != "nanoserve" else 1e-6),
        ),
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
        (
            "cached-untold-as-declared",
            "The cache is declared to be on, and nobody says what it served.",
            lambda: change(
                change_arm(study(), None, cache="declared:on"), "requests", cached_tokens=None
            ),
        ),
        (
            "cache-in-a-state-of-its-own",
            "The prefix cache is called lukewarm, on every side.",
            lambda: change_arm(study(), None, cache="lukewarm"),
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
