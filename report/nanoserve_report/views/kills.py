"""The tables of what the gate was attacked with, and of what it must accept."""

from __future__ import annotations

from collections.abc import Sequence

from nanoserve_bench.soundness.kills import Attack
from nanoserve_report.links import Linker
from nanoserve_report.tables import Column, Table, Text, text_columns
from nanoserve_report.views import common


def mutants(attacks: Sequence[Attack], linker: Linker, *, caption: str) -> Table:
    """Broken folders and what refused them."""
    return Table(
        caption=caption,
        columns=text_columns("meant for", "mutant", "what was broken", "killed by", "and by"),
        rows=tuple(
            (
                Text(text=attack.rule, href=linker.to(common.rule_page(attack.rule))),
                Text(text=attack.name),
                Text(text=attack.story),
                _killed(attack),
                Text(text=", ".join(attack.also)),
            )
            for attack in attacks
        ),
        prose=True,
    )


def of_rule(attacks: Sequence[Attack]) -> Table:
    """The mutants of one rule, on its own page."""
    return Table(
        caption="Sound folders with one thing broken, and what refuses each",
        columns=text_columns("mutant", "what was broken", "killed by", "and by"),
        rows=tuple(
            (
                Text(text=attack.name),
                Text(text=attack.story),
                _killed(attack),
                Text(text=", ".join(attack.also)),
            )
            for attack in attacks
        ),
        prose=True,
    )


def controls(attacks: Sequence[Attack]) -> Table:
    """Sound folders that a hasty rule might refuse."""
    return Table(
        caption="Clean controls, and what the gate says of each",
        columns=(
            Column(label="control", numeric=False),
            Column(label="what is unusual", numeric=False),
            Column(label="the gate", numeric=False),
        ),
        rows=tuple(
            (
                Text(text=attack.name),
                Text(text=attack.story),
                Text(text=f"refused: {', '.join(attack.refused_by)}", tone="bad")
                if attack.refused_by
                else Text(text="accepted", tone="good"),
            )
            for attack in attacks
        ),
        prose=True,
    )


def _killed(attack: Attack) -> Text:
    """The rule meant for it, if it did refuse."""
    if attack.rule in attack.refused_by:
        return Text(text=attack.rule, tone="good")
    return Text(text="not by it: it survives", tone="bad")
