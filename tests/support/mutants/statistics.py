"""Mutants of the rules about the study as an experiment (STAT001 to STAT007)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support.composed import two_devices
from support.mutants.base import (
    Mutant,
    ledger,
    mutants_of,
    replaced,
    stopping,
)
from support.rebuild import (
    AGAIN,
    BASE,
    change,
    engine,
    manifest_of,
    rebuild,
    replace,
    rerun,
    reseal,
    set_plan,
    shifted_request,
)
from support.sound import MS, Study, study


def _ns(row: RequestRow, **values: Any) -> RequestRow:
    new: RequestRow = replace(row, **values)
    return new


def _always_first() -> Study:
    """The baseline runs first in every block, as planned."""
    broken = study()

    def reorder(_: int, trials: list[TrialRow]) -> list[TrialRow]:
        warm = [trial for trial in trials if trial.warmup]
        rest = [trial for trial in trials if not trial.warmup]
        return warm + sorted(rest, key=lambda trial: trial.cell != BASE)

    rebuild(broken, lambda _, rows, log: (rows, log), cells=[], reorder=reorder)
    orders = tuple(tuple(sorted(o, key=lambda cell: cell != BASE)) for o in broken.plan.orders)
    return set_plan(broken, orders=orders)


def _other_order() -> Study:
    broken = study()
    orders = list(broken.plan.orders)
    orders[3] = (*orders[3][1:], orders[3][0])
    return set_plan(broken, orders=tuple(orders))


def _at_once() -> Study:
    """Two systems run at the same time."""
    broken = study()
    for index, block in enumerate(broken.blocks):
        trials = sorted(block.trials, key=lambda trial: trial.order)
        trials[-1] = replace(trials[-1], started_ns=trials[-2].started_ns + MS)
        broken.blocks[index] = replace(block, trials=tuple(trials))
    return broken


def _slow_start(factor: float) -> Study:
    return rerun(
        study(),
        [engine(4)],
        step_ms=lambda trial, rows: (34.0 + 3 * rows) * (factor if trial.block == 0 else 1),
    )


def _slow_first_request() -> Study:
    """Every trial of the baselines has a first request that takes twice as long."""
    rng = random.Random(3)

    def make(
        _trial: TrialRow, requests: list[RequestRow], steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        first, *rest = requests
        (hold,) = first.holds_ns or ()
        extra = round((hold.released_ns - hold.acquired_ns) * (1 + 0.02 * rng.random()))
        late = shifted_request(first, extra)
        grown = _ns(
            late,
            arrival_ns=first.arrival_ns,
            submitted_ns=first.submitted_ns,
            holds_ns=(Hold(hold.acquired_ns, hold.released_ns + extra),),
        )
        return [grown, *(shifted_request(row, extra) for row in rest)], steps

    return rebuild(study(), make, cells=[BASE, AGAIN])


def _without_self() -> Study:
    broken = study()
    rivals = tuple(pair for pair in broken.plan.comparisons if pair.kind != "self")
    return set_plan(broken, comparisons=rivals)


def _biased_self() -> Study:
    return rerun(study(), [AGAIN], step_ms=lambda _trial, _rows: 62.0 * 1.07)


def _self_on_another_device() -> Study:
    """Two devices, of which one has no A/A pair of its own."""
    broken = two_devices()
    kept = tuple(
        pair for pair in broken.plan.comparisons if pair.kind != "self" or "cpu" in pair.candidate
    )
    return set_plan(broken, comparisons=kept)


def _relabelled_outcomes(path: Path, *outcomes: str) -> Path:
    ledger = manifest_of(path).ledger
    return reseal(
        path,
        ledger=tuple(replace(s, outcome=o) for s, o in zip(ledger, outcomes, strict=True)),
    )


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "STAT001",
        ("one-block", "A study of one block.", lambda: study(blocks=1)),
        ("four-blocks", "A study of four blocks, as planned.", lambda: study(blocks=4)),
        (
            "fewer-than-promised",
            "Eight blocks were promised and six are there.",
            lambda: stopping(8, 8, there=6),
        ),
    ),
    *mutants_of(
        "STAT002",
        ("one-side-always-first", "The baseline runs first in every block.", _always_first),
        ("not-the-planned-order", "Block 3 ran in another order.", _other_order),
        ("two-at-once", "The last two systems of each block ran together.", _at_once),
    ),
    *mutants_of(
        "STAT003",
        (
            "first-cell-30-times-slower",
            "The first block of a cell is 30 times slower.",
            lambda: _slow_start(30.0),
        ),
        (
            "first-block-slower",
            "The first block of a cell is 15 % slower.",
            lambda: _slow_start(1.15),
        ),
        (
            "first-request-slower",
            "The first request of every baseline trial takes twice as long.",
            _slow_first_request,
        ),
    ),
    *mutants_of(
        "STAT004",
        (
            "busy-neighbour",
            "Another process used half a core in one trial.",
            lambda: change(
                study(),
                "trials",
                cell=BASE,
                blocks=[2],
                other_cpu_ns=lambda row: row.wall_ns // 2,
            ),
        ),
        (
            "stolen-time",
            "The hypervisor took a fifth of a core.",
            lambda: change(
                study(),
                "trials",
                cell=engine(4),
                blocks=[2],
                steal_ns=lambda row: row.wall_ns // 5,
            ),
        ),
        (
            "sleeps-inside-requests",
            "The baseline sleeps inside its requests.",
            lambda: change(study(), "trials", cell=BASE, cpu_ns=lambda row: row.wall_ns // 3),
        ),
        (
            "no-reading",
            "Nothing is known of what the machine did.",
            lambda: change(study(), "trials", other_cpu_ns=None, cpu_ns=None),
        ),
    ),
    *mutants_of(
        "STAT005",
        ("no-a-a", "The study has no A/A pair.", _without_self),
        ("a-a-seven-percent-apart", "The same code twice, 7 % apart.", _biased_self),
        (
            "a-a-on-another-device",
            "The only A/A pair of the sweep ran on another device.",
            _self_on_another_device,
        ),
    ),
    *mutants_of(
        "STAT006",
        (
            "resumed-on-another-commit",
            "The sweep was interrupted and went on at another commit.",
            lambda: ledger({}, {"first_block": 4, "revision": "f" * 40}),
        ),
        (
            "resumed-on-another-machine",
            "The sweep went on on another machine.",
            lambda: ledger({}, {"first_block": 4, "machine": "sha256:other"}),
        ),
        (
            "run-at-another-commit-than-planned",
            "The only start ran another commit than the plan's.",
            lambda: ledger({"revision": "f" * 40}),
        ),
        (
            "run-on-a-dirty-tree",
            "The plan was made on a clean tree, and run on a changed one.",
            lambda: ledger({"dirty": True}),
        ),
        (
            "trials-of-before",
            "The trials are older than the only start: the first starts are gone.",
            lambda: ledger({"started_at": "2026-01-01T07:00:00+00:00"}),
        ),
        (
            "starts-out-of-order",
            "The second start is older than the first.",
            lambda: ledger({}, {"first_block": 4, "started_at": "2026-01-01T00:00:00+00:00"}),
        ),
        (
            "best-of-ten",
            "Nine starts ended before a block pleased.",
            lambda: ledger(*[{} for _ in range(10)]),
        ),
        (
            "blocks-thrown-away",
            "The sweep began again at block 0 after four blocks.",
            lambda: ledger({}, {"first_block": 4}, {"first_block": 0}),
        ),
        (
            "completed-twice",
            "A completed sweep was started again.",
            lambda: ledger({}, {"first_block": 8}),
            lambda path: _relabelled_outcomes(path, "completed", "completed"),
        ),
        (
            "still-running",
            "The last start says that it is still running.",
            None,
            lambda path: _relabelled_outcomes(path, "running"),
        ),
    ),
    *mutants_of(
        "STAT007",
        (
            "undisturbed-block-replaced",
            "A block that nothing disturbed was run again.",
            lambda: replaced(disturbed=False),
        ),
        (
            "too-many-reruns",
            "Three blocks were run again, and two are allowed.",
            lambda: replaced(disturbed=True, count=3),
        ),
        (
            "stopped-early",
            "The sweep stopped after 8 of 12 blocks without a target.",
            lambda: stopping(5, 12, there=8),
        ),
        (
            "stopped-before-the-target",
            "The sweep stopped before its intervals were narrow enough.",
            lambda: stopping(5, 12, there=8, target=1e-6),
        ),
        (
            "went-on-beyond-the-end",
            "The sweep ran more blocks than its plan.",
            lambda: stopping(5, 6, there=8),
        ),
    ),
)
