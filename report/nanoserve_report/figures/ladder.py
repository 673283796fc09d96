"""The ladder of baselines: every candidate's ratio over each of them, wins and losses alike.

One row per ratio, on one logarithmic axis with the line at 1. The shape of a mark is its verdict,
and a row left of the line is as wide and as dark as one right of it.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from nanoserve_bench.soundness import RefusedComparison, SoundComparison
from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value, blocks_of
from nanoserve_report.ladder import Rung, rungs
from nanoserve_report.sweeps import AnyComparison, Sweep

COLUMNS = (
    "candidate", "slots", "baseline", "speedup", "speedup_low", "speedup_high", "verdict",
    "best_baseline", "hole", "run", "blocks",
)  # fmt: skip


def draw(sweep: Sweep) -> Drawing:
    """The ladders of a sweep that has some."""
    rows = [(rung, pair) for rung in rungs(sweep) for pair in rung.pairs]
    sound = [pair for _, pair in rows if isinstance(pair, SoundComparison)]
    with style.house_style():
        figure, (axes,) = style.blank(0.75 + 0.42 * len(rows))
        style.row_axis(axes, [_label(pair) for _, pair in rows])
        ends = [1.0, *(v for pair in sound for v in (pair.speedup.low, pair.speedup.high))]
        style.log_axis(
            axes, min(ends) / 1.3, max(ends) * 2.2, "times the baseline of the row (log)",
            suffix=numbers.TIMES,
        )  # fmt: skip
        style.reference_line(axes, 1.0, "as fast as the baseline")
        for y, (rung, pair) in enumerate(rows):
            if isinstance(pair, RefusedComparison):
                style.hole(axes, y, 0.72, f"refused: {wording.codes(pair.findings)}")
            else:
                _row(axes, y, pair, best=pair is rung.against_best)
    return Drawing(
        name="ladder",
        title="Against every baseline",
        alt=_alt(rows),
        caption=(
            "Each row is a candidate over one baseline at the same slots (a serial baseline has "
            "one): the mark is the ratio in the shape of its verdict, with its 95 % interval. "
            "Left of the dashed line the candidate loses."
        ),
        columns=COLUMNS,
        rows=tuple((*_data(rung, pair), sweep.name, blocks_of(pair)) for rung, pair in rows),
        figure=figure,
    )


def _label(pair: AnyComparison) -> str:
    return f"{pair.candidate.arm}, {wording.slots(pair.candidate.slots)}\nover {pair.baseline.arm}"


def _row(axes: Axes, y: int, pair: SoundComparison, *, best: bool) -> None:
    speedup = pair.speedup
    _, role = style.VERDICT_MARKS[pair.verdict]
    axes.plot([1.0, speedup.point], [y, y], color=style.GRID.sentinel, linewidth=3.0, zorder=1)
    style.interval(axes, y, speedup.low, speedup.high, role)
    style.marker(axes, speedup.point, y, pair.verdict)
    words = f"{numbers.ratio(speedup).point}{numbers.TIMES}  {pair.verdict}"
    axes.annotate(
        f"{words}\nthe best baseline" if best else words,
        (max(speedup.high, 1.0), y), xytext=(7, 0), textcoords="offset points", va="center",
        fontsize=style.SMALL_PT, linespacing=1.2,
    )  # fmt: skip


def _alt(rows: list[tuple[Rung, AnyComparison]]) -> str:
    parts = []
    for rung, pair in rows:
        who = f"{pair.candidate.arm} at {wording.slots(pair.candidate.slots)} over "
        if isinstance(pair, RefusedComparison):
            parts.append(f"{who}{pair.baseline.arm}: refused ({wording.codes(pair.findings)})")
            continue
        best = ", its best baseline" if pair is rung.against_best else ""
        ratio = numbers.ratio(pair.speedup).words
        parts.append(f"{who}{pair.baseline.arm}{best}: {ratio}, {pair.verdict}")
    return f"The ladder of baselines. {'; '.join(parts)}."


def _data(rung: Rung, pair: AnyComparison) -> tuple[Value, ...]:
    names = (pair.candidate.arm, pair.candidate.slots, pair.baseline.arm)
    if isinstance(pair, RefusedComparison):
        return (*names, None, None, None, None, None, wording.codes(pair.findings))
    speedup = pair.speedup
    best = "yes" if pair is rung.against_best else "no"
    return (*names, speedup.point, speedup.low, speedup.high, pair.verdict, best, None)
