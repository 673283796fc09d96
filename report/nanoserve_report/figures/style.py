"""The house style: one palette by role, one font size, one way to draw an interval or a hole.

Colours are sentinels. A figure is drawn once with unlikely opaque colours, and `svg.py` replaces
each by a CSS variable with a light and a dark value, so that one file serves both schemes. The
palette keeps its differences under the common colour blindnesses (after Okabe and Ito), and no
figure tells two things apart by colour alone: markers and words say the same.

Figures are narrow on purpose: they are read at 390 px without zooming, and stand side by side on
a desktop.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

WIDTH_IN = 4.4
"""Width of every figure in inches (317 pt); heights follow the number of rows."""

PANEL_GAP_IN = 0.12
"""Between the axis of a panel and the title of the one below it."""

FONT_PT = 9.0
SMALL_PT = 8.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A colour by what it means: the sentinel it is drawn in, and its two values."""

    name: str
    sentinel: str
    light: str
    dark: str


INK = Role(name="ink", sentinel="#010203", light="#1c2430", dark="#e4e8ee")
MUTED = Role(name="muted", sentinel="#010305", light="#56606e", dark="#a3adba")
GRID = Role(name="grid", sentinel="#010407", light="#d9dee5", dark="#39424f")
HOLE = Role(name="hole", sentinel="#010509", light="#8b95a3", dark="#76808e")
WAITING = Role(name="waiting", sentinel="#010d19", light="#cfe0ee", dark="#2f4a61")
BATCH = Role(name="batch", sentinel="#01060b", light="#0b6fa8", dark="#58b4ea")
SLOT = Role(name="slot", sentinel="#01070d", light="#b85c00", dark="#f0a04b")
SYSTEM = Role(name="system", sentinel="#01080f", light="#5b5fc7", dark="#a5a8f5")
REQUEST = Role(name="request", sentinel="#010911", light="#a8447a", dark="#ea8fbd")
GOOD = Role(name="good", sentinel="#010a13", light="#00755a", dark="#3fc79c")
BAD = Role(name="bad", sentinel="#010b15", light="#b3361b", dark="#ff8b6b")
PAPER = Role(name="paper", sentinel="#010c17", light="#ffffff", dark="#1b1f27")
ROLES = (INK, MUTED, GRID, HOLE, WAITING, BATCH, SLOT, SYSTEM, REQUEST, GOOD, BAD, PAPER)

VERDICT_MARKS = {
    "worth it": ("^", GOOD),
    "not worth it": ("v", BAD),
    "undecided": ("D", MUTED),
    "faster": ("^", GOOD),
    "slower": ("v", BAD),
    "no difference": ("o", INK),
}
"""Marker shape and colour of each verdict: the shape alone is enough to read it."""

LABEL_BOX = {"facecolor": PAPER.sentinel, "edgecolor": "none", "pad": 1.2}
"""Behind a label that may meet a line."""

