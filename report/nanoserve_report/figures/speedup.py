"""The factorised speedup: batch factor x per-slot-second factor, the product marked.

Each row starts at 1, steps right by the batch factor (rows held at a time, against the baseline)
and then by the per-slot-second factor (what one row produced, against the baseline), usually back
to the left. The diamond where it ends is the speedup, with its interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoserve_bench.soundness import RefusedComparison, SoundComparison
from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value, blocks_of
from nanoserve_report.figures.walk import LANE, end_mark, two_steps
from nanoserve_report.sweeps import AnyComparison, Sweep

COLUMNS = (
    "baseline", "candidate", "slots", "batch_factor", "batch_factor_low", "batch_factor_high",
    "slot_factor", "slot_factor_low", "slot_factor_high", "speedup", "speedup_low",
    "speedup_high", "verdict", "hole", "run", "blocks",
)  # fmt: skip


def draw(sweep: Sweep) -> Drawing:
    """The rival pairs of a sweep, one row each."""
    pairs = sweep.headline_rivals
    with style.house_style():
        figure, (axes,) = style.blank(0.85 + 0.5 * max(1, len(pairs)))
        style.row_axis(axes, [wording.row_label(pair.candidate) for pair in pairs] or [""])
        low, high = _limits([pair for pair in pairs if isinstance(pair, SoundComparison)])
        style.log_axis(axes, low, high, "times the baseline (log)", suffix=numbers.TIMES)
        style.reference_line(axes, 1.0, wording.baseline_words(sweep))
        for y, pair in enumerate(pairs):
            if isinstance(pair, RefusedComparison):
                style.hole(axes, y, 0.72, f"refused: {wording.codes(pair.findings)}")
            else:
                _row(axes, y, pair)
        if not pairs:
            style.hole(axes, 0, 0.8, "no comparison was planned")
        _legend(figure)
    return Drawing(
        name="speedup",
        title="What each speedup is made of",
        alt=_alt(sweep),
        caption=(
            "Each row starts at the baseline (1), takes the batch factor on the upper lane and the "
            "per-slot-second factor on the lower one, and ends at the speedup (diamond, with its "
            "95 % interval). The axis is logarithmic, so the steps add up to the product."
        ),
        columns=COLUMNS,
        rows=tuple((*_data(pair), sweep.name, blocks_of(pair)) for pair in pairs)
        or ((*(None,) * 13, "no comparison planned", sweep.name, None),),
        figure=figure,
    )


def _limits(pairs: Sequence[SoundComparison]) -> tuple[float, float]:
    values = [1.0]
    for pair in pairs:
        values += [pair.speedup.low, pair.speedup.high]
        values += [] if pair.batch_factor is None else [pair.batch_factor.point]
    return min(values) / 1.25, max(values) * 2.2


def _row(axes: Axes, y: int, pair: SoundComparison) -> None:
    speedup, batch, slot = pair.speedup, pair.batch_factor, pair.slot_factor
    if batch is None or slot is None:
        axes.plot(
            [1.0, speedup.point],
            [y, y],
            color=style.INK.sentinel,
            linewidth=5.0,
            solid_capstyle="butt",
            alpha=0.35,
        )
        where = float(y)
    else:
        two_steps(axes, y, (batch.point, slot.point), (style.BATCH, style.SLOT))
        where = y + LANE
    style.interval(axes, where, speedup.low, speedup.high, style.INK)
    end_mark(axes, speedup.point, where, style.INK)
    if batch is not None and slot is not None:
        right = max(batch.point, speedup.high, 1.0)
        axes.annotate(
            f"{numbers.ratio(batch).point} {numbers.TIMES} {numbers.ratio(slot).point}\n"
            f"= {numbers.ratio(speedup).point}{numbers.TIMES}",
            (right, y), xytext=(5, 0), textcoords="offset points", va="center",
            fontsize=style.SMALL_PT, linespacing=1.15,
        )  # fmt: skip


def _legend(figure: Figure) -> None:
    style.legend(
        figure,
        (("batch factor", style.BATCH), ("per-slot-second factor", style.SLOT)),
        product="speedup",
    )


def _alt(sweep: Sweep) -> str:
    parts = []
    for pair in sweep.headline_rivals:
        who = wording.who(pair.candidate)
        if isinstance(pair, RefusedComparison):
            parts.append(f"{who}: refused ({wording.codes(pair.findings)}), drawn as a hole")
        else:
            parts.append(f"{who}: {wording.product_words(pair)}")
    return f"Speedup against {wording.baseline_words(sweep)}, as a product. {'; '.join(parts)}."


def _data(pair: AnyComparison) -> tuple[Value, ...]:
    names = (pair.baseline.arm, pair.candidate.arm, pair.candidate.slots)
    if isinstance(pair, RefusedComparison):
        return (*names, *(None,) * 10, wording.codes(pair.findings))
    values: list[Value] = []
    for estimate in (pair.batch_factor, pair.slot_factor, pair.speedup):
        values += [None] * 3 if estimate is None else [estimate.point, estimate.low, estimate.high]
    return (*names, *values, pair.verdict, None)
