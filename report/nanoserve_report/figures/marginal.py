"""Marginal doubling: what twice the slots are worth, with the line where they stop being so.

The product's whole interval right of 1.0 is worth it, left of it is not worth it, across it is
undecided. Shape, position and word all say which; colour only repeats it.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from nanoserve_bench.soundness import SoundMarginal
from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value, blocks_of
from nanoserve_report.sweeps import AnyMarginal, Sweep

COLUMNS = (
    "arm", "slots_from", "slots_to", "batch_ratio", "batch_ratio_low", "batch_ratio_high",
    "slot_ratio", "slot_ratio_low", "slot_ratio_high", "product", "product_low", "product_high",
    "verdict", "hole", "run", "blocks",
)  # fmt: skip


def draw(sweep: Sweep) -> Drawing:
    """The doublings of a sweep, one row each."""
    items = sweep.marginals
    with style.house_style():
        figure, (axes,) = style.blank(0.7 + 0.46 * max(1, len(items)))
        style.row_axis(axes, wording.doublings(items) or [""])
        low, high = _limits(sweep.sound_marginals)
        style.log_axis(
            axes, low, high, "throughput, times that of half the slots (log)", suffix=numbers.TIMES
        )
        style.reference_line(axes, 1.0, "break-even")
        for y, item in enumerate(items):
            if isinstance(item, SoundMarginal):
                _row(axes, y, item)
            else:
                style.hole(axes, y, 0.7, f"refused: {wording.codes(item.findings)}")
        if not items:
            style.hole(axes, 0, 0.8, "no doubling was measured")
    return Drawing(
        name="marginal",
        title="What each doubling of the slots is worth",
        alt=f"What each doubling of the slots is worth. {wording.doublings_alt(sweep)}",
        caption=(
            "Each row is a doubling of the slots: throughput after it over throughput before it, "
            "with its 95 % interval. Right of the dashed line it pays, left of it it costs. The "
            "baseline is not in this figure: it cancels."
        ),
        columns=COLUMNS,
        rows=tuple((*_data(item), sweep.name, blocks_of(item)) for item in items)
        or ((*(None,) * 13, "no doubling measured", sweep.name, None),),
        figure=figure,
    )


def _limits(items: tuple[SoundMarginal, ...]) -> tuple[float, float]:
    values = [1.0]
    for item in items:
        values += [item.product.low, item.product.high]
    low, high = min(values), max(values)
    return min(low / 1.06, 0.92), max(high * 2.2, 1.7)


def _row(axes: Axes, y: int, item: SoundMarginal) -> None:
    product = item.product
    _, role = style.VERDICT_MARKS[item.verdict]
    axes.plot([1.0, product.point], [y, y], color=style.GRID.sentinel, linewidth=3.0, zorder=1)
    style.interval(axes, y, product.low, product.high, role)
    style.marker(axes, product.point, y, item.verdict)
    right = max(product.high, 1.0)
    words = f"{numbers.ratio(product).point}{numbers.TIMES}  {item.verdict}"
    if item.batch_ratio is not None and item.slot_ratio is not None:
        batch, slot = numbers.ratio(item.batch_ratio), numbers.ratio(item.slot_ratio)
        words += f"\n{batch.point} {numbers.TIMES} {slot.point}"
    axes.annotate(
        words,
        (right, y), xytext=(7, 0), textcoords="offset points", va="center",
        fontsize=style.SMALL_PT, linespacing=1.2,
    )  # fmt: skip


def _data(item: AnyMarginal) -> tuple[Value, ...]:
    names = (item.lower.arm, item.lower.slots, 2 * item.lower.slots)
    if not isinstance(item, SoundMarginal):
        return (*names, *(None,) * 10, wording.codes(item.findings))
    values: list[Value] = []
    for estimate in (item.batch_ratio, item.slot_ratio, item.product):
        values += [None] * 3 if estimate is None else [estimate.point, estimate.low, estimate.high]
    return (*names, *values, item.verdict, None)
