"""Calibration: false verdicts, coverage and power of simulated studies, each with its error.

Three panels with the same rows, one per kind of study. Filled markers are the verdicts with the A/A
envelope, open ones without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from nanoserve_bench.calibration.records import (
    LEAST_HELD,
    MOST_FALSE,
    MOST_HELD,
    Calibration,
    Outcomes,
    Share,
    SourceFacts,
)
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value
from nanoserve_report.figures.style import Role
from nanoserve_report.views import calibration as words

COLUMNS = (
    "source", "truth", "stopping_rule", "run_length", "arms", "quantity", "envelope", "studies",
    "share", "low", "high", "hole", "run", "blocks",
)  # fmt: skip
CALLED, HELD, POWER = "called faster or slower", "interval held the truth", "called faster"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """One drawn share; `enveloped` is None where no verdict is in it."""

    row: Outcomes
    quantity: str
    enveloped: bool | None
    share: Share


def marks(rows: Sequence[Outcomes]) -> Iterator[Mark]:
    """Everything that is drawn, from studies that stated a ratio."""
    for row in rows:
        if not row.stated:
            continue
        if row.effect == 1:
            called = ((True, row.faster + row.slower), (False, row.bare_faster + row.bare_slower))
            yield Mark(row=row, quantity=HELD, enveloped=None, share=row.share(row.held))
        else:
            called = ((True, row.faster), (False, row.bare_faster))
        quantity = CALLED if row.effect == 1 else POWER
        for enveloped, count in called:
            yield Mark(row=row, quantity=quantity, enveloped=enveloped, share=row.share(count))


def draw(record: Calibration, facts: SourceFacts) -> Drawing:
    """Every kind of study of one source."""
    rows = list(words.rows_of(record, facts.name))
    drawn = list(marks(rows))
    kinds = list(dict.fromkeys(_kind(row) for row in rows))
    effects = [row for row in rows if row.effect != 1]
    origin = (" ".join(facts.run_ids), facts.blocks)
    panels = (
        (CALLED, "nothing differs: called faster or slower"),
        (HELD, "nothing differs: interval held the truth"),
        (POWER, f"{words.truth_words(effects[0])}: called faster" if effects else POWER),
    )
    with style.house_style():
        figure, axes = style.blank(0.7 + 3 * (0.55 + 0.44 * len(kinds)), len(panels))
        for panel, (quantity, title) in zip(axes, panels, strict=True):
            mine = [mark for mark in drawn if mark.quantity == quantity]
            style.row_axis(panel, kinds)
            _share_axis(panel, mine, quantity)
            panel.set_title(
                title, loc="left", fontsize=style.FONT_PT, fontweight="bold",
                color=style.INK.sentinel, pad=14,
            )  # fmt: skip
            for y, kind in enumerate(kinds):
                present = [mark for mark in mine if _kind(mark.row) == kind]
                for mark in present:
                    _mark(panel, y, mark)
                if not present:
                    style.hole(panel, y, 0.7, "every study was refused")
        axes[-1].set_xlabel("share of simulated studies")
        style.shapes(
            figure,
            (("with the A/A envelope", "o"), ("without it", "s")),
            (style.INK, style.MUTED),
            hollow=frozenset("s"),
        )
    return Drawing(
        name="calibration",
        title=f"Calibration on the noise of {words.source_words(facts)}",
        alt=_alt(drawn, facts),
        caption=(
            "One row per kind of study: its stopping rule, how recorded blocks are drawn, and "
            "what the A/A arm shares with the ratio. "
            "Bars are 95 % Monte Carlo intervals; dashed lines are the targets."
        ),
        columns=COLUMNS,
        rows=tuple((*_data(mark), *origin) for mark in drawn)
        or ((facts.name, *(None,) * 10, "every study was refused", *origin),),
        figure=figure,
    )


def _kind(row: Outcomes) -> str:
    rule = f"{row.most} blocks" if row.target_half_width is None else f"{row.least}-{row.most}"
    return f"{rule}, {words.drawing_words(row.run_length)}\nA/A shares {words.arms_words(row)}"


def _share_axis(axes: Axes, drawn: Sequence[Mark], quantity: str) -> None:
    ends = [end for mark in drawn for end in mark.share.interval]
    if quantity == HELD:
        low, high = min([*ends, LEAST_HELD]) - 0.005, 1.0
        style.reference_line(axes, LEAST_HELD, f"{100 * LEAST_HELD:g} %")
        style.reference_line(axes, MOST_HELD, f"{100 * MOST_HELD:g} %")
    elif quantity == CALLED:
        low, high = 0.0, max([*ends, MOST_FALSE]) * 1.08
        style.reference_line(axes, MOST_FALSE, f"at most {100 * MOST_FALSE:g} %")
    else:
        low, high = 0.0, 1.0
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g} %"))
    axes.grid(axis="x", color=style.GRID.sentinel, linewidth=0.7)
    axes.set_axisbelow(True)


def _mark(axes: Axes, y: int, mark: Mark) -> None:
    low, high = mark.share.interval
    bare = mark.enveloped is False
    at = y + (0.16 if bare else -0.16 if mark.enveloped else 0.0)
    role: Role = style.MUTED if bare else style.INK
    style.interval(axes, at, low, high, role)
    axes.plot(
        [mark.share.point], [at], marker="s" if bare else "o", markersize=4.5, linestyle="none",
        color=role.sentinel, markerfacecolor=style.PAPER.sentinel if bare else role.sentinel,
        zorder=5,
    )  # fmt: skip


def _alt(drawn: Sequence[Mark], facts: SourceFacts) -> str:
    parts = [f"Simulated studies on the noise of {words.source_words(facts)}."]
    for quantity in (CALLED, HELD, POWER):
        for enveloped, envelope in ((True, " with the envelope"), (False, " without"), (None, "")):
            shares = [
                mark.share.point
                for mark in drawn
                if mark.quantity == quantity and mark.enveloped is enveloped
            ]
            if shares:
                low, high = (f"{100 * end:.1f}" for end in (min(shares), max(shares)))
                parts.append(f"{quantity.capitalize()}{envelope}: {low} to {high} %.")
    if not drawn:
        parts.append("Every study was refused.")
    return " ".join(parts)


def _data(mark: Mark) -> tuple[Value, ...]:
    row = mark.row
    low, high = mark.share.interval
    envelope = {True: "with", False: "without", None: None}[mark.enveloped]
    return (
        row.source, words.truth_words(row), words.rule_words(row), row.run_length, row.arms,
        mark.quantity, envelope, mark.share.of, mark.share.point, low, high, None,
    )  # fmt: skip
