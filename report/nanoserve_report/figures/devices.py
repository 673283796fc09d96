"""CPU versus card: what one row still produces after each doubling, device by device.

A second factor of 1.0 is a free ride (the doubling flows through undiluted), 0.5 is the line where
a full doubling of the batch buys nothing. A device that was looked for and not measured is a
hatched panel with its reason, never a number.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from nanoserve_bench.plan import SkippedDevice
from nanoserve_bench.soundness import SoundMarginal
from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value
from nanoserve_report.study import Section, Study
from nanoserve_report.views.common import NO_HOLDS

COLUMNS = (
    "device", "device_name", "dtype", "workload", "arm", "slots_from", "slots_to", "slot_ratio",
    "slot_ratio_low", "slot_ratio_high", "hole", "run", "blocks",
)  # fmt: skip
NEVER_LOOKED = SkippedDevice(device="cuda", reason="no sweep has looked for one")


def panels(study: Study) -> tuple[tuple[Section, ...], tuple[SkippedDevice, ...]]:
    """One section per measured device and dtype, and the devices that are holes.

    Where no accelerator was measured and none was recorded as skipped, the card is a hole all the
    same: its absence is the point of the figure.
    """
    sections = tuple(
        next((s for s in page.sections if s.lead.sound_marginals), page.sections[0])
        for page in study.devices
    )
    holes = study.skipped
    cards = [s for s in sections if s.setting.device != "cpu"]
    if not cards and not holes:
        holes = (NEVER_LOOKED,)
    return sections, holes


def place(section: Section) -> str:
    """The device of a panel, by both its names."""
    setting = section.setting
    return f"{setting.device}, {setting.dtype}: {section.lead.device_name}"


def draw(study: Study) -> Drawing:
    """One panel per device, holes included."""
    sections, holes = panels(study)
    heights = [_height(section) for section in sections] + [0.75] * len(holes)
    with style.house_style():
        figure, axes = style.blank(0.5 + sum(h + 0.3 for h in heights), len(heights), heights)
        low, high = _limits(sections)
        for panel, section in zip(axes, sections, strict=False):
            _measured(panel, section, low, high)
        for panel, hole in zip(axes[len(sections) :], holes, strict=True):
            _hole(panel, hole, low, high)
        axes[len(sections) - 1].set_xlabel(
            "per-slot-second after a doubling, times before it (log)"
        )
    return Drawing(
        name="devices",
        title="CPU versus card: what is left of one row after each doubling",
        alt=_alt(sections, holes),
        caption=(
            "The second factor of each doubling of the slots, with its 95 % interval. At 1.0 the "
            "new rows ride for free; at 0.5 a doubling buys nothing. Hatched panels were not "
            "measured."
        ),
        columns=COLUMNS,
        rows=tuple(row for section in sections for row in _data(section))
        + tuple(
            (hole.device, *(None,) * 9, wording.not_measured(hole), None, None) for hole in holes
        ),
        figure=figure,
    )  # fmt: skip


def _height(section: Section) -> float:
    items = section.lead.marginals
    lines = 2 if len({item.lower.arm for item in items}) > 1 else 1
    return 0.5 + (0.18 + 0.12 * lines) * max(2, len(items))


def _limits(sections: tuple[Section, ...]) -> tuple[float, float]:
    values = [0.5, 1.0]
    for section in sections:
        for item in section.lead.sound_marginals:
            ratio = item.slot_ratio
            values += [] if ratio is None else [ratio.low, ratio.high]
    return min(values) / 1.12, max(values) * 1.25


def _measured(axes: Axes, section: Section, low: float, high: float) -> None:
    items = section.lead.marginals
    style.row_axis(axes, wording.doublings(items) or [""])
    style.log_axis(axes, low, high, "", suffix=numbers.TIMES)
    style.panel_title(
        axes, f"{section.setting.device}, {section.setting.dtype}: {section.lead.device_name}"
    )
    _lines(axes)
    for y, item in enumerate(items):
        if not isinstance(item, SoundMarginal):
            style.hole(axes, y, 0.7, f"refused: {wording.codes(item.findings)}")
            continue
        ratio = item.slot_ratio
        if ratio is None:
            style.hole(axes, y, 0.7, NO_HOLDS)
            continue
        style.interval(axes, y, ratio.low, ratio.high, style.SLOT)
        axes.plot(
            [ratio.point],
            [y],
            marker="o",
            markersize=5.5,
            color=style.SLOT.sentinel,
            markeredgecolor=style.PAPER.sentinel,
            markeredgewidth=0.6,
        )
        axes.annotate(
            numbers.ratio(ratio).point, (ratio.high, y), xytext=(7, 0),
            textcoords="offset points", va="center", fontsize=style.SMALL_PT,
            bbox=style.LABEL_BOX,
        )  # fmt: skip
    if not items:
        style.hole(axes, 0, 0.8, "no doubling was measured")


def _hole(axes: Axes, hole: SkippedDevice, low: float, high: float) -> None:
    style.row_axis(axes, [""])
    style.log_axis(axes, low, high, "", suffix=numbers.TIMES)
    style.no_axis(axes)
    style.panel_title(axes, hole.device)
    style.hole(axes, 0, 1.0, wording.wrap(wording.not_measured(hole), 44))


def _lines(axes: Axes) -> None:
    style.reference_line(axes, 0.5, "buys nothing")
    style.reference_line(axes, 1.0, "free ride")


def _alt(sections: tuple[Section, ...], holes: tuple[SkippedDevice, ...]) -> str:
    parts = [wording.second_factor_alt(section) for section in sections]
    parts += [f"{hole.device}: {wording.not_measured(hole)}" for hole in holes]
    return f"What one row still produces after each doubling, by device. {' '.join(parts)}"


def _data(section: Section) -> list[tuple[Value, ...]]:
    setting, sweep = section.setting, section.lead
    names = (setting.device, sweep.device_name, setting.dtype, setting.workload)
    rows: list[tuple[Value, ...]] = []
    for item in sweep.marginals:
        place = (*names, item.lower.arm, item.lower.slots, 2 * item.lower.slots)
        if isinstance(item, SoundMarginal) and item.slot_ratio is not None:
            ratio = item.slot_ratio
            found = (ratio.point, ratio.low, ratio.high, None)
            rows.append((*place, *found, sweep.name, ratio.n))
        elif isinstance(item, SoundMarginal):
            rows.append((*place, None, None, None, NO_HOLDS, sweep.name, item.product.n))
        else:
            codes = wording.codes(item.findings)
            rows.append((*place, None, None, None, codes, sweep.name, None))
    return rows or [(*names, *(None,) * 6, "no doubling measured", sweep.name, None)]