RC: dict[str, object] = {
    "axes.edgecolor": GRID.sentinel,
    "axes.labelcolor": MUTED.sentinel,
    "axes.facecolor": "none",
    "axes.labelsize": FONT_PT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "figure.facecolor": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": FONT_PT,
    "hatch.color": HOLE.sentinel,
    "hatch.linewidth": 0.7,
    "lines.linewidth": 1.4,
    "savefig.facecolor": "none",
    "svg.fonttype": "path",
    "svg.hashsalt": "nanoserve-report",
    "text.color": INK.sentinel,
    "xtick.color": MUTED.sentinel,
    "xtick.labelcolor": MUTED.sentinel,
    "xtick.labelsize": FONT_PT,
    "xtick.major.size": 3,
    "ytick.color": INK.sentinel,
    "ytick.labelcolor": INK.sentinel,
    "ytick.labelsize": FONT_PT,
    "ytick.major.size": 0,
    "ytick.left": False,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw under the house style, whatever the caller's matplotlib settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC)  # type: ignore[arg-type]  # stubs want literal keys
        yield


def blank(
    height_in: float, panels: int = 1, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure of the house width with `panels` stacked axes, outside pyplot's global state."""
    figure = Figure(
        figsize=(WIDTH_IN, height_in + PANEL_GAP_IN * (panels - 1)), layout="constrained"
    )
    gap = PANEL_GAP_IN / 2 if panels > 1 else 0.0
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.03 + gap)  # type: ignore[union-attr,call-arg]
    axes = figure.subplots(panels, 1, squeeze=False, height_ratios=ratios)
    return figure, [axes[row][0] for row in range(panels)]


def log_axis(axes: Axes, low: float, high: float, unit: str, *, suffix: str = "") -> None:
    """A horizontal log axis over [low, high] with few round ticks, so that factors add."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    ticks = [tick for tick in _round_ticks(low, high) if low <= tick <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}{suffix}"))
    axes.grid(axis="x", color=GRID.sentinel, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel(unit)


def _round_ticks(low: float, high: float) -> list[float]:
    """Powers of two where the range is wide; 1-2-5 steps of linear ticks where it is narrow."""
    octaves: list[float] = [2.0**power for power in range(-12, 24)]
    inside = [tick for tick in octaves if low <= tick <= high]
    if len(inside) > 6:
        return inside[:: -(-len(inside) // 6)] if 1.0 not in inside else _around_one(inside)
    if len(inside) >= 3:
        return inside
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0):
        first = int(low / step)
        ticks = [round(step * n, 4) for n in range(first, int(high / step) + 2)]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 6:
            return ticks
    return inside


def _around_one(inside: list[float]) -> list[float]:
    stride = -(-len(inside) // 6)
    at = inside.index(1.0)
    return inside[at % stride :: stride]


def row_axis(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows 0..n-1 from the top down."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def interval(axes: Axes, y: float, low: float, high: float, role: Role) -> None:
    """The interval of an estimate, always drawn, with small caps."""
    axes.plot([low, high], [y, y], color=role.sentinel, linewidth=1.3, solid_capstyle="butt")
    for x in (low, high):
        axes.plot([x, x], [y - 0.1, y + 0.1], color=role.sentinel, linewidth=1.1)


def marker(axes: Axes, x: float, y: float, verdict: str) -> None:
    """The point of an estimate in the shape of its verdict."""
    shape, role = VERDICT_MARKS[verdict]
    axes.plot(
        [x],
        [y],
        marker=shape,
        markersize=6,
        color=role.sentinel,
        markeredgecolor=PAPER.sentinel,
        markeredgewidth=0.6,
        linestyle="none",
        zorder=5,
    )


def no_axis(axes: Axes) -> None:
    """A panel in which nothing was measured has no scale to read."""
    axes.xaxis.set_major_locator(NullLocator())
    axes.spines["bottom"].set_visible(False)


def hole(axes: Axes, y: float, height: float, words: str) -> None:
    """A row that has no number: hatched over the whole axis, with the reason in words."""
    axes.add_patch(
        Rectangle(
            (0.0, y - height / 2),
            1.0,
            height,
            transform=axes.get_yaxis_transform(),
            facecolor="none",
            edgecolor=HOLE.sentinel,
            hatch="////",
            linewidth=0.7,
            zorder=3,
        )
    )
    axes.text(
        0.5,
        y,
        words,
        transform=axes.get_yaxis_transform(),
        ha="center",
        va="center",
        fontsize=SMALL_PT,
        color=INK.sentinel,
        zorder=6,
        linespacing=1.25,
        bbox={"facecolor": PAPER.sentinel, "edgecolor": "none", "pad": 2.0},
    )


def reference_line(axes: Axes, x: float, words: str) -> None:
    """A vertical line that means something, with its meaning written at its top."""
    axes.axvline(x, color=INK.sentinel, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    axes.annotate(
        words,
        (x, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3, 1),
        textcoords="offset points",
        fontsize=SMALL_PT,
        color=MUTED.sentinel,
        va="bottom",
    )


def panel_title(axes: Axes, words: str) -> None:
    """What a panel shows, above whatever its reference lines say."""
    lines = textwrap.wrap(words, 52)
    axes.set_title(
        "\n".join(lines), loc="left", fontsize=FONT_PT, color=INK.sentinel, fontweight="bold",
        pad=14,
    )  # fmt: skip


def legend(
    figure: Figure,
    lines: Sequence[tuple[str, Role]],
    *,
    product: str = "",
) -> None:
    """What each stroke means, above the axes, of those that are drawn; likewise the diamond."""
    handles = [
        Line2D([], [], color=role.sentinel, linewidth=5.0, solid_capstyle="butt", label=label)
        for label, role in lines
    ]
    if product:
        handles.append(
            Line2D([], [], color=INK.sentinel, marker="D", markersize=5, linestyle="none",
                   label=product)
        )  # fmt: skip
    _above(figure, handles, ncols=2, handlelength=1.4)


def shapes(
    figure: Figure,
    items: Sequence[tuple[str, str]],
    roles: Sequence[Role] = (),
    *,
    ncols: int = 1,
    hollow: frozenset[str] = frozenset(),
) -> None:
    """Which marker shape is which, above the axes, of those that are drawn.

    `roles` colour them, one each; the shapes in `hollow` are drawn so.
    """
    colours = [role.sentinel for role in roles] or [INK.sentinel] * len(items)
    handles = [
        Line2D(
            [], [], color=colour, marker=shape, markersize=4.5, linestyle="none", label=label,
            markerfacecolor=PAPER.sentinel if shape in hollow else colour,
        )
        for (label, shape), colour in zip(items, colours, strict=True)
    ]  # fmt: skip
    _above(figure, handles, ncols=ncols, handlelength=1.0)


def _above(figure: Figure, handles: Sequence[Line2D], *, ncols: int, handlelength: float) -> None:
    """A legend of what is drawn; none where nothing of it is."""
    present = [handle for handle in handles if is_drawn(figure, handle)]
    if present:
        figure.legend(
            handles=present, loc="outside upper left", ncols=ncols, frameon=False,
            fontsize=SMALL_PT, handlelength=handlelength, columnspacing=1.2, borderaxespad=0.0,
            borderpad=0.1, labelspacing=0.25, labelcolor=INK.sentinel,
        )  # fmt: skip


def is_drawn(figure: Figure, handle: Line2D) -> bool:
    """Whether an axis holds what a legend's handle stands for: its marker, or its colour."""
    marker, colour = handle.get_marker(), to_hex(handle.get_color())
    for axes in figure.axes:
        lines = [line for line in axes.lines if len(line.get_xdata())]  # type: ignore[arg-type]
        if marker not in (None, "None", ""):
            if any(line.get_marker() == marker for line in lines):
                return True
        elif any(to_hex(line.get_color()) == colour for line in lines) or any(
            to_hex(patch.get_facecolor()) == colour and patch.get_width() > 0
            for patch in axes.patches
            if isinstance(patch, Rectangle)
        ):
            return True
    return False
