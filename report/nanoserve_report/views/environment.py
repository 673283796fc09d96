"""What every run ran on, at a glance: versions run by run, then each machine's facts, once.

A fact that is the same in all runs of a machine is stated once; one that is not, once a value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nanoserve_bench.plan import Fact
from nanoserve_bench.results import ResultSet
from nanoserve_report import numbers
from nanoserve_report.links import Linker
from nanoserve_report.setting import version_of
from nanoserve_report.sweeps import Folder
from nanoserve_report.tables import Cell, Column, Table, Text, text_columns
from nanoserve_report.views import common
from nanoserve_report.views import folder as folder_tables

SIDES = "sides"
"""Anchor of what differs between the sides, on the page of a run."""
MOST_RUNS = 4
LIBRARIES = ("python", "version_torch", "version_transformers")
"""Facts that everybody asks for, by the names that the manifest has."""


def versions(folders: Sequence[Folder], linker: Linker) -> Table:
    """What ran, one row a run, newest first; a run's name leads to what differs between its sides.

    Args:
        folders: Readable ones.
        linker: Of the page.
    """
    return Table(
        caption="What ran, run by run",
        columns=(
            *text_columns("run", "machine"),
            Column(label="threads"),
            *text_columns("systems", *(name.removeprefix("version_") for name in LIBRARIES)),
            *text_columns("revision"),
        ),
        rows=tuple(
            _row(folder, results, linker)
            for folder in folders
            if (results := folder.results) is not None
        ),
        wrapped=True,
    )


def _row(folder: Folder, results: ResultSet, linker: Linker) -> tuple[Cell, ...]:
    known = {fact.name: fact.value for fact in results.manifest.facts}
    plan = results.plan
    systems = dict.fromkeys(version_of(arm) for arm in plan.arms)
    names = sorted({row.device_name for row in results.systems if row.device_name})
    return (
        Text(text=folder.name, href=linker.to(common.run_page(folder.name), SIDES)),
        common.optional(", ".join(names)),
        common.optional(known.get("threads")),
        Text(text=", ".join(systems)),
        *(common.optional(known.get(name)) for name in LIBRARIES),
        common.optional(plan.revision and plan.revision[:7]),
    )


def machines(folders: Sequence[Folder]) -> list[tuple[str, Table, Table | None]]:
    """By fingerprint: the facts that all its runs share, and those that differ from run to run."""
    grouped: dict[str, list[Folder]] = defaultdict(list)
    for folder in folders:
        if folder.results is not None:
            grouped[folder.results.manifest.machine].append(folder)
    return [(name, *_of_machine(mine)) for name, mine in grouped.items()]


def _of_machine(folders: Sequence[Folder]) -> tuple[Table, Table | None]:
    runs_of: dict[Fact, list[str]] = defaultdict(list)
    for folder in folders:
        if folder.results is not None:
            for fact in folder.results.manifest.facts:
                runs_of[fact].append(folder.name)
    shared = tuple(fact for fact, runs in runs_of.items() if len(runs) == len(folders))
    # By name, so that the values of one fact stand below each other.
    order = {fact.name: place for place, fact in enumerate(runs_of)}
    differing = sorted(
        (item for item in runs_of.items() if len(item[1]) < len(folders)),
        key=lambda item: order[item[0].name],
    )
    if not differing:
        return folder_tables.facts(shared), None
    return folder_tables.facts(shared), Table(
        caption="What was not the same in all runs of this machine",
        columns=text_columns("fact", "value", "unit", "runs"),
        rows=tuple(
            (Text(text=fact.name), *folder_tables.fact(fact), Text(text=_runs(runs)))
            for fact, runs in differing
        ),
        sortable=False,
        wrapped=True,
    )


def _runs(names: Sequence[str]) -> str:
    if len(names) <= MOST_RUNS:
        return ", ".join(names)
    return f"{numbers.count(len(names), 'run')}, the newest {names[0]}"
