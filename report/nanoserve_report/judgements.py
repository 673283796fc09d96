"""How each claim of the source document came out here: a word, and the sentence behind it.

Every function is the rule that the page of claims prints beside its claim. What nothing sound was
measured for is not tried.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nanoserve_bench.soundness import RefusedComparison, SoundCell, SoundComparison
from nanoserve_bench.statistics import Estimate, Outcome, Worth
from nanoserve_report import noise, numbers, source, spread
from nanoserve_report.study import Section, Study
from nanoserve_report.sweeps import Sweep

REPRODUCED, REFUTED, UNDECIDED, NOT_TRIED = "reproduced", "refuted", "undecided", "not tried"
ENGINE = "nanoserve"
OPPOSITES = {(Worth.WORTH_IT, Worth.NOT_WORTH_IT), (Worth.NOT_WORTH_IT, Worth.WORTH_IT)}
FREE_RIDE = 0.9
"""A second factor at or above this counts as "near 1.0"."""
REPEATS = 1.03
"""A throughput that differs by no more than this factor "repeated within 3 %"."""
SAME_BATCH = 0.01
"""A mean batch within this share of the slot count counts as "exactly the slot count"."""


Judged = tuple[str, str]
NOTHING: Judged = (NOT_TRIED, "Nothing sound was measured on this workload.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What the claims are put to: a study, and of it the section that they are about."""

    study: Study
    section: Section | None

    @property
    def sweep(self) -> Sweep | None:
        """The section's newest sweep."""
        return None if self.section is None else self.section.lead


def _pair(sweep: Sweep, slots: int) -> SoundComparison | None:
    for pair in sweep.sound_rivals:
        place = (pair.candidate.arm, pair.candidate.slots, pair.baseline.arm)
        if place == (ENGINE, slots, sweep.plan.headline_baseline):
            return pair
    return None


def reproduction(ground: Ground) -> Judged:
    """By the spread of the doublings over all sweeps, against that of the headline."""
    section = ground.section
    if section is None:
        return NOTHING
    found = spread.verdict(section)
    return found.word, (
        f"{found.sentence} In the document the headline ranged from {source.HEADLINE_RANGE[0]:.2f} "
        f"to {source.HEADLINE_RANGE[1]:.2f}{numbers.TIMES} over three sweeps."
    )


def noisy_half(ground: Ground) -> Judged:
    """By the scatter of both sides from block to block, over all sweeps."""
    section = ground.section
    if section is None:
        return NOTHING
    found = noise.scatters(section)
    baseline, engine = found.get(section.lead.plan.headline_baseline), found.get(ENGINE)
    if baseline is None or engine is None:
        return NOT_TRIED, "Not both sides have sound blocks."
    noisy = noise.noisier(baseline, engine)
    word = UNDECIDED if noisy is None else REPRODUCED if noisy is baseline else REFUTED
    tokens = numbers.enumerate_words([f"{rate:.2f}" for rate in source.BASELINE_RATES])
    mine = numbers.enumerate_words([f"{rate:.2f}" for rate in source.FOUR_SLOT_RATES])
    return word, (
        f"{noise.words(section)} The document's three sweeps put the baseline at {tokens} tok/s "
        f"and its engine at four slots at {mine}."
    )


def same_speed(ground: Ground) -> Judged:
    """By the verdict of the ratio at one slot."""
    sweep = ground.sweep
    pair = None if sweep is None else _pair(sweep, 1)
    if pair is None:
        return NOTHING
    word = {Outcome.NO_DIFFERENCE: REPRODUCED, Outcome.UNDECIDED: UNDECIDED}.get(
        pair.verdict, REFUTED
    )
    ratio = numbers.ratio(pair.speedup)
    return word, (
        f"At one slot {ENGINE} over {pair.baseline.arm} is {ratio.words}: {pair.verdict}. The "
        f"document's three sweeps gave {_list(source.SINGLE_SLOT_RATIOS)}."
    )


