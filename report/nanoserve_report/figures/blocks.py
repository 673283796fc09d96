"""Every block of every comparison as a point: what the intervals are made of.

A block gives a pair one ratio, of two trials that ran within it. Each is drawn against the
geometric mean of its pair, so that pairs of 1.02 and of 25 times share one scale, the first block
at the top of its row and the last at the bottom, so that a drift leans. What is flagged as an
outlier is drawn hollow, and is in the mean like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from nanoserve_bench.soundness import SoundCell, SoundComparison
from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value
from nanoserve_report.sweeps import AnyComparison, Sweep

COLUMNS = (
    "baseline", "candidate", "slots", "block", "ratio", "flag", "speedup", "speedup_low",
    "speedup_high", "hole", "run", "blocks",
)  # fmt: skip
DOT, FLAGGED = "o", "s"
REACH = 0.34
"""Of half a row, how far the first and the last block stand from its middle."""


def draw(sweep: Sweep) -> Drawing:
    """The pairs of a sweep against its headline baseline and its A/A pairs, one row each."""
    pairs = (*sweep.headline_rivals, *sweep.selves)
    with style.house_style():
        figure, (axes,) = style.blank(0.85 + 0.5 * max(1, len(pairs)))
        style.row_axis(axes, [wording.row_label(pair.candidate) for pair in pairs] or [""])
        low, high = _limits([pair for pair in pairs if isinstance(pair, SoundComparison)])
        unit = "ratio of a block, times the mean of its pair (log)"
        style.log_axis(axes, low, high, unit, suffix=numbers.TIMES)
        style.reference_line(axes, 1.0, "the mean of the pair")
        for y, pair in enumerate(pairs):
            if isinstance(pair, SoundComparison):
                _row(axes, y, pair, _flagged(sweep, pair))
            else:
                style.hole(axes, y, 0.72, f"refused: {wording.codes(pair.findings)}")
        if not pairs:
            style.hole(axes, 0, 0.8, "no comparison was planned")
        style.shapes(
            figure,
            (("one block", DOT), ("one block, flagged as an outlier", FLAGGED)),
            ncols=2,
            hollow=frozenset({FLAGGED}),
        )
    return Drawing(
        name="blocks",
        title="Every block as a point",
        alt=_alt(sweep, pairs),
        caption=(
            "Each point is one block: the throughput of a trial over that of the baseline's trial "
            "in the same block, against the mean of all blocks. The first block is at the top of "
            "its row, the last at the bottom, and the bar is the 95 % interval that they give. "
            "No block is left out."
        ),
        columns=COLUMNS,
        rows=tuple(row for pair in pairs for row in _data(sweep, pair))
        or ((*(None,) * 9, "no comparison planned", sweep.name, None),),
        figure=figure,
    )


def _ratios(pair: SoundComparison) -> list[tuple[int, float]]:
    """Block and ratio, in the order of the blocks."""
    return [(block, float(pair.pairs[block].speedup)) for block in sorted(pair.pairs)]


def _flagged(sweep: Sweep, pair: SoundComparison) -> frozenset[int]:
    """Blocks in which the trial of either side strays from its cell."""
    sides = {pair.baseline.id, pair.candidate.id}
    cells = (cell for cell in sweep.cells if cell.cell.id in sides)
    return frozenset(
        block for cell in cells if isinstance(cell, SoundCell) for block in cell.outliers
    )


def _limits(pairs: Sequence[SoundComparison]) -> tuple[float, float]:
    """As wide as the widest pair, with room for words at the right."""
    values = [0.95, 1.05]
    for pair in pairs:
        values += [ratio / pair.speedup.point for _, ratio in _ratios(pair)]
        values += [end / pair.speedup.point for end in (pair.speedup.low, pair.speedup.high)]
    low, high = min(values), max(values)
    return low / (high / low) ** 0.05, high * (high / low) ** 0.75


def _row(axes: Axes, y: int, pair: SoundComparison, flagged: frozenset[int]) -> None:
    mean, ratios = pair.speedup.point, _ratios(pair)
    style.interval(axes, y, pair.speedup.low / mean, pair.speedup.high / mean, style.INK)
    step = 2 * REACH / max(1, len(ratios) - 1)
    for marker, inside, strays in ((DOT, style.BATCH, False), (FLAGGED, style.PAPER, True)):
        shown = [
            (ratio / mean, y - REACH + step * place)
            for place, (block, ratio) in enumerate(ratios)
            if (block in flagged) is strays
        ]
        axes.plot(
            *zip(*shown, strict=True), marker=marker, markersize=3.6, linestyle="none", zorder=5,
            color=style.INK.sentinel, markerfacecolor=inside.sentinel, markeredgewidth=0.7,
        )  # fmt: skip
    right = max(pair.speedup.high, *(ratio for _, ratio in ratios)) / mean
    axes.annotate(
        f"{numbers.ratio(pair.speedup).words}\n{numbers.count(len(ratios), 'block')}",
        (right, y), xytext=(9, 0), textcoords="offset points", va="center",
        fontsize=style.SMALL_PT, linespacing=1.2,
    )  # fmt: skip


def _alt(sweep: Sweep, pairs: Sequence[AnyComparison]) -> str:
    parts = []
    for pair in pairs:
        who = wording.who(pair.candidate)
        if not isinstance(pair, SoundComparison):
            parts.append(f"{who}: refused ({wording.codes(pair.findings)}), drawn as a hole")
            continue
        ratios = [ratio for _, ratio in _ratios(pair)]
        flagged = len(_flagged(sweep, pair) & set(pair.pairs))
        strays = f", {numbers.count(flagged, 'block')} flagged" if flagged else ""
        parts.append(
            f"{who} over {pair.baseline.arm}: {numbers.count(len(ratios), 'block')} from "
            f"{numbers.significant(min(ratios))} to {numbers.significant(max(ratios))}"
            f"{numbers.TIMES}{strays}"
        )
    return f"The ratio of every block. {'; '.join(parts) or 'No comparison was planned'}."


def _data(sweep: Sweep, pair: AnyComparison) -> list[tuple[Value, ...]]:
    names = (pair.baseline.arm, pair.candidate.arm, pair.candidate.slots)
    if not isinstance(pair, SoundComparison):
        return [(*names, *(None,) * 6, wording.codes(pair.findings), sweep.name, None)]
    speedup, flagged = pair.speedup, _flagged(sweep, pair)
    return [
        (
            *(*names, block, ratio, "outlier" if block in flagged else None),
            *(speedup.point, speedup.low, speedup.high, None, sweep.name, speedup.n),
        )
        for block, ratio in _ratios(pair)
    ]
