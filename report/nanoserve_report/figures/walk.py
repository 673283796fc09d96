"""A product drawn as a walk on a log axis: each factor is a step, and the end is the product.

On a log axis factors add, so a walk that starts at 1 and takes one step per factor ends exactly at
the product. Two walks over different factors of the same product end at the same place, which is
how an identity looks.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from nanoserve_report.figures.style import MUTED, PAPER, Role

LANE = 0.17
"""Half the distance between the two steps of a walk, in rows."""


def two_steps(
    axes: Axes,
    y: float,
    factors: tuple[float, float],
    roles: tuple[Role, Role],
    *,
    lane: float = LANE,
    width: float = 5.0,
) -> None:
    """Draw 1 -> first factor on the upper lane, and on to the product on the lower lane."""
    middle, end = factors[0], factors[0] * factors[1]
    upper, lower = y - lane, y + lane
    axes.plot(
        [1.0, middle],
        [upper, upper],
        color=roles[0].sentinel,
        linewidth=width,
        solid_capstyle="butt",
        zorder=3,
    )
    axes.plot(
        [middle, end],
        [lower, lower],
        color=roles[1].sentinel,
        linewidth=width,
        solid_capstyle="butt",
        zorder=3,
    )
    axes.plot([middle, middle], [upper, lower], color=MUTED.sentinel, linewidth=0.9, zorder=2)


def end_mark(axes: Axes, x: float, y: float, role: Role) -> None:
    """Mark where a walk ends: the product."""
    axes.plot(
        [x],
        [y],
        marker="D",
        markersize=5.5,
        color=role.sentinel,
        linestyle="none",
        markeredgecolor=PAPER.sentinel,
        markeredgewidth=0.8,
        zorder=6,
    )
