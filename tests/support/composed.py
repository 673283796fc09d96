"""Sound studies of two devices, dtypes or commits, and one that tells nothing of its slots."""

from __future__ import annotations

from typing import Any

from nanoserve_bench.plan import Arm
from nanoserve_bench.schema import TrialRow
from support.rebuild import (
    change_arm,
    replace,
    rerun,
    set_plan,
    with_arm,
)
from support.sound import Study, study


def usual(trial: TrialRow, rows: int) -> float:
    return 34.0 + 3 * rows if trial.cell.startswith("nanoserve") else 62.0


def together(first: Study, second: Study) -> Study:
    """Two studies of other devices or dtypes as one: in every block one after the other."""
    plan, other = first.plan, second.plan
    set_plan(
        first,
        devices=tuple(dict.fromkeys((*plan.devices, *other.devices))),
        dtypes=tuple(dict.fromkeys((*plan.dtypes, *other.dtypes))),
        cells=(*plan.cells, *other.cells),
        comparisons=(*plan.comparisons, *other.comparisons),
        orders=tuple((*one, *two) for one, two in zip(plan.orders, other.orders, strict=True)),
    )
    for index, (block, added) in enumerate(zip(first.blocks, second.blocks, strict=True)):
        trials = [
            replace(row, launch=row.launch + 1000, order=row.order + 50) for row in added.trials
        ]
        launches = [replace(row, launch=row.launch + 1000) for row in added.systems]
        tables: dict[str, Any] = {
            table: (*getattr(block, table), *getattr(added, table))
            for table in ("ceilings", "requests", "steps", "prompts", "outputs")
        }
        first.blocks[index] = replace(
            block,
            trials=(*block.trials, *trials),
            systems=(*block.systems, *launches),
            **tables,
        )
    # The same prompts on both, and times of its own.
    return rerun(first, [cell.id for cell in other.cells], step_ms=usual, seed=12)


def two_devices() -> Study:
    """The CPU and a card, in one sweep."""
    return together(study(), study(device="cuda:0"))


def two_revisions() -> Study:
    """The engine at another commit, as an arm of its own beside the engine."""
    arm = Arm(name="nanoserve-next", system="nanoserve", version="0.2.0", revision="abc123")
    return with_arm(
        study(),
        arm,
        kind="revision",
        step_ms=lambda _, rows: 30.0 + 3 * rows,
        kernel_path="panels",
        libraries="nanoserve=0.2.0;torch=2.13.0;transformers=5.24.0",
    )


def without_holds() -> Study:
    """An endpoint that tells when tokens came, and nothing of its slots."""
    clean = study()
    clean.edit(
        "requests",
        lambda row: replace(row, holds_ns=None),
        where=lambda row: row.cell.startswith("nanoserve"),
    )
    clean.edit("steps", lambda _: None)
    return change_arm(clean, "nanoserve", stamps="first_token tokens")
