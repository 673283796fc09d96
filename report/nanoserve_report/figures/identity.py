"""The identity: both factorisations of every cell, ending at the same throughput.

    throughput = batch occupancy  x tokens per slot-second       what the box did
    throughput = system occupancy x tokens per request-second    what the caller got

Each cell has two walks on one log axis. They part at their first step (a queued request is in the
system and in no slot) and meet at the throughput, which is why the wrong reading of the first
step is so easy to miss.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from nanoserve_bench.soundness import SoundCell
from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value, blocks_of
from nanoserve_report.figures.walk import end_mark, two_steps
from nanoserve_report.sweeps import AnyCell, Sweep

COLUMNS = (
    "cell", "arm", "slots", "batch_occupancy_rows", "tokens_per_slot_second",
    "system_occupancy_requests", "tokens_per_request_second", "throughput_tok_per_s",
    "throughput_low", "throughput_high", "hole", "run", "blocks",
)  # fmt: skip


def draw(sweep: Sweep) -> Drawing:
    """Every cell of a sweep, two walks each."""
    cells = sweep.cells
    with style.house_style():
        figure, (axes,) = style.blank(0.8 + 0.62 * max(1, len(cells)))
        labels = [wording.row_label(cell.cell) for cell in cells]
        style.row_axis(axes, labels or [""])
        low, high = _limits(sweep.sound_cells)
        style.log_axis(axes, low, high, "rows, requests, or tokens per second (log)")
        for y, cell in enumerate(cells):
            if isinstance(cell, SoundCell):
                _cell(axes, y, cell)
            else:
                style.hole(axes, y, 0.8, f"refused: {wording.codes(cell.findings)}")
        style.legend(
            figure,
            (
                ("batch occupancy", style.BATCH),
                ("tokens per slot-second", style.SLOT),
                ("system occupancy", style.SYSTEM),
                ("tokens per request-second", style.REQUEST),
            ),
            product="throughput",
        )
    return Drawing(
        name="identity",
        title="One throughput, two factorisations",
        alt=_alt(sweep),
        caption=(
            "For each cell, upper walk: rows held times what one row produced. Lower walk: "
            "requests in the system times what one request got. Both end at the throughput, "
            "exactly, in every trial; drawn are the means over the blocks."
        ),
        columns=COLUMNS,
        rows=tuple((*_data(cell), sweep.name, blocks_of(cell)) for cell in cells)
        or ((*(None,) * 10, "no cell", sweep.name, None),),
        figure=figure,
    )


def _limits(cells: tuple[SoundCell, ...]) -> tuple[float, float]:
    values = [1.0]
    for cell in cells:
        for estimate in (cell.throughput, cell.batch_occupancy, cell.system_occupancy):
            values += [] if estimate is None else [estimate.point]
    return min(values) / 1.35, max(values) * 4.0


def _cell(axes: Axes, y: int, cell: SoundCell) -> None:
    axes.axhspan(y - 0.45, y + 0.45, color=style.GRID.sentinel, alpha=0.25, linewidth=0, zorder=0)
    batch, slot = cell.batch_occupancy, cell.tokens_per_slot_second
    if batch is not None and slot is not None:
        pair = (batch.point, slot.point)
        two_steps(axes, y - 0.24, pair, (style.BATCH, style.SLOT), lane=0.08, width=4.0)
    system, request = cell.system_occupancy, cell.tokens_per_request_second
    pair = (system.point, request.point)
    two_steps(axes, y + 0.24, pair, (style.SYSTEM, style.REQUEST), lane=0.08, width=4.0)
    throughput = cell.throughput
    style.interval(axes, y, throughput.low, throughput.high, style.INK)
    end_mark(axes, throughput.point, y, style.INK)
    axes.annotate(
        f"{numbers.shown(throughput).point} tok/s",
        (max(throughput.point, system.point), y), xytext=(7, 0), textcoords="offset points",
        va="center", fontsize=style.SMALL_PT,
    )  # fmt: skip


def _alt(sweep: Sweep) -> str:
    parts = []
    for cell in sweep.cells:
        who = wording.who(cell.cell)
        if isinstance(cell, SoundCell):
            parts.append(f"{who}: {wording.identity_words(cell)}")
        else:
            parts.append(f"{who}: refused ({wording.codes(cell.findings)}), drawn as a hole")
    return f"Throughput factorised in two ways. {'; '.join(parts)}."


def _data(cell: AnyCell) -> tuple[Value, ...]:
    names = (cell.cell.id, cell.cell.arm, cell.cell.slots)
    if not isinstance(cell, SoundCell):
        return (*names, *(None,) * 7, wording.codes(cell.findings))
    estimates = (
        cell.batch_occupancy,
        cell.tokens_per_slot_second,
        cell.system_occupancy,
        cell.tokens_per_request_second,
        cell.throughput,
    )
    points = [None if estimate is None else estimate.point for estimate in estimates]
    return (*names, *points, cell.throughput.low, cell.throughput.high, None)
