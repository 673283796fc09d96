"""Mutants that once got through: what a second look at the gate was tried on."""

from __future__ import annotations

from typing import Any

from nanoserve_bench.plan import AcknowledgedRefusal, Arm
from nanoserve_bench.schema import DivergenceRow
from support.composed import usual
from support.mutants.base import mutants_of, replaced, short_outputs
from support.rebuild import (
    AGAIN,
    ALL_CELLS,
    BASE,
    change,
    change_arm,
    engine,
    measured,
    replace,
    set_plan,
    with_arm,
)
from support.sound import Study, study

ENGINE = engine(4)


def _times_exchanged() -> Study:
    """The stamps of one cell in blocks 2 and 5, each in the other's place."""
    broken = study()
    stamps = ("arrival_ns", "submitted_ns", "holds_ns", "first_token_ns", "finished_ns", "token_ns")
    there = {
        index: {row.request: row for row in broken.blocks[index].requests if measured(BASE)(row)}
        for index in (2, 5)
    }
    for index, other in ((2, 5), (5, 2)):

        def moved(row: Any, other: int = other) -> Any:
            source = there[other][row.request]
            return replace(row, **{name: getattr(source, name) for name in stamps})

        broken.edit("requests", moved, where=measured(BASE), blocks=[index])
        wall = max(row.finished_ns or 0 for row in there[other].values()) - min(
            row.arrival_ns for row in there[other].values()
        )
        change(broken, "trials", cell=BASE, blocks=[index], wall_ns=wall + 2_000_000)
    return broken


