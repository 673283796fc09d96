"""Judging every mutant and control, and writing down what refused them.

`python -m support.kill_table` (with `bench`, `report` and `tests` on the path; `nox -s kills` does
it) judges all of them again and writes the table that the package carries, and beside the tests
what the rule that a mutant is meant for says of it.
"""

from __future__ import annotations

import csv
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nanoserve_bench.soundness import RULES, Finding, SoundCell, Verdict, judge_path
from nanoserve_bench.soundness.kills import FILE, Attack, KillTable, render
from nanoserve_report import backing
from nanoserve_report.book import BookError
from nanoserve_report.sweeps import Folder
from support.controls import CONTROLS, Control
from support.mutants import MUTANTS, Mutant
from support.mutants.pages import PAGE_MUTANTS, PageMutant
from support.report_studies import diverge, sweep

PATH = Path(__file__).parents[2] / "bench/nanoserve_bench/soundness" / FILE
FINDINGS = Path(__file__).parents[1] / "bench/soundness/findings.csv"
SHOWN = 2
"""Findings of a rule that are written down for each mutant; of the rest, how many there are."""
ORDER = {rule.code: place for place, rule in enumerate(RULES)}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is kept of a verdict: its rows would fill the memory, two hundred times over."""

    ok: bool
    findings: tuple[Finding, ...]
    whole: bool

    @property
    def codes(self) -> tuple[str, ...]:
        """The rules that found something, in their order."""
        return tuple(sorted({finding.rule for finding in self.findings}, key=ORDER.__getitem__))


def verdict_of(item: Mutant | Control) -> Verdict:
    """The verdict over a mutant or a control, written somewhere and thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        return judge_path(item.write(Path(folder) / "run"))


def judge(item: Mutant | Control) -> Judged:
    """What came out of it."""
    verdict = verdict_of(item)
    whole = all(isinstance(cell, SoundCell) for cell in verdict.cells.values())
    return Judged(ok=verdict.ok, findings=verdict.findings, whole=whole)


def refused_folder() -> Folder:
    """A folder of which one comparison and two doublings are refused."""
    study = sweep()
    diverge(study)
    with tempfile.TemporaryDirectory() as folder:
        return Folder(name="refused", verdict=judge_path(study.write(Path(folder) / "run")))


def page_codes(mutant: PageMutant, folder: Folder) -> tuple[str, ...]:
    """The rules for which a page with a leak is not built."""
    with mutant.applied():
        try:
            backing.outcomes(folder)
        except BookError as error:
            return tuple(re.findall(r"\b[A-Z]+\d{3}\b", str(error)))
    return ()


def tabulate(judged: Callable[[Mutant | Control], Judged]) -> KillTable:
    """The table of everything that there is; `judged` gives the verdicts."""
    mutants = [_row(mutant, judged(mutant).codes) for mutant in MUTANTS]
    folder = refused_folder()
    mutants += [_row(mutant, page_codes(mutant, folder)) for mutant in PAGE_MUTANTS]
    mutants.sort(key=lambda attack: ORDER[attack.rule])
    controls = tuple(
        Attack(rule="", name=c.name, story=c.story, refused_by=judged(c).codes) for c in CONTROLS
    )
    return KillTable(mutants=tuple(mutants), controls=controls)


def said(mutant: Mutant, judged: Judged) -> list[tuple[str, ...]]:
    """What the rule that a mutant is meant for says of it: rows of `FINDINGS`."""
    own = [finding for finding in judged.findings if finding.rule == mutant.rule]
    return [
        (mutant.name, f"{number} of {len(own)}", str(finding), finding.evidence)
        for number, finding in enumerate(own[:SHOWN], start=1)
    ]


def _row(mutant: Mutant | PageMutant, found: tuple[str, ...]) -> Attack:
    return Attack(rule=mutant.rule, name=mutant.name, story=mutant.story, refused_by=found)


def main() -> None:
    """Write the table."""
    os.fsync = lambda _: None  # hundreds of folders, none of which has to survive a power cut
    judged = cache(judge)
    table = tabulate(judged)
    PATH.write_text(render(table), encoding="utf-8")
    with FINDINGS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("mutant", "number", "finding", "evidence"))
        for mutant in sorted(MUTANTS, key=lambda mutant: ORDER[mutant.rule]):
            writer.writerows(said(mutant, judged(mutant)))
    missed = [m.name for m in table.mutants if m.rule not in m.refused_by]
    refused = [c.name for c in table.controls if c.refused_by]
    print(f"{len(table.mutants)} mutants and {len(table.controls)} controls: {PATH}")
    if missed or refused:
        sys.exit(f"not refused by the rule meant for them: {missed}; refused controls: {refused}")


if __name__ == "__main__":
    main()
