"""The table of a track: what each version states, and what changed since the one before."""

from __future__ import annotations

from collections.abc import Sequence

from nanoserve_bench.statistics import Outcome
from nanoserve_report import numbers
from nanoserve_report.history import DOUBLING, Missing, Quantity, Sound, Track, Version, folder_of
from nanoserve_report.links import Linker
from nanoserve_report.tables import Cell, Column, Hole, Table, Text, text_columns
from nanoserve_report.views import common

FIRST = Hole(reason="the first version here")
MOST_CHANGES = 60
NO_SIDES = Hole(reason="not both versions have a sound figure")


def name_of(quantity: Quantity) -> str:
    """What is followed, in words."""
    if quantity.kind == DOUBLING:
        return f"{quantity.arm}, {quantity.slots} to {2 * quantity.slots} slots"
    return f"{quantity.arm}, {numbers.count(quantity.slots, 'slot')}"


def changes(track: Track, linker: Linker) -> Table:
    """Every quantity in every version, oldest version first."""
    return Table(
        caption="Every version, and the change since the one before it",
        columns=(
            Column(label="quantity", numeric=False),
            Column(label="version", numeric=False),
            Column(label="since", numeric=False),
            Column(label="figure", unit="speedup, or doubling"),
            Column(label="throughput", unit="tok/s, not judged"),
            Column(label="change", unit="times the version before"),
            Column(label="verdict", unit="on the change", numeric=False),
        ),
        rows=tuple(
            _row(track, quantity, index, linker)
            for quantity in track.quantities
            for index in range(len(track.versions))
        ),
    )


Named = tuple[str, str, Track]
"""A track with its name and the address of its part of the page."""


def judged(found: Sequence[Named], linker: Linker) -> Table | None:
    """Every change that was judged faster or slower, the newest first; None where there is none."""
    rows: list[tuple[str, tuple[Cell, ...]]] = []
    for name, anchor, track in found:
        for quantity in track.quantities:
            for index, version in enumerate(track.versions):
                change = track.change(quantity, index)
                if change is None or change.verdict not in {Outcome.FASTER, Outcome.SLOWER}:
                    continue
                row = (
                    Text(text=name_of(quantity)),
                    Text(text=name, href=f"#{anchor}"),
                    Text(text=track.versions[index - 1].label),
                    Text(text=version.label, href=_run(version, linker)),
                    Text(text=version.since.partition("T")[0]),
                    common.ratio(change.ratio, ""),
                    common.verdict(change.verdict),
                )
                rows.append((version.since, row))
    if not rows:
        return None
    rows.sort(key=lambda item: item[0], reverse=True)
    caption = "Changes that left the noise behind, newest first"
    if len(rows) > MOST_CHANGES:
        caption += f": {MOST_CHANGES} of {len(rows)}"
    return Table(
        caption=caption,
        columns=(
            *text_columns("quantity", "measured on", "before", "version", "since"),
            Column(label="change", unit="times the version before"),
            *text_columns("verdict"),
        ),
        rows=tuple(row for _, row in rows[:MOST_CHANGES]),
        wrapped=True,
    )


def _run(version: Version, linker: Linker) -> str:
    return linker.to(common.run_page(folder_of(version).name))


def _row(track: Track, quantity: Quantity, index: int, linker: Linker) -> tuple[Cell, ...]:
    version = track.versions[index]
    head: tuple[Cell, ...] = (
        Text(text=name_of(quantity)),
        Text(text=version.label, href=_run(version, linker)),
        Text(text=version.since.partition("T")[0]),
    )
    found = version.get(quantity)
    if isinstance(found, Missing):
        hole = _hole(found, linker)
        return (*head, hole, hole, hole, hole)
    change = track.change(quantity, index)
    if change is None:
        missing = FIRST if index == 0 else NO_SIDES
        return (*head, *_figures(found), missing, missing)
    return (*head, *_figures(found), common.ratio(change.ratio, ""), common.verdict(change.verdict))


def _figures(found: Sound) -> tuple[Cell, Cell]:
    return common.ratio(found.value, ""), common.quantity(found.throughput, "not stated")


def _hole(found: Missing, linker: Linker) -> Hole:
    return Hole(
        reason=found.reason,
        href=linker.to(common.run_page(found.folder)) if found.folder else "",
    )


def versions(track: Track, linker: Linker) -> Table:
    """The versions of a track with their sweeps."""
    return Table(
        caption="The versions, oldest first",
        columns=(
            Column(label="version", numeric=False),
            Column(label="since", numeric=False),
            Column(label="sweeps"),
            Column(label="shown", numeric=False),
            Column(label="retracted", numeric=False),
        ),
        rows=tuple(_version(version, linker) for version in track.versions),
        sortable=False,
    )


def _version(version: Version, linker: Linker) -> tuple[Cell, ...]:
    folder = folder_of(version)
    codes = sorted({s.folder.retraction.rule for s in version.retracted if s.folder.retraction})
    return (
        Text(text=version.label),
        Text(text=version.since.partition("T")[0]),
        common.whole(len(version.sweeps)),
        Text(text=folder.name, href=linker.to(common.run_page(folder.name))),
        Text(text=", ".join(codes) or "none", tone="bad" if codes else "muted"),
    )
