"""Occupancy is not batch size: the rows that were held, and the requests that only waited.

System occupancy is batch occupancy plus the mean number of requests in the queue. Reading the sum
as a batch credits a scheduler with having a queue: at one slot it can read well above 1.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from nanoserve_bench.soundness import SoundCell
from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value, blocks_of
from nanoserve_report.sweeps import AnyCell, Sweep
from nanoserve_report.views.common import NO_HOLDS

COLUMNS = (
    "cell", "arm", "slots", "batch_occupancy_rows", "waiting_requests",
    "system_occupancy_requests", "hole", "run", "blocks",
)  # fmt: skip


def draw(sweep: Sweep) -> Drawing:
    """Every cell of a sweep, one stacked bar each."""
    cells = sweep.cells
    with style.house_style():
        figure, (axes,) = style.blank(0.8 + 0.42 * max(1, len(cells)))
        labels = [wording.row_label(cell.cell) for cell in cells]
        style.row_axis(axes, labels or [""])
        top = max((cell.system_occupancy.point for cell in sweep.sound_cells), default=1.0)
        axes.set_xlim(0, top * 1.6)
        axes.grid(axis="x", color=style.GRID.sentinel, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.set_xlabel("requests, mean over the run")
        for y, cell in enumerate(cells):
            if not isinstance(cell, SoundCell):
                style.hole(axes, y, 0.7, f"refused: {wording.codes(cell.findings)}")
            elif cell.batch_occupancy is None:
                style.hole(axes, y, 0.7, NO_HOLDS)
            else:
                _bar(axes, y, cell.batch_occupancy.point, cell.system_occupancy.point)
        style.legend(
            figure,
            (("in a slot: the batch", style.BATCH), ("in the system, in no slot", style.WAITING)),
        )
    return Drawing(
        name="occupancy",
        title="Occupancy is not batch size",
        alt=_alt(sweep),
        caption=(
            "Dark: requests that held a slot, on average; this is the batch. Pale: requests "
            "that were in the system and in no slot. The whole bar is the system occupancy, which "
            "says nothing about batching."
        ),
        columns=COLUMNS,
        rows=tuple((*_data(cell), sweep.name, blocks_of(cell)) for cell in cells)
        or ((*(None,) * 6, "no cell", sweep.name, None),),
        figure=figure,
    )


def _bar(axes: Axes, y: int, held: float, system: float) -> None:
    axes.barh([y], [held], height=0.56, color=style.BATCH.sentinel, zorder=3)
    axes.barh(
        [y],
        [max(system - held, 0.0)],
        left=[held],
        height=0.56,
        facecolor=style.WAITING.sentinel,
        edgecolor=style.HOLE.sentinel,
        linewidth=0.7,
        zorder=3,
    )
    axes.annotate(
        f"{numbers.significant(held)} in slots\n{numbers.significant(system)} in the system",
        (max(system, held), y), xytext=(5, 0), textcoords="offset points", va="center",
        fontsize=style.SMALL_PT, linespacing=1.1,
    )  # fmt: skip


def _alt(sweep: Sweep) -> str:
    parts = []
    for cell in sweep.cells:
        who = wording.who(cell.cell)
        if not isinstance(cell, SoundCell):
            parts.append(f"{who}: refused ({wording.codes(cell.findings)}), drawn as a hole")
        elif cell.batch_occupancy is None:
            parts.append(f"{who}: {NO_HOLDS}, drawn as a hole")
        else:
            parts.append(
                f"{who}: {numbers.significant(cell.batch_occupancy.point)} rows held, "
                f"{numbers.significant(cell.system_occupancy.point)} requests in the system"
            )
    return f"Batch occupancy against system occupancy. {'; '.join(parts)}."


def _data(cell: AnyCell) -> tuple[Value, ...]:
    names = (cell.cell.id, cell.cell.arm, cell.cell.slots)
    if not isinstance(cell, SoundCell):
        return (*names, None, None, None, wording.codes(cell.findings))
    batch, system = cell.batch_occupancy, cell.system_occupancy
    if batch is None:
        return (*names, None, None, system.point, NO_HOLDS)
    return (*names, batch.point, system.point - batch.point, system.point, None)
