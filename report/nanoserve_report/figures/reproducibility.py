"""Do the doublings reproduce while the headline wanders? Every sweep of one setting, side by side.

Upper panel: the headline speedup at each slot count, one point per sweep. Lower panel: each
doubling's product, one point per sweep, on the same scale. What reproduces is a narrow cloud; the
spread (largest over smallest) stands at the right.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from nanoserve_report import numbers, spread, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value
from nanoserve_report.spread import Line
from nanoserve_report.study import Section
from nanoserve_report.sweeps import Sweep

COLUMNS = ("quantity", "arm", "slots", "point", "low", "high", "hole", "run", "blocks")
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "p")


def draw(section: Section) -> Drawing:
    """All sweeps of a section."""
    headline, doublings = spread.headline(section), spread.doublings(section)
    names = [sweep.name for sweep in section.sweeps]
    counts = [max(1, len(lines)) for lines in (headline, doublings)]
    row = 0.22 + 0.075 * len(names)
    with style.house_style():
        figure, axes = style.blank(
            1.15 + row * sum(counts) + 0.13 * -(-len(names) // 2), 2, [n + 0.6 for n in counts]
        )
        low, high = _limits([*headline, *doublings])
        for panel, lines, title in zip(
            axes, (headline, doublings),
            (f"speedup over {wording.baseline_words(section.lead)}", "one doubling of the slots"),
            strict=True,
        ):  # fmt: skip
            style.row_axis(panel, [line.label for line in lines] or [""])
            style.log_axis(panel, low, high, "")
            panel.set_title(
                title,
                loc="left",
                fontsize=style.FONT_PT,
                fontweight="bold",
                color=style.INK.sentinel,
            )
            for y, line in enumerate(lines):
                _line(panel, y, line, names)
            if any(line.spread for line in lines):
                panel.set_title(
                    "max / min", loc="right", fontsize=style.SMALL_PT, color=style.MUTED.sentinel
                )
            if not lines:
                style.hole(panel, 0, 0.8, "nothing sound to set side by side")
        axes[-1].set_xlabel("times (log; one scale for both panels)")
        style.shapes(
            figure,
            [
                (
                    sweep.name,
                    SHAPES[i % len(SHAPES)],
                )
                for i, sweep in enumerate(section.sweeps)
                if _sound(sweep)
            ],
        )
    return Drawing(
        name="reproducibility",
        title="What reproduces from sweep to sweep",
        alt=f"Sweeps of one setting side by side. {spread.verdict(section).sentence}",
        caption=(
            "One point per sweep, with its 95 % interval. The number at the right is the largest "
            "point over the smallest: 1.00 would be perfect agreement."
            f"{_left_out(section)}"
        ),
        columns=COLUMNS,
        rows=tuple(row for line in (*headline, *doublings) for row in _data(line, names))
        or ((*(None,) * 6, "nothing sound", " ".join(names), None),),
        figure=figure,
    )


def _sound(sweep: Sweep) -> bool:
    return bool(sweep.sound_rivals or sweep.sound_marginals)


def _left_out(section: Section) -> str:
    """The sweeps of which nothing is drawn; empty where there are none."""
    names = [sweep.name for sweep in section.sweeps if not _sound(sweep)]
    return f" Refused, and not drawn: {numbers.enumerate_words(names)}." if names else ""


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    values = [1.0]
    for line in lines:
        for estimate in line.by_run.values():
            values += [estimate.low, estimate.high]
    return min(values) / 1.12, max(values) * 1.7


def _line(axes: Axes, y: int, line: Line, names: Sequence[str]) -> None:
    step = 0.7 / max(1, len(names))
    for index, name in enumerate(names):
        estimate = line.by_run.get(name)
        at = y + step * (index - (len(names) - 1) / 2)
        if estimate is None:
            continue
        axes.plot([estimate.low, estimate.high], [at, at], color=style.MUTED.sentinel, linewidth=1)
        axes.plot(
            [estimate.point], [at], marker=SHAPES[index % len(SHAPES)], markersize=4.5,
            color=line.role.sentinel, markeredgecolor=style.PAPER.sentinel, markeredgewidth=0.5,
            linestyle="none", zorder=4,
        )  # fmt: skip
    if line.spread is not None:
        axes.annotate(
            f"{line.spread:.2f}", (1.0, y), xycoords=axes.get_yaxis_transform(), xytext=(-2, 0),
            textcoords="offset points", ha="right", va="center", fontsize=style.SMALL_PT,
            color=style.INK.sentinel, bbox=style.LABEL_BOX,
        )  # fmt: skip


def _data(line: Line, names: Sequence[str]) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for name in names:
        estimate = line.by_run.get(name)
        place = (line.quantity, line.arm, line.slots)
        if estimate is None:
            hole = "refused or not measured in this sweep"
            rows.append((*place, None, None, None, hole, name, None))
        else:
            values = (estimate.point, estimate.low, estimate.high)
            rows.append((*place, *values, None, name, estimate.n))
    return rows
