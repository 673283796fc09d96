"""How a results folder is measured again: its revision, and its command, recorded or derived."""

from __future__ import annotations

from dataclasses import dataclass

from nanoserve_bench.plan import Manifest, Plan
from nanoserve_bench.rerun import derived
from nanoserve_report import numbers
from nanoserve_report.sweeps import Folder

SHORT = 12
RECORDED = "The command line is the one that its first start recorded."
DERIVED = (
    "The command line was not recorded in this folder. This one is derived from its plan: it plans "
    "the same cells, blocks and orders."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rerun:
    """What measures a folder again.

    Attributes:
        commands: Lines for a shell, in a checkout of the repository.
        known: Where the command line is known from.
        notes: What has to be known beside it.
    """

    commands: tuple[str, ...]
    known: str
    notes: tuple[str, ...]


def of(folder: Folder) -> Rerun | None:
    """What measures a folder again; None where its plan cannot be read."""
    plan, results = folder.plan, folder.results
    if plan is None or results is None:
        return None
    recorded = list(dict.fromkeys(start.command for start in results.manifest.ledger))
    first = recorded[0] if recorded else ""
    found = derived(plan, threads(results.manifest))
    return Rerun(
        commands=(*checkout(plan.revision), first or found.command),
        known=RECORDED if first else DERIVED,
        notes=(*_notes(plan, recorded), *(() if first else found.untold)),
    )


def checkout(revision: str | None) -> tuple[str, ...]:
    """The line that brings a checkout to a revision; none where it is not known."""
    return () if revision is None else (f"git checkout {revision[:SHORT]}",)


def _notes(plan: Plan, recorded: list[str]) -> list[str]:
    notes = []
    if plan.revision is None:
        notes.append("the revision was not recorded; the manifest has a digest of the sources")
    elif plan.dirty:
        notes.append("the code had changes that were not committed, which nobody can check out")
    if len(recorded) > 1:
        notes.append(
            f"its {numbers.count(len(recorded), 'different command line')} are in the ledger below"
        )
    return notes


def threads(manifest: Manifest) -> int | None:
    """The compute threads of the workers, which the machine's facts record."""
    found = next((fact.value for fact in manifest.facts if fact.name == "threads"), None)
    return found if isinstance(found, int) else None
