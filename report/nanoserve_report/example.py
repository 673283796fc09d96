"""One sound speedup to learn reading on: which one, and what is said of it step by step.

The text of `docs/how-to-read.md` holds on any machine; this is the same order on the study's own
numbers. It takes the largest ratio of the first setting that has one with both factors, because
there the second factor has been worn down the furthest.
"""

from __future__ import annotations

from dataclasses import dataclass

from nanoserve_bench.figures import Figures
from nanoserve_bench.soundness import SoundCell, SoundComparison
from nanoserve_bench.statistics import Estimate
from nanoserve_report import numbers, source, wording
from nanoserve_report.study import DevicePage, Section, Study


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """The speedup that is read, with what stands around it.

    Attributes:
        page: The device it was measured on.
        section: Its setting.
        pair: The comparison; both of its factors are there.
        batch: Its first factor.
        slot: Its second.
        alone: The same arm against the same baseline with one slot; None where that is not sound.
        block: The first block that counts: its rows are gone through.
    """

    page: DevicePage
    section: Section
    pair: SoundComparison
    batch: Estimate
    slot: Estimate
    alone: SoundComparison | None
    block: int

    @property
    def name(self) -> str:
        """Both sides."""
        pair = self.pair
        return (
            f"{pair.candidate.arm} with {wording.slots(pair.candidate.slots)} against "
            f"{pair.baseline.arm}"
        )


def choose(study: Study) -> Example | None:
    """The speedup to read; None where no sound one has both factors."""
    for page in study.devices:
        for section in page.sections:
            sweep = section.lead
            rivals = [
                pair
                for pair in sweep.sound_rivals
                if pair.baseline.arm == sweep.plan.headline_baseline
            ]
            whole = [pair for pair in rivals if pair.batch_factor and pair.slot_factor]
            if not whole:
                continue
            pair = max(whole, key=lambda pair: pair.speedup.point)
            if pair.batch_factor is None or pair.slot_factor is None:
                continue
            arm = pair.candidate.arm
            one_slot = (p for p in rivals if (p.candidate.arm, p.candidate.slots) == (arm, 1))
            return Example(
                page=page,
                section=section,
                pair=pair,
                batch=pair.batch_factor,
                slot=pair.slot_factor,
                alone=next(one_slot, None),
                block=min(pair.pairs),
            )
    return None


def product(example: Example) -> str:
    """The ratio and its factors, and that they multiply."""
    batch, slot = numbers.ratio(example.batch), numbers.ratio(example.slot)
    speedup = numbers.ratio(example.pair.speedup)
    return (
        f"{example.name}: {speedup.words}. That is {batch.words} the batch times {slot.words} of "
        "what one row of the baseline produces. The points multiply to the point, because all "
        "three are geometric means over the same blocks."
    )


def second_factor(example: Example) -> str:
    """Where the second factor starts and what company leaves of it."""
    alone, pair = example.alone, example.pair
    if alone is None or alone.slot_factor is None or alone is pair:
        return "There is no sound ratio at one slot to start from."
    start, end = numbers.ratio(alone.slot_factor), numbers.ratio(example.slot)
    return (
        f"At one slot the batch factor is {_point(alone.batch_factor)} and the whole ratio is the "
        f"second factor, {start.words}: what the kernels are worth on one sequence. With "
        f"{wording.slots(pair.candidate.slots)} it is {end.words}. The difference is what "
        "company costs a row."
    )


def queue(example: Example) -> str:
    """The occupancy gotcha with its arithmetic, on the candidate with one slot."""
    sweep = example.section.lead
    cell = next(
        (
            cell
            for cell in sweep.sound_cells
            if (cell.cell.arm, cell.cell.slots) == (example.pair.candidate.arm, 1)
        ),
        None,
    )
    if cell is None or cell.batch_occupancy is None:
        return "The candidate has no sound run with one slot here."
    requests = Figures.of(cell.runs[min(cell.runs)]).requests
    return (
        f"{cell.cell.arm} with one slot reads a system occupancy of "
        f"{numbers.shown(cell.system_occupancy).words} requests and a batch occupancy of "
        f"{numbers.shown(cell.batch_occupancy).words} rows. {requests} requests of one duration, "
        f"all handed over before the first step, would read ({requests} + 1) / 2 = "
        f"{numbers.significant((requests + 1) / 2)} in one slot. The source document's one-slot "
        f"run printed {source.ONE_SLOT_SYSTEM_OCCUPANCY}, which was first taken for a batch."
    )


def interval(example: Example) -> str:
    """What the interval and the A/A envelope make of the point."""
    pair = example.pair
    speedup = numbers.ratio(pair.speedup)
    low, high = pair.envelope
    return (
        f"Over {numbers.count(pair.speedup.n, 'block')} the 95 % interval is {speedup.interval}. "
        f"The baseline against itself strays between {low:.3f} and {high:.3f} on this machine. "
        f"So the verdict is: {pair.verdict}."
    )


def absolutes(example: Example) -> str:
    """Both sides' own figures."""
    cells = {cell.cell.id: cell for cell in example.section.lead.sound_cells}
    sides = [cells.get(cell.id) for cell in (example.pair.candidate, example.pair.baseline)]
    words = [
        f"{side.cell.arm} {numbers.shown(side.throughput).words} tok/s"
        for side in sides
        if side is not None
    ]
    return f"{numbers.enumerate_words(words)}."


def rows(example: Example) -> list[tuple[str, str, str]]:
    """Of one block, both sides: name, the sums over its rows, and the formula with them in it."""
    cells = {cell.cell.id: cell for cell in example.section.lead.sound_cells}
    found = []
    for cell in (example.pair.candidate, example.pair.baseline):
        side = cells.get(cell.id)
        if side is not None and example.block in side.runs:
            found.append(_sums(side, example.block))
    return found


def _sums(cell: SoundCell, block: int) -> tuple[str, str, str]:
    figures = Figures.of(cell.runs[block])
    tokens, wall, served = figures.output_tokens, figures.wall_ns, figures.served_ns
    if served is None:
        said = f"{tokens:,} tokens in {wall:,} ns of wall"
    else:
        said = f"{tokens:,} tokens, {wall:,} ns of wall, {served:,} ns of held slots"
    rate = numbers.significant(float(figures.throughput), 6)
    tex = rf"X = \frac{{{tokens} \cdot 10^9}}{{{wall}}} = {rate.replace(',', '')}"
    batch, slot = figures.batch_occupancy, figures.tokens_per_slot_second
    if batch is not None and slot is not None:
        factors = (numbers.significant(float(value), 6).replace(",", "") for value in (batch, slot))
        first, second = factors
        tex += (
            rf" = \frac{{{served}}}{{{wall}}} \cdot \frac{{{tokens} \cdot 10^9}}{{{served}}}"
            rf" = {first} \cdot {second}"
        )
    return f"{cell.cell.arm}, {wording.slots(cell.cell.slots)}", said, tex


def _point(estimate: Estimate | None) -> str:
    return "not known" if estimate is None else numbers.ratio(estimate).point
