"""Whether the summary says what the rows say."""

from __future__ import annotations

import dataclasses
import math

from nanoserve_bench.schema import SweepRow
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rule import Inspection, StudyRule
from nanoserve_bench.summary import summarise_figures

TOLERANCE = 1e-9
"""Relative; two platforms may round a logarithm differently."""


def _summary(evidence: Evidence, inspection: Inspection) -> None:
    figures = {
        cell: [trial.figures for trial in trials.values()]
        for cell, trials in evidence.by_cell.items()
    }
    written = {row.cell: row for row in evidence.results.sweep}
    for expected in summarise_figures(evidence.plan.cells, figures):
        inspection.saw()
        row = written.get(expected.cell)
        if row is None:
            inspection.refuse_cell(None, expected.cell, expected.arm, "sweep.csv has no row for it")
            continue
        for field in dataclasses.fields(SweepRow):
            said, computed = getattr(row, field.name), getattr(expected, field.name)
            if not _equal(said, computed):
                line = evidence.results.line_of(row)
                inspection.refuse_cell(
                    None,
                    expected.cell,
                    expected.arm,
                    f"sweep.csv (row {line}) says another {field.name} than the rows give"
                    + _both(said, computed),
                )


def _both(said: object, computed: object) -> str:
    """Counts and names of both; a figure that is refused is not repeated."""
    if isinstance(said, float) or isinstance(computed, float):
        return ""
    return f": {said}, and not {computed}"


def _equal(said: object, computed: object) -> bool:
    if isinstance(said, float) and isinstance(computed, float):
        return math.isclose(said, computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return said == computed


SUMMARY = StudyRule(
    code="REP012",
    name="summary-matches-rows",
    sentence="Every value of sweep.csv is what the other files give.",
    rationale="The summary is what people open, so it must not say anything that the rows do not.",
    remedy="Let the sweep write the summary again.",
    check=_summary,
)
