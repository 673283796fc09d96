"""The table of the ladder: the ratio against the best baseline as wide as against the weakest."""

from __future__ import annotations

from nanoserve_bench.soundness import SoundComparison
from nanoserve_report.ladder import Rung, not_counted, rungs
from nanoserve_report.links import Linker
from nanoserve_report.sweeps import Sweep
from nanoserve_report.tables import Cell, Column, Table, Text
from nanoserve_report.views import common


def table(sweep: Sweep, linker: Linker) -> Table:
    """One row per candidate with several baselines, as in `ladder.rungs`."""
    return Table(
        caption="Against the best baseline, and against the weakest",
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots"),
            Column(label="best baseline", numeric=False),
            Column(label="ratio", unit="over the best"),
            Column(label="verdict", unit="against the best", numeric=False),
            Column(label="weakest baseline", numeric=False),
            Column(label="ratio", unit="over the weakest"),
            Column(label="verdict", unit="against the weakest", numeric=False),
            Column(label="not counted", numeric=False),
        ),
        rows=tuple(_row(sweep, rung, linker) for rung in rungs(sweep)),
    )


def _row(sweep: Sweep, rung: Rung, linker: Linker) -> tuple[Cell, ...]:
    head = (Text(text=rung.candidate.arm), common.whole(rung.candidate.slots))
    best, weakest = rung.against_best, rung.against_weakest
    if best is None or weakest is None:
        findings = [finding for pair in rung.refused for finding in pair.findings]
        return (*head, *(common.refused(findings, sweep.name, linker),) * 7)
    return (*head, *_side(best), *_side(weakest), Text(text=not_counted(rung)))


def _side(pair: SoundComparison) -> tuple[Cell, ...]:
    return (
        Text(text=common.name_of(pair.baseline)),
        common.ratio(pair.speedup, ""),
        common.verdict(pair.verdict),
    )