def knee(ground: Ground) -> Judged:
    """By the verdicts of the three doublings."""
    sweep = ground.sweep
    if sweep is None:
        return NOTHING
    measured = {i.lower.slots: i for i in sweep.sound_marginals if i.lower.arm == ENGINE}
    rows = [(quoted, measured.get(quoted.slots)) for quoted in source.DOUBLINGS]
    if any(item is None for _, item in rows):
        return NOT_TRIED, "Not every one of the three doublings has a sound measurement."
    pairs = [(Worth(quoted.verdict), item) for quoted, item in rows if item is not None]
    words = numbers.enumerate_words(
        [
            f"{item.lower.slots} to {2 * item.lower.slots} slots "
            f"{numbers.ratio(item.product).words}, {item.verdict}"
            for _, item in pairs
        ]
    )
    if all(quoted is item.verdict for quoted, item in pairs):
        word = REPRODUCED
    elif any((quoted, item.verdict) in OPPOSITES for quoted, item in pairs):
        word = REFUTED
    else:
        word = UNDECIDED
    return word, f"Measured: {words}."


def same_tokens(ground: Ground) -> Judged:
    """By what the gate found of the token ids at every slot count."""
    sweep = ground.sweep
    pairs = [] if sweep is None else [p for p in sweep.headline_rivals if p.candidate.arm == ENGINE]
    if not pairs:
        return NOTHING
    refused = [pair for pair in pairs if isinstance(pair, RefusedComparison)]
    if not refused:
        counts = numbers.enumerate_words([str(pair.candidate.slots) for pair in pairs])
        return REPRODUCED, f"The gate found the token ids equal at {counts} slots, in every block."
    diverging = [f for pair in refused for f in pair.findings if f.position is not None]
    if diverging:
        return REFUTED, f"{diverging[0].place}: {diverging[0].message}"
    return NOT_TRIED, f"{numbers.count(len(refused), 'comparison')} refused for another reason."


def gotcha(ground: Ground) -> Judged:
    """By the two occupancies at one slot."""
    sweep = ground.sweep
    cells = [] if sweep is None else _engine_cells(sweep)
    cell = next((cell for cell in cells if cell.cell.slots == 1), None)
    if cell is None or cell.batch_occupancy is None:
        return NOTHING
    system, batch = cell.system_occupancy.point, cell.batch_occupancy.point
    shown = abs(batch - 1) <= 2 * SAME_BATCH and system > 1.5
    return (REPRODUCED if shown else REFUTED), (
        f"Here one slot reads a system occupancy of {system:.2f} and a batch occupancy of "
        f"{batch:.4f}; the document's reads {source.ONE_SLOT_SYSTEM_OCCUPANCY}."
    )


def mean_batch(ground: Ground) -> Judged:
    """By the batch occupancy at every slot count."""
    sweep = ground.sweep
    cells = [] if sweep is None else _engine_cells(sweep)
    known = [
        (cell.cell.slots, cell.batch_occupancy.point)
        for cell in cells
        if cell.batch_occupancy is not None
    ]
    if not known:
        return NOTHING
    exact = all(abs(batch / slots - 1) <= SAME_BATCH for slots, batch in known)
    words = numbers.enumerate_words([f"{batch:.4f} at {slots}" for slots, batch in known])
    return (REPRODUCED if exact else REFUTED), (
        f"Batch occupancy by slots: {words}. The document's: "
        f"{_by_slots(source.BATCH_OCCUPANCIES, '.4f')}."
    )


def arithmetic(ground: Ground) -> Judged:
    """By the shares of the two ceilings at two slots."""
    sweep = ground.sweep
    cells = [] if sweep is None else _engine_cells(sweep)
    known = {
        cell.cell.slots: (cell.read_share, cell.matrix_share)
        for cell in cells
        if cell.read_share is not None and cell.matrix_share is not None
    }
    if 2 not in known:
        return NOT_TRIED, "No sound run with two slots has its ceilings beside it."
    read, multiplied = known[2]
    if multiplied.low > read.high:
        word = REPRODUCED
    else:
        word = REFUTED if multiplied.high < read.low else UNDECIDED
    words = numbers.enumerate_words(
        [
            f"{_share(one)} of the read bandwidth and {_share(other)} of the matrix rate at {slots}"
            for slots, (one, other) in known.items()
        ]
    )
    return word, f"By slots the engine used {words}."


def _share(estimate: Estimate) -> str:
    shown = numbers.percent(estimate)
    return f"{shown.point}{shown.unit} ({shown.interval})"


