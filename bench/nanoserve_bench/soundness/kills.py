"""The kill table: what the rules were attacked with, and which of them refused it.

A *mutant* is a sound results folder with one thing broken and every digest right again; a *control*
is a sound one that a hasty rule might refuse. Both live in the project's tests, which judge each of
them and hold this table to what they find. It is part of the package, so that whoever judges a
folder can see what the judge was tried on.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

FILE = "kill_table.csv"
COLUMNS = ("kind", "rule", "name", "story", "refused_by")
MUTANT, CONTROL = "mutant", "control"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """A row of the table.

    Attributes:
        rule: Code of the rule that is meant for it; empty for a control.
        name: Unique in the table.
        story: What was broken, or what is unusual, in one sentence.
        refused_by: Codes of all rules that refused it, in their order; empty for a control.
    """

    rule: str
    name: str
    story: str
    refused_by: tuple[str, ...]

    @property
    def also(self) -> tuple[str, ...]:
        """The rules that refused it besides the one meant for it: what follows from the fault."""
        return tuple(code for code in self.refused_by if code != self.rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class KillTable:
    """All of them, in the order of the rules; controls as they are tried."""

    mutants: tuple[Attack, ...]
    controls: tuple[Attack, ...]

    def of(self, rule: str) -> tuple[Attack, ...]:
        """The mutants of one rule."""
        return tuple(mutant for mutant in self.mutants if mutant.rule == rule)


@cache
def kill_table() -> KillTable:
    """The table as it was committed."""
    return parse((files(__package__) / FILE).read_text(encoding="utf-8"))


def parse(text: str) -> KillTable:
    """Read a table.

    Raises:
        ValueError: It is not one; the message names the line.
    """
    header, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if tuple(header) != COLUMNS:
        raise ValueError(f"{FILE}, line 1: the columns are {header}, and not {list(COLUMNS)}")
    found: dict[str, list[Attack]] = {MUTANT: [], CONTROL: []}
    for line, row in enumerate(rows, start=2):
        if len(row) != len(COLUMNS) or row[0] not in found:
            raise ValueError(f"{FILE}, line {line}: {row} is neither a mutant nor a control")
        kind, rule, name, story, refused_by = row
        attack = Attack(rule=rule, name=name, story=story, refused_by=tuple(refused_by.split()))
        found[kind].append(attack)
    return KillTable(mutants=tuple(found[MUTANT]), controls=tuple(found[CONTROL]))


def render(table: KillTable) -> str:
    """Write a table."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    rows: Sequence[tuple[str, Attack]] = [
        *((MUTANT, attack) for attack in table.mutants),
        *((CONTROL, attack) for attack in table.controls),
    ]
    for kind, attack in rows:
        writer.writerow((kind, attack.rule, attack.name, attack.story, " ".join(attack.refused_by)))
    return out.getvalue()
