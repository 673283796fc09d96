"""What a decode step is made of, and which change made it faster: the records of the profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Fact

SCHEMA_VERSION = 1
DOCUMENT = "profile.json"
ONE_READ = "one read"
"""The phase that is no part of a step: a buffer as large as the weights is read after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRow:
    """One phase of one variant's decode step (`profile.csv`).

    Attributes:
        variant: Which way to compute a step.
        rows: Rows of the step.
        context: Tokens that each row attends to, at the middle of what was timed.
        phase: Part of the step: `step` is the whole of it, `model` its forward pass, `one read`
            what memory does meanwhile, and the others add up to the step.
        seconds: Median over the repetitions; None where it could not be had.
        low: Lower quartile.
        high: Upper quartile.
        repetitions: Steps behind it.
        how: How it was told apart, or why it could not be had.
    """

    FILE: ClassVar[str] = "profile.csv"

    variant: str
    rows: int
    context: int
    phase: str
    seconds: float | None
    low: float | None
    high: float | None
    repetitions: int
    how: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """`profile.json`: the rows, and where they were taken.

    Attributes:
        disturbed: What else was using the machine meanwhile, in words.
        command: The command line that took it last; empty where it was not recorded.
    """

    schema: int
    run_id: str
    created_at: str
    revision: str | None
    dirty: bool | None
    sources: str
    model: str
    machine: str
    threads: int
    facts: tuple[Fact, ...]
    disturbed: tuple[str, ...]
    rows: tuple[ProfileRow, ...]
    command: str = ""


def joined(before: Profile, now: Profile) -> Profile:
    """The variants taken before and now, each as it was last taken.

    Raises:
        PlanError: They are not of the same code, model and machine.
    """
    for name in ("sources", "model", "machine", "threads"):
        if getattr(before, name) != getattr(now, name):
            raise PlanError(
                f"the folder holds a profile with other {name}: choose another --run-id"
            )
    taken = {row.variant for row in now.rows}
    kept = tuple(row for row in before.rows if row.variant not in taken)
    noted = tuple(line for line in before.disturbed if line.partition(":")[0] not in taken)
    return replace(now, rows=(*kept, *now.rows), disturbed=(*noted, *now.disturbed))
