"""Retractions: published folders that a newer rule refuses, and that nobody can measure again.

A plan acknowledges refusals before its first trial and never afterwards. When a rule is added
later, a folder that was sound may become refused, and the check would stay red for ever. So a line
in `retracted.csv`, beside the folders, takes the whole folder back: its page stays where it was
linked from, stamped with the rule, and every number of it is gone. It buys no number.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nanoserve_bench.errors import BenchError

FILE = "retracted.csv"
COLUMNS = ("run", "rule", "reason")


class RetractionError(BenchError):
    """A list of retractions that says something wrong; the message has every line of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retraction:
    """A folder that was taken back: by which rule, and why it stays where it is."""

    run: str
    rule: str
    reason: str


def read(root: Path, found: Mapping[str, frozenset[str]]) -> Mapping[str, Retraction]:
    """The retractions of a results root, by folder.

    Args:
        root: The results root.
        found: The rules that refuse something, for every folder of the root.

    Raises:
        RetractionError: With every line that names no folder, a rule that refuses nothing there,
            no reason, or a folder a second time; or with what is wrong with the head.
    """
    path = root / FILE
    if not path.is_file():
        return {}
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RetractionError(f"{path}: is not a CSV file in UTF-8: {error}") from error
    if not rows or tuple(rows[0]) != COLUMNS:
        raise RetractionError(f"{path}, row 1: the columns have to be {', '.join(COLUMNS)}")
    entries: dict[str, Retraction] = {}
    faults = []
    for number, row in enumerate(rows[1:], start=2):
        flaws = list(_flaws(row, found, entries))
        faults += [f"{path}, row {number}: {flaw}" for flaw in flaws]
        if not flaws:
            run, rule, reason = row
            entries[run] = Retraction(run=run, rule=rule, reason=reason.strip())
    if faults:
        raise RetractionError("\n".join(faults))
    return entries


def _flaws(
    row: list[str], found: Mapping[str, frozenset[str]], entries: Mapping[str, Retraction]
) -> Iterator[str]:
    if len(row) != len(COLUMNS):
        yield f"has {len(row)} cells for {len(COLUMNS)} columns"
        return
    run, rule, reason = row
    if run not in found:
        yield f"column run: {run!r} is no folder here; take the line out"
    elif rule not in found[run]:
        yield (
            f"column rule: {rule!r} refuses nothing in {run}"
            f" (found: {', '.join(sorted(found[run])) or 'nothing'}); take the line out or name"
            " the rule that does"
        )
    if run in entries:
        yield f"column run: {run!r} is retracted a second time"
    if not reason.strip():
        yield "column reason: is empty; say why the folder is kept"
