"""The share of the physical ceiling: how much of what the device can do a cell made use of.

A decode step reads every weight once and multiplies each with every row. So a cell has two shares,
both of the best that the device was seen to do in the sweep: of its read bandwidth and of its
matrix rate. Few rows meet the first ceiling, many rows the second; a cell far below both is held up
by something else.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoserve_bench.plan import SkippedDevice
from nanoserve_bench.soundness import SoundCell
from nanoserve_bench.statistics import Estimate
from nanoserve_report import numbers, wording
from nanoserve_report.figures import devices, style
from nanoserve_report.figures.drawing import Drawing, Value, blocks_of
from nanoserve_report.study import Section, Study
from nanoserve_report.sweeps import AnyCell, Sweep
from nanoserve_report.views.common import NO_CEILING

COLUMNS = (
    "device", "device_name", "dtype", "workload", "arm", "slots", "read_share", "read_share_low",
    "read_share_high", "matrix_share", "matrix_share_low", "matrix_share_high", "hole", "run",
    "blocks",
)  # fmt: skip
SHAPES = (("o", style.BATCH), ("s", style.SLOT))
"""Marker and colour of the read share and of the matrix share."""
CAPTION = (
    "Each row is a cell. Circle: bytes of weights read per second, as a share of the highest read "
    "bandwidth that was measured on the device. Square: multiplications of the output tokens per "
    "second, as a share of the highest matrix rate. Both are the least that the tokens can have "
    "cost, with 95 % intervals."
)


def draw(sweep: Sweep) -> Drawing:
    """Every cell of a sweep against the ceilings of its device."""
    cells = sweep.cells
    with style.house_style():
        figure, (axes,) = style.blank(0.9 + 0.44 * max(1, len(cells)))
        _panel(axes, sweep, _limit(sweep.sound_cells))
        axes.set_xlabel("share of what the device can do")
        _legend(figure)
    return Drawing(
        name="ceiling",
        title="Share of the physical ceiling",
        alt=f"Shares of the device's read bandwidth and matrix rate. {_words(sweep)}.",
        caption=CAPTION,
        columns=COLUMNS,
        rows=_data(sweep),
        figure=figure,
    )


def draw_devices(study: Study) -> Drawing:
    """One panel per device, each against its own ceilings; devices not measured are holes."""
    sections, holes = devices.panels(study)
    heights = [0.35 + 0.44 * max(1, len(s.lead.cells)) for s in sections] + [0.75] * len(holes)
    top = _limit([cell for section in sections for cell in section.lead.sound_cells])
    with style.house_style():
        figure, axes = style.blank(0.7 + sum(h + 0.3 for h in heights), len(heights), heights)
        for panel, section in zip(axes, sections, strict=False):
            _panel(panel, section.lead, top)
            style.panel_title(panel, devices.place(section))
        for panel, hole in zip(axes[len(sections) :], holes, strict=True):
            style.row_axis(panel, [""])
            style.no_axis(panel)
            style.panel_title(panel, hole.device)
            style.hole(panel, 0, 1.0, wording.wrap(wording.not_measured(hole), 44))
        axes[len(sections) - 1].set_xlabel("share of what each device can do itself")
        _legend(figure)
    return Drawing(
        name="ceilings",
        title="CPU versus card: how much of its own ceiling each device gives",
        alt=_devices_alt(sections, holes),
        caption=f"{CAPTION} Every device is held against its own ceilings, not another's.",
        columns=COLUMNS,
        rows=tuple(row for section in sections for row in _data(section.lead))
        + tuple(
            (hole.device, *(None,) * 11, wording.not_measured(hole), None, None) for hole in holes
        ),
        figure=figure,
    )


def _limit(cells: tuple[SoundCell, ...] | list[SoundCell]) -> float:
    """Right end of the axis; a run may exceed a ceiling that was probed a minute earlier."""
    highs = [share.high for cell in cells for share in _shares(cell) if share is not None]
    return max(1.0, *highs, 0.0) * 1.4


def _shares(cell: SoundCell) -> tuple[Estimate | None, Estimate | None]:
    return cell.read_share, cell.matrix_share


def _share_axis(axes: Axes, top: float) -> None:
    axes.set_xlim(0, top)
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    axes.set_xticks(ticks, [f"{100 * tick:.0f} %" for tick in ticks])
    axes.grid(axis="x", color=style.GRID.sentinel, linewidth=0.7)
    axes.set_axisbelow(True)


def _panel(axes: Axes, sweep: Sweep, top: float) -> None:
    cells = sweep.cells
    labels = [wording.row_label(cell.cell) for cell in cells]
    style.row_axis(axes, labels or [""])
    _share_axis(axes, top)
    style.reference_line(axes, 1.0, "ceiling")
    for y, cell in enumerate(cells):
        if not isinstance(cell, SoundCell):
            style.hole(axes, y, 0.7, f"refused: {wording.codes(cell.findings)}")
        elif cell.read_share is None and cell.matrix_share is None:
            style.hole(axes, y, 0.7, NO_CEILING)
        else:
            _row(axes, y, cell)
    if not cells:
        style.hole(axes, 0, 0.8, "no cell was planned")


def _row(axes: Axes, y: int, cell: SoundCell) -> None:
    right, words = 0.0, []
    for share, (shape, role), lane, name in zip(
        _shares(cell), SHAPES, (-0.16, 0.16), ("read", "multiplied"), strict=True
    ):
        if share is None:
            words.append(f"{name}: {NO_CEILING}")
            continue
        style.interval(axes, y + lane, share.low, share.high, role)
        axes.plot(
            [share.point], [y + lane], marker=shape, markersize=5.5, color=role.sentinel,
            markeredgecolor=style.PAPER.sentinel, markeredgewidth=0.6, linestyle="none", zorder=5,
        )  # fmt: skip
        right = max(right, share.high)
        words.append(f"{numbers.percent(share).point} % {name}")
    axes.annotate(
        "\n".join(words), (right, y), xytext=(6, 0), textcoords="offset points", va="center",
        fontsize=style.SMALL_PT, linespacing=1.15, bbox=style.LABEL_BOX, zorder=4,
    )  # fmt: skip


def _legend(figure: Figure) -> None:
    names = ("read bandwidth", "matrix rate")
    style.shapes(
        figure,
        [(label, shape) for label, (shape, _) in zip(names, SHAPES, strict=True)],
        [role for _, role in SHAPES],
        ncols=2,
    )


def _words(sweep: Sweep) -> str:
    parts = []
    for cell in sweep.cells:
        who = wording.who(cell.cell)
        if not isinstance(cell, SoundCell):
            parts.append(f"{who}: refused ({wording.codes(cell.findings)}), drawn as a hole")
            continue
        known = [
            f"{numbers.percent(share).point} % of the {name}"
            for share, name in zip(_shares(cell), ("read bandwidth", "matrix rate"), strict=True)
            if share is not None
        ]
        parts.append(f"{who}: {' and '.join(known) or NO_CEILING}")
    return "; ".join(parts) or "no cell was planned"


def _devices_alt(sections: tuple[Section, ...], holes: tuple[SkippedDevice, ...]) -> str:
    parts = [f"{devices.place(section)}: {_words(section.lead)}." for section in sections]
    parts += [f"{hole.device}: {wording.not_measured(hole)}." for hole in holes]
    return f"Shares of each device's own ceilings. {' '.join(parts)}"


def _data(sweep: Sweep) -> tuple[tuple[Value, ...], ...]:
    setting = sweep.setting
    names = (setting.device, sweep.device_name, setting.dtype, setting.workload)
    rows = tuple((*names, *_cell_data(cell), sweep.name, blocks_of(cell)) for cell in sweep.cells)
    return rows or ((*names, *(None,) * 8, "no cell was planned", sweep.name, None),)


def _cell_data(cell: AnyCell) -> tuple[Value, ...]:
    place = (cell.cell.arm, cell.cell.slots)
    if not isinstance(cell, SoundCell):
        return (*place, *(None,) * 6, wording.codes(cell.findings))
    values: list[Value] = []
    for share in _shares(cell):
        values += [None] * 3 if share is None else [share.point, share.low, share.high]
    return (*place, *values, None if any(v is not None for v in values) else NO_CEILING)
