"""A track over its versions: one panel a quantity, one row a version, and no line between them.

The marker's shape says what the change since the version before may be called; a version without a
sound figure is a hatched row. Nothing is drawn between two versions, because nothing was measured
there.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value
from nanoserve_report.history import (
    DOUBLING,
    NOT_MEASURED,
    SPEEDUP,
    Missing,
    Quantity,
    Sound,
    Track,
)
from nanoserve_report.views.history import name_of

COLUMNS = (
    "quantity", "arm", "slots", "version", "since", "value", "low", "high", "throughput_tok_per_s",
    "change", "change_low", "change_high", "verdict", "hole", "run", "blocks",
)  # fmt: skip
MOST_VERSIONS = 8
"""Versions that are drawn, the newest; the table has all of them."""
FIRST_SHAPE = "s"


def followed(track: Track, kind: str) -> list[Quantity]:
    """What two versions at least were measured for, refused or not: the rest has no history."""

    def measured(quantity: Quantity) -> int:
        found = (version.get(quantity) for version in track.versions)
        return sum(isinstance(f, Sound) or f.reason != NOT_MEASURED for f in found)

    return [q for q in track.quantities if q.kind == kind and measured(q) > 1]


def draw(track: Track, kind: str) -> Drawing:
    """The speedups of a track over its versions, or its doublings."""
    quantities = followed(track, kind)
    drawn = range(max(0, len(track.versions) - MOST_VERSIONS), len(track.versions))
    heights = [0.3 + 0.27 * len(drawn)] * len(quantities)
    low, high = _limits(track, quantities)
    with style.house_style():
        figure, panels = style.blank(0.9 + sum(h + 0.34 for h in heights), len(heights), heights)
        for axes, quantity in zip(panels, quantities, strict=True):
            style.row_axis(axes, [track.versions[index].label for index in drawn])
            style.log_axis(axes, low, high, "", suffix=numbers.TIMES)
            style.panel_title(axes, name_of(quantity))
            if kind == DOUBLING:
                style.reference_line(axes, 1.0, "break-even")
            for y, index in enumerate(drawn):
                _row(axes, y, track, quantity, index)
        panels[-1].set_xlabel(_unit(track, kind))
        style.shapes(
            figure,
            [("first, or nothing before it", FIRST_SHAPE)]
            + [(word, style.VERDICT_MARKS[word][0])
               for word in ("faster", "slower", "no difference", "undecided")],
        )  # fmt: skip
    return Drawing(
        name=f"history-{kind}",
        title={SPEEDUP: "Speedups, version by version", DOUBLING: "Doublings, version by version"}[
            kind
        ],
        alt=_alt(track, quantities),
        caption=(
            "One row per version of the code, oldest first, with its 95 % interval. The marker "
            "says what the change since the row above may be called; hatched rows have no sound "
            "figure. Nothing is drawn between two versions, and nothing that one version alone has."
            + (f" Only the newest {MOST_VERSIONS} are drawn." if drawn.start else "")
        ),
        columns=COLUMNS,
        rows=tuple(_data(track, quantity, index) for quantity in quantities for index in drawn),
        figure=figure,
    )


def _unit(track: Track, kind: str) -> str:
    if kind == DOUBLING:
        return "throughput, times that of half the slots (log)"
    baseline = track.versions[-1].sweeps[0].plan.headline_baseline
    return f"times {baseline} (log)"


def _limits(track: Track, quantities: list[Quantity]) -> tuple[float, float]:
    values = [1.0]
    for version in track.versions:
        for quantity in quantities:
            found = version.get(quantity)
            if isinstance(found, Sound):
                values += [found.value.low, found.value.high]
    return min(values) / 1.1, max(values) * 2.1


def _row(axes: Axes, y: int, track: Track, quantity: Quantity, index: int) -> None:
    found = track.versions[index].get(quantity)
    if isinstance(found, Missing):
        style.hole(axes, y, 0.7, found.reason)
        return
    change = track.change(quantity, index)
    shape, role = style.VERDICT_MARKS[change.verdict] if change else (FIRST_SHAPE, style.MUTED)
    value = found.value
    style.interval(axes, y, value.low, value.high, role)
    axes.plot(
        [value.point], [y], marker=shape, markersize=5.5, color=role.sentinel,
        markeredgecolor=style.PAPER.sentinel, markeredgewidth=0.6, linestyle="none", zorder=5,
    )  # fmt: skip
    words = f"{numbers.ratio(value).point}{numbers.TIMES}"
    if change is not None:
        words += f"  {change.verdict}"
    axes.annotate(
        words, (value.high, y), xytext=(6, 0), textcoords="offset points", va="center",
        fontsize=style.SMALL_PT,
    )  # fmt: skip


def _alt(track: Track, quantities: list[Quantity]) -> str:
    parts = []
    for quantity in quantities:
        steps = []
        for index, version in enumerate(track.versions):
            found = version.get(quantity)
            if isinstance(found, Missing):
                steps.append(f"{version.label} {found.reason}, a hole")
                continue
            change = track.change(quantity, index)
            word = "" if change is None else f" ({change.verdict})"
            steps.append(f"{version.label} {numbers.ratio(found.value).point}{word}")
        parts.append(f"{name_of(quantity)}: {', '.join(steps)}")
    versions = wording.count_versions(len(track.versions))
    return f"{versions} side by side, oldest first. {'; '.join(parts)}."


def _data(track: Track, quantity: Quantity, index: int) -> tuple[Value, ...]:
    version = track.versions[index]
    names = (
        quantity.kind, quantity.arm, quantity.slots, version.label, version.since.partition("T")[0],
    )  # fmt: skip
    found = version.get(quantity)
    if isinstance(found, Missing):
        return (*names, *(None,) * 8, found.reason, found.folder or None, None)
    value, change = found.value, track.change(quantity, index)
    origin = (found.run, value.n)
    throughput = None if found.throughput is None else found.throughput.point
    if change is None:
        nothing = (None,) * 5
        return (*names, value.point, value.low, value.high, throughput, *nothing, *origin)
    ratio = change.ratio
    return (
        *names, value.point, value.low, value.high, throughput, ratio.point, ratio.low, ratio.high,
        change.verdict, None, *origin,
    )  # fmt: skip