def _smoothed(row: Any) -> Any:
    first, last, gaps = row.token_ns[0], row.token_ns[-1], len(row.token_ns) - 1
    return tuple(first + (last - first) * i // gaps for i in range(gaps + 1))


def _named(old: str, new: str) -> Study:
    """A study in which one cell goes by another id."""
    broken = study()
    plan = broken.plan

    def renamed(cell: str) -> str:
        return new if cell == old else cell

    set_plan(
        broken,
        cells=tuple(replace(cell, id=renamed(cell.id)) for cell in plan.cells),
        comparisons=tuple(
            replace(pair, baseline=renamed(pair.baseline), candidate=renamed(pair.candidate))
            for pair in plan.comparisons
        ),
        orders=tuple(tuple(map(renamed, order)) for order in plan.orders),
    )
    for table in ("trials", "requests", "steps"):
        broken.edit(table, lambda row: replace(row, cell=renamed(row.cell)))
    return broken


def _cold(cell: str) -> Study:
    broken = study()
    for table in ("trials", "requests", "steps"):
        broken.edit(table, lambda _: None, where=lambda row: row.warmup and row.cell == cell)
    return broken


def _replaced_for_its_warmup() -> Study:
    kept = replaced(disturbed=False)
    kept.edit(
        "trials",
        lambda row: replace(row, other_cpu_ns=10**10),
        where=lambda row: row.block == 0 and row.warmup and row.cell == BASE,
    )
    return kept


def _acknowledged_blankly() -> Study:
    broken = change_arm(study(), "nanoserve", threads=1)
    pairs = [pair.candidate for pair in broken.plan.comparisons if pair.kind == "rival"]
    blank = tuple(AcknowledgedRefusal(cell=cell, rule="PAIR008", reason=" ") for cell in pairs)
    return set_plan(broken, acknowledged=blank)


def _divergence_of_agreement() -> Study:
    broken = study()
    row = DivergenceRow(
        block=2, cell=ENGINE, reference_cell=BASE, request="r1", position=3, token_id=5,
        reference_token_id=6, text="a", reference_text="b", logit=1.0, reference_logit=1.0,
        top2_margin=0.0, noise_floor=0.1, later_agreement=1.0, kind="near-tie",
    )  # fmt: skip
    broken.blocks[2] = replace(broken.blocks[2], divergences=(row,))
    return broken


def _stops_undeclared() -> Study:
    broken = short_outputs(ALL_CELLS, asked=False)
    set_plan(broken, decoding="greedy")
    change_arm(broken, None, decoding="greedy")
    return change(broken, "requests", finish_reason="stop")


def _one_revision_twice() -> Study:
    arm = Arm(name="nanoserve-next", system="nanoserve", version="0.1.0")
    return with_arm(study(), arm, kind="revision", step_ms=usual)


def _cells_of_another_model() -> Study:
    broken = study()
    return set_plan(broken, cells=tuple(replace(c, model="other") for c in broken.plan.cells))


def _ceiling(**values: float) -> Study:
    broken = study()
    broken.edit("ceilings", lambda row: replace(row, **values), blocks=[3])
    return broken


MUTANTS = (
    *mutants_of(
        "RUN008",
        (
            "stops-undeclared",
            "All outputs stop early, and the decoding declares no EOS.",
            _stops_undeclared,
        ),
    ),
    *mutants_of(
        "RUN014",
        (
            "times-of-another-block",
            "A cell has the stamps of block 5 in block 2, and those of block 2 in block 5.",
            _times_exchanged,
        ),
    ),
    *mutants_of(
        "RUN018",
        ("ceiling-of-nothing", "A block read no byte.", lambda: _ceiling(read_bytes_per_s=0.0)),
        (
            "one-huge-matrix-rate",
            "The matrix rate of one block is a thousand times the others'.",
            lambda: _ceiling(matmul_flop_per_s=150e12),
        ),
    ),
    *mutants_of(
        "RUN020",
        (
            "worker-of-another-commit",
            "The engine's workers ran another commit than the plan's, in all blocks.",
            lambda: change_arm(study(), "nanoserve", revision="f" * 40),
        ),
    ),
    *mutants_of(
        "RUN022",
        (
            "smoothed-tokens",
            "The tokens between the first and the last are stamped at equal gaps.",
            lambda: change(study(), "requests", cell=engine(8), token_ns=_smoothed),
        ),
        (
            "more-discarded-than-rows",
            "A trial discarded more tokens than its step log has rows for.",
            lambda: change(study(), "requests", cell=engine(8), discarded_tokens=1000),
        ),
    ),
    *mutants_of(
        "PAIR005",
        (
            "divergence-of-agreement",
            "A near-tie is recorded where both sides said the same.",
            _divergence_of_agreement,
        ),
    ),
    *mutants_of(
        "PAIR006",
        (
            "digest-not-hex",
            "Both sides name their weights by a digest that is no digest.",
            lambda: change_arm(study(), None, weights="sha256:unknown"),
        ),
    ),
    *mutants_of(
        "PAIR007",
        (
            "precision-of-blanks",
            "Both sides give a blank for their precision.",
            lambda: change_arm(study(), None, matmul_precision=" "),
        ),
    ),
    *mutants_of(
        "PAIR008",
        (
            "no-threads",
            "Both sides ran on 0 threads.",
            lambda: change_arm(study(), None, threads=0),
        ),
    ),
    *mutants_of(
        "PAIR013",
        (
            "library-named-twice",
            "A baseline names two versions of one library, the other side's the last.",
            lambda: change_arm(
                study(),
                "hf-generate",
                libraries="torch=2.0.0;torch=2.13.0;transformers=5.24.0",
            ),
        ),
    ),
    *mutants_of(
        "STAT004",
        (
            "memory-below-zero",
            "A trial's peak of memory is negative.",
            lambda: change(study(), "trials", cell=ENGINE, blocks=[1], peak_memory_bytes=-5),
        ),
    ),
    *mutants_of(
        "STAT007",
        (
            "replaced-for-its-warmup",
            "A block was run again because a warm-up, which counts for nothing, was disturbed.",
            _replaced_for_its_warmup,
        ),
    ),
    *mutants_of(
        "REP010",
        (
            "id-of-other-slots",
            "A cell of 4 slots calls itself one of 16.",
            lambda: _named(ENGINE, engine(16)),
        ),
        (
            "lookalike-id",
            "A cell's id has a Cyrillic letter that looks like the Latin one.",
            lambda: _named(ENGINE, ENGINE.replace("o", "\u043e", 1)),
        ),
        (
            "cells-of-another-model",
            "The cells are of a model that the plan does not name.",
            _cells_of_another_model,
        ),
        (
            "device-in-capitals",
            "The device is CPU, to which no rule about a cpu applies.",
            lambda: study(device="CPU"),
        ),
        (
            "dtype-in-capitals",
            "The dtype is Float32, of which no size is known.",
            lambda: study(dtype="Float32"),
        ),
        ("cold-side", "One cell has no warm-ups, and the others have.", lambda: _cold(AGAIN)),
        (
            "one-revision-twice",
            "Two arms of one commit and setting are called two revisions.",
            _one_revision_twice,
        ),
        (
            "run-id-of-another-place",
            "The run id is a path out of the folder.",
            lambda: set_plan(study(), run_id="../../elsewhere"),
        ),
    ),
    *mutants_of(
        "REP013",
        (
            "acknowledged-with-a-blank",
            "A refusal is acknowledged, and the reason is a space.",
            _acknowledged_blankly,
        ),
    ),
)
