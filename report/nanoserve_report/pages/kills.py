"""What the gate was attacked with: the proof that it bites, and that it bites nobody else."""

from __future__ import annotations

from nanoserve_bench.soundness import RULES
from nanoserve_bench.soundness.kills import KillTable, kill_table
from nanoserve_report import numbers
from nanoserve_report.book import Book
from nanoserve_report.views import common
from nanoserve_report.views import kills as tables

FAMILIES = {
    "run": "Rules about a run",
    "pair": "Rules about a comparison",
    "statistics": "Rules about the study as an experiment",
    "report": "Rules about the folder and its pages",
}


def write(book: Book) -> None:
    """Add the page."""
    linker = book.linker(common.KILLS)
    table = kill_table()
    families = {rule.code: rule.family for rule in RULES}
    sections = []
    for family, title in FAMILIES.items():
        mine = [mutant for mutant in table.mutants if families.get(mutant.rule) == family]
        caption = f"{title}: {numbers.count(len(mine), 'mutant')}"
        sections.append(
            {
                "anchor": family,
                "title": title,
                "table": tables.mutants(mine, linker, caption=caption),
            }
        )
    book.page(
        common.KILLS,
        "kills.md.jinja",
        linker,
        lead=lead(table),
        sections=sections,
        controls=tables.controls(table.controls),
    )


def lead(table: KillTable) -> str:
    """How many there are and how they came out, counted."""
    killed = sum(mutant.rule in mutant.refused_by for mutant in table.mutants)
    alone = sum(mutant.refused_by == (mutant.rule,) for mutant in table.mutants)
    accepted = sum(not control.refused_by for control in table.controls)
    rules = len({mutant.rule for mutant in table.mutants})
    return (
        f"{numbers.count(len(table.mutants), 'mutant').capitalize()} of "
        f"{numbers.count(rules, 'rule')}: {killed} killed by the rule meant for them, {alone} of "
        f"these by no other. {numbers.count(len(table.controls), 'clean control').capitalize()}: "
        f"{accepted} accepted."
    )