def stamping(ground: Ground) -> Judged:
    """By the newest pair of generate with its stamp and without."""
    study = ground.study
    pairs = [
        pair
        for folder in study.folders
        for sweep in folder.sweeps
        for pair in sweep.sound_selves
        if pair.baseline.system != pair.candidate.system
    ]
    if not pairs:
        return NOT_TRIED, "No sound run sets generate with its stamp against generate without."
    pair = pairs[-1]
    word = {Outcome.NO_DIFFERENCE: REPRODUCED, Outcome.UNDECIDED: UNDECIDED}.get(
        pair.verdict, REFUTED
    )
    ratio = numbers.ratio(pair.speedup)
    return word, f"{pair.candidate.arm} over {pair.baseline.arm} is {ratio.words}: {pair.verdict}."


def repeats(ground: Ground) -> Judged:
    """By the engine's throughput from sweep to sweep."""
    section = ground.section
    points: dict[int, list[float]] = defaultdict(list)
    for sweep in () if section is None else section.sweeps:
        for cell in _engine_cells(sweep):
            points[cell.cell.slots].append(cell.throughput.point)
    factors = {
        slots: max(found) / min(found)
        for slots, found in sorted(points.items())
        if len(found) >= spread.LEAST_SWEEPS
    }
    if not factors:
        return NOT_TRIED, f"It takes {spread.LEAST_SWEEPS} sweeps of one setting."
    word = REPRODUCED if max(factors.values()) <= REPEATS else REFUTED
    return word, (
        "From sweep to sweep the engine's throughput differed by up to a factor of "
        f"{_by_slots(factors, '.2f')} slots."
    )


def prefill(ground: Ground) -> Judged:
    """By the ratios of the waits for a first token at one slot and at the most."""
    sweep = ground.sweep
    if sweep is None:
        return NOTHING
    baseline = sweep.plan.headline_baseline
    pairs = [
        pair
        for pair in sweep.sound_rivals
        if (pair.candidate.arm, pair.baseline.arm) == (ENGINE, baseline)
        and pair.prefill_ratio is not None
    ]
    pairs.sort(key=lambda pair: pair.candidate.slots)
    if len(pairs) < 2 or pairs[0].candidate.slots != 1:
        return NOTHING
    one, most = pairs[0].prefill_ratio, pairs[-1].prefill_ratio
    if one is None or most is None:
        return NOTHING
    word = REPRODUCED if most.high < one.low else REFUTED if most.point >= one.point else UNDECIDED
    words = numbers.enumerate_words(
        [
            f"{numbers.ratio(pair.prefill_ratio).words} at {pair.candidate.slots}"
            for pair in pairs
            if pair.prefill_ratio is not None
        ]
    )
    return word, (
        f"The baseline's {sweep.first_token_wait(baseline)} over the engine's prefill, by slots: "
        f"{words}. The document's: {_by_slots(source.PREFILL_RATIOS, '.2f', numbers.TIMES)}."
    )


def card(ground: Ground) -> Judged:
    """By the second factors of every doubling on a card."""
    study = ground.study
    sections = [
        s for s in study.sections if s.setting.device != "cpu" and s.lead.sound_marginals
    ]  # fmt: skip
    if not sections:
        return NOT_TRIED, "No card has been measured."
    ratios = [
        (section, item, item.slot_ratio)
        for section in sections
        for item in section.lead.sound_marginals
        if item.slot_ratio is not None
    ]
    if not ratios:
        return NOT_TRIED, "No card's slots are told."
    section, item, least = min(ratios, key=lambda entry: entry[2].point)
    if all(ratio.low >= FREE_RIDE for _, _, ratio in ratios):
        word = REPRODUCED
    else:
        word = REFUTED if any(ratio.high < FREE_RIDE for _, _, ratio in ratios) else UNDECIDED
    return word, (
        f"The least second factor on a card is {numbers.ratio(least).words}: "
        f"{section.setting.device}, {section.setting.dtype}, {item.lower.arm} from "
        f"{item.lower.slots} to {2 * item.lower.slots} slots ({section.setting.workload})."
    )


def _engine_cells(sweep: Sweep) -> list[SoundCell]:
    cells = [cell for cell in sweep.sound_cells if cell.cell.arm == ENGINE]
    return sorted(cells, key=lambda cell: cell.cell.slots)


def _by_slots(values: dict[int, float], style: str, unit: str = "") -> str:
    return numbers.enumerate_words([f"{v:{style}}{unit} at {n}" for n, v in values.items()])


def _list(values: tuple[float, ...]) -> str:
    return numbers.enumerate_words([f"{value:.2f}{numbers.TIMES}" for value in values])
