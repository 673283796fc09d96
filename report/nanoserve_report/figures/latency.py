"""Latency against throughput: the slot sweep and the rate sweep on one pair of axes.

Each point is a cell: tokens per second to the right, time per output token upwards. The slot sweep
hands over all requests at once in more and more slots; the rate sweep offers them at a higher and
higher rate in as many slots as there are. Where a doubling of the slots stops paying is the knee:
the last slot count before a doubling whose whole interval lies below break-even.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from nanoserve_bench.soundness import SoundCell, SoundMarginal
from nanoserve_bench.statistics import Worth
from nanoserve_report import loads as loading
from nanoserve_report import numbers, wording
from nanoserve_report.figures import style
from nanoserve_report.figures.drawing import Drawing, Value, blocks_of
from nanoserve_report.loads import Load
from nanoserve_report.sweeps import AnyMarginal, Sweep

COLUMNS = (
    "sweep", "arm", "slots", "offered_requests_per_s", "throughput_tok_per_s", "throughput_low",
    "throughput_high", "tpot_ms", "tpot_ms_low", "tpot_ms_high", "state", "knee", "hole",
    "run", "blocks",
)  # fmt: skip
Knees = dict[str, tuple[int | None, str]]
"""Of each arm: the slots at its knee, and the sentence that says how that is known."""


def draw(sweep: Sweep) -> Drawing:
    """The curve of a sweep that has open loops."""
    loads = loading.loads(sweep)
    arms = list(dict.fromkeys(load.cell.cell.arm for load in loads))
    knees = {arm: knee(sweep, arm) for arm in arms}
    with style.house_style():
        figure, (axes,) = style.blank(3.4)
        axes.set_xlabel("throughput, tokens per second")
        axes.set_ylabel("time per output token, ms")
        axes.grid(color=style.GRID.sentinel, linewidth=0.7)
        axes.set_axisbelow(True)
        for arm in arms:
            _slots(axes, _slot_cells(sweep, arm), knees[arm][0])
            _rates(axes, [load for load in loads if load.cell.cell.arm == arm])
        axes.margins(x=0.25, y=0.16)
        axes.set_ylim(bottom=0)
        style.shapes(
            figure,
            [
                ("slot sweep: all requests at once, n slots", "o"),
                ("rate sweep: open loop, requests per second (hollow: saturated)", "s"),
                ("knee", "*"),
            ],
        )
    return Drawing(
        name="latency",
        title="Latency against throughput",
        alt=_alt(sweep, loads, arms, knees),
        caption=(
            "Circles: all requests at once, in more and more slots. Squares: requests offered in "
            "an open loop at the rates beside them; hollow where the queue still grew at the end. "
            "Lines through a point are its 95 % intervals. "
            f"{_knee_words(knees)}"
        ),
        columns=COLUMNS,
        rows=_data(sweep, loads, arms, knees),
        figure=figure,
    )


def knee(sweep: Sweep, arm: str) -> tuple[int | None, str]:
    """The slots at an arm's knee, and the sentence that says how it is known.

    The knee is where the marginal doubling crosses break-even: the lower side of the first doubling
    that is not worth it. It is None where no doubling is, and then lies beyond what was measured,
    or where the first doubling that is not worth it has one before it that is undecided.
    """
    items: list[AnyMarginal] = sorted(
        (item for item in sweep.marginals if item.lower.arm == arm),
        key=lambda item: item.lower.slots,
    )
    undecided = []
    for item in items:
        step = f"{item.lower.slots} to {item.upper.slots} slots"
        if not isinstance(item, SoundMarginal):
            undecided.append(f"{step} is refused")
        elif item.verdict is Worth.UNDECIDED:
            undecided.append(f"{step} is undecided")
        elif item.verdict is Worth.NOT_WORTH_IT:
            product = numbers.ratio(item.product).words
            if undecided:
                return None, (
                    f"{arm}: the knee lies before {item.upper.slots} slots, and where is not "
                    f"known: {numbers.enumerate_words(undecided)}, and {step} is not worth it "
                    f"({product})"
                )
            return item.lower.slots, (
                f"{arm}: the knee is at {wording.slots(item.lower.slots)}: {step} is not worth it "
                f"({product})"
            )
    if not items:
        return None, f"{arm}: no doubling was measured, so the knee is not known"
    last = wording.slots(items[-1].upper.slots)
    rest = f"; {numbers.enumerate_words(undecided)}" if undecided else ""
    return None, f"{arm}: the knee lies beyond what was measured, which ends at {last}{rest}"


def _knee_words(knees: Knees) -> str:
    """What the star is, where one is drawn."""
    if any(at is not None for at, _ in knees.values()):
        return "The star is the knee: the last slot count before a doubling that is not worth it."
    return "No knee is drawn, because none was found among the slots that were measured."


def _slot_cells(sweep: Sweep, arm: str) -> list[SoundCell]:
    cells = [cell for cell in sweep.sound_cells if cell.cell.arm == arm]
    return sorted(cells, key=lambda cell: cell.cell.slots)


def _slots(axes: Axes, cells: list[SoundCell], at: int | None) -> None:
    known = [cell for cell in cells if cell.tpot is not None]
    points = [
        (cell.throughput.point, 1000 * cell.tpot.point) for cell in known if cell.tpot is not None
    ]
    axes.plot(
        [x for x, _ in points], [y for _, y in points], color=style.BATCH.sentinel, marker="o",
        markersize=5, linewidth=1.4,
    )  # fmt: skip
    for cell, (x, y) in zip(known, points, strict=True):
        _intervals(axes, cell, style.BATCH)
        is_knee = cell.cell.slots == at
        if is_knee:
            axes.plot([x], [y], color=style.INK.sentinel, marker="*", markersize=13, zorder=6)
        words = wording.slots(cell.cell.slots)
        axes.annotate(
            f"knee: {words}" if is_knee else words, (x, y), xytext=(6, -11),
            textcoords="offset points", fontsize=style.SMALL_PT, color=style.BATCH.sentinel,
        )  # fmt: skip


def _rates(axes: Axes, loads: list[Load]) -> None:
    points = []
    for load in loads:
        cell, figures = load.cell, load.figures
        if not isinstance(cell, SoundCell) or cell.tpot is None or figures is None:
            continue
        x, y = cell.throughput.point, 1000 * cell.tpot.point
        points.append((x, y))
        _intervals(axes, cell, style.SLOT)
        axes.plot(
            [x], [y], color=style.SLOT.sentinel, marker="s", markersize=6, zorder=5,
            markerfacecolor=style.PAPER.sentinel if figures.saturated else style.SLOT.sentinel,
        )  # fmt: skip
        axes.annotate(
            f"{numbers.significant(load.rate_per_s)}/s", (x, y), xytext=(-4, 7), ha="right",
            textcoords="offset points", fontsize=style.SMALL_PT, color=style.SLOT.sentinel,
        )  # fmt: skip
    axes.plot(
        [x for x, _ in points], [y for _, y in points], color=style.SLOT.sentinel, linewidth=1.2,
        linestyle=(0, (4, 2)),
    )  # fmt: skip


def _intervals(axes: Axes, cell: SoundCell, role: style.Role) -> None:
    """The 95 % intervals of a point, in both directions."""
    x, y = cell.throughput, cell.tpot
    if y is None:
        return
    across = ([x.low, x.high], [1000 * y.point] * 2)
    upwards = ([x.point] * 2, [1000 * y.low, 1000 * y.high])
    for line in (across, upwards):
        axes.plot(*line, color=role.sentinel, linewidth=1.1, solid_capstyle="butt", zorder=3)


def _alt(sweep: Sweep, loads: tuple[Load, ...], arms: list[str], knees: Knees) -> str:
    parts = []
    for arm in arms:
        for cell in _slot_cells(sweep, arm):
            parts += [f"{arm} in {wording.slots(cell.cell.slots)}: {_place(cell)}"]
    for load in loads:
        who = f"{load.cell.cell.arm} at {loading.words(load)}"
        if not isinstance(load.cell, SoundCell):
            parts.append(f"{who}: refused ({wording.codes(load.cell.findings)})")
        else:
            parts.append(f"{who}: {_place(load.cell)}, {load.state}")
    ends = ". ".join(words for _, words in knees.values())
    return f"Latency against throughput. {'; '.join(parts)}. {ends}."


def _place(cell: SoundCell) -> str:
    tpot = (
        "no token stamps"
        if cell.tpot is None
        else f"{numbers.shown(cell.tpot, scale=1000).point} ms a token"
    )
    return f"{numbers.shown(cell.throughput).point} tok/s, {tpot}"


def _data(
    sweep: Sweep, loads: tuple[Load, ...], arms: list[str], knees: Knees
) -> tuple[tuple[Value, ...], ...]:
    rows: list[tuple[Value, ...]] = []
    for arm in arms:
        for cell in _slot_cells(sweep, arm):
            at = "yes" if cell.cell.slots == knees[arm][0] else "no"
            place = ("slots", arm, cell.cell.slots, None)
            origin = (sweep.name, blocks_of(cell))
            rows.append((*place, *_values(cell), "", at, None, *origin))
    for load in loads:
        names = ("rates", load.cell.cell.arm, load.cell.cell.slots, load.rate_per_s)
        if isinstance(load.cell, SoundCell):
            origin = (sweep.name, blocks_of(load.cell))
            rows.append((*names, *_values(load.cell), load.state, "no", None, *origin))
        else:
            codes = wording.codes(load.cell.findings)
            rows.append((*names, *(None,) * 6, None, None, codes, sweep.name, None))
    return tuple(rows)


def _values(cell: SoundCell) -> tuple[Value, ...]:
    x, y = cell.throughput, cell.tpot
    tpot = (None,) * 3 if y is None else (1000 * y.point, 1000 * y.low, 1000 * y.high)
    return (x.point, x.low, x.high, *tpot)
