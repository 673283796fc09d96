"""The source document's claims set beside what was measured here: reproduced, refuted, not tried.

Each word is computed from verdicts by a rule that the page prints beside it. The claims are about
the CPU and the `day44` workload unless they say otherwise; a claim for which nothing sound was
measured is not tried.
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
ENGINE, WORKLOAD = "nanoserve", "day44"
OPPOSITES = {(Worth.WORTH_IT, Worth.NOT_WORTH_IT), (Worth.NOT_WORTH_IT, Worth.WORTH_IT)}
FREE_RIDE = 0.9
"""A second factor at or above this counts as "near 1.0"."""
REPEATS = 1.03
"""A throughput that differs by no more than this factor "repeated within 3 %"."""
SAME_BATCH = 0.01
"""A mean batch within this share of the slot count counts as "exactly the slot count"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim, the rule that judges it, and how it came out here."""

    name: str
    quote: str
    rule: str
    word: str
    finding: str


def concern(study: Study) -> bool:
    """Whether the claims are about this study: its engine takes part, or nothing has been run."""
    plans = [folder.plan for folder in study.folders if folder.plan is not None]
    return not plans or any(arm.system == ENGINE for plan in plans for arm in plan.arms)


def section_of(study: Study) -> Section | None:
    """The section that the claims are put to: the day's workload on a CPU, most sweeps first."""
    sections = [
        section
        for section in study.sections
        if (section.setting.device, section.setting.workload) == ("cpu", WORKLOAD)
        and section.lead.sound_cells
    ]
    return max(sections, key=lambda section: len(section.sweeps), default=None)


def judge(study: Study) -> tuple[Claim, ...]:
    """All claims, in the order of the document."""
    section = section_of(study)
    sweep = None if section is None else section.lead
    return (
        _claim(
            "Same speed at one slot",
            "At one slot this engine and transformers are the same speed",
            "reproduced if the ratio at one slot is no difference; refuted if faster or slower",
            _same_speed(sweep),
        ),
        _claim(
            "The knee is at four slots",
            "The knee is at four slots and it goes backwards at eight.",
            "reproduced if 1 to 2 and 2 to 4 slots are worth it and 4 to 8 is not; refuted if any "
            "of the three is the opposite",
            _knee(sweep),
        ),
        _claim(
            "The same tokens",
            "all four slot counts agreed with transformers token for token on the real model",
            "reproduced if the gate passes every slot count against the baseline; refuted if a "
            "token differs",
            _same_tokens(sweep),
        ),
        _claim(
            "Occupancy is not batch size",
            "the one-slot run printed an occupancy of 4.83, which is impossible for a single row",
            "reproduced if one slot reads a batch of 1 and a system occupancy above 1.5",
            _gotcha(sweep),
        ),
        _claim(
            "The mean batch is the slot count",
            "The mean batch came out at exactly the slot count, and that is a result.",
            "reproduced if every slot count's batch occupancy is within 1 % of it",
            _mean_batch(sweep),
        ),
        _claim(
            "A row more is arithmetic, not a free ride",
            "CPU fp32 GEMMs are compute-bound, so a row added to the batch is arithmetic that was "
            "not being done before rather than arithmetic riding along in a memory-bound gap.",
            "reproduced if at two slots the engine uses more of the matrix rate than of the read "
            "bandwidth; refuted if less; undecided where the intervals overlap",
            _arithmetic(sweep),
        ),
        _claim(
            "A stamp from inside changes nothing",
            "It stamps, returns the scores untouched, and the generation being measured is the "
            "generation that would have happened anyway.",
            "reproduced if generate without the stamp is no different from generate with it; "
            "refuted if it is faster or slower",
            _stamping(study),
        ),
        _claim(
            "Company costs the prefill",
            "put HF\u2019s TTFT next to this engine\u2019s prefill (1.09x, 1.05x, 0.99x, 0.74x "
            "across the sweep)",
            "reproduced if the ratio at the most slots lies wholly below the one at one slot; "
            "refuted if it does not lie below",
            _prefill(sweep),
        ),
        _claim(
            "The doublings reproduce, the headline wanders",
            "The baseline is the noisy half, and the marginal numbers are the ones that reproduce.",
            "at least three sweeps; reproduced if every doubling keeps its verdict and the "
            f"headline spreads more than {noise.NOISIER:g} times as much as the doublings (in the "
            "logs), in part if it does and a verdict changes; refuted if the doublings spread as "
            "much or more",
            _reproduction(section),
        ),
        _claim(
            "The engine repeats within 3 %",
            "this engine\u2019s own throughput at each slot count repeated within 3% every time "
            "(3.96 / 4.01 / 3.88 at four slots)",
            f"at least {spread.LEAST_SWEEPS} sweeps; reproduced if at no slot count the throughput "
            f"differs by more than a factor of {REPEATS}; refuted if at one it does",
            _repeats(section),
        ),
        _claim(
            "The baseline is the noisy half",
            "the headline speedup inherits all of the baseline\u2019s noise",
            "reproduced if the baseline's throughput scatters from block to block more than "
            f"{noise.NOISIER:g} times as much as the engine's, over all sweeps; refuted if the "
            "engine's scatters so much more",
            _noisy_half(section),
        ),
        _claim(
            "On a card the second factor stays near 1",
            "On a card [...] the second factor stays near 1.0, and the batch gain flows through "
            "almost undiluted.",
            f"reproduced if every doubling on a card keeps a second factor of at least {FREE_RIDE};"
            " refuted if one lies wholly below",
            _card(study),
        ),
    )


def _claim(name: str, quote: str, rule: str, judged: tuple[str, str]) -> Claim:
    word, finding = judged
    return Claim(name=name, quote=quote, rule=rule, word=word, finding=finding)


Judged = tuple[str, str]
NOTHING: Judged = (NOT_TRIED, "Nothing sound was measured on this workload.")


def _pair(sweep: Sweep, slots: int) -> SoundComparison | None:
    for pair in sweep.sound_rivals:
        place = (pair.candidate.arm, pair.candidate.slots, pair.baseline.arm)
        if place == (ENGINE, slots, sweep.plan.headline_baseline):
            return pair
    return None


def _reproduction(section: Section | None) -> Judged:
    if section is None:
        return NOTHING
    found = spread.verdict(section)
    return found.word, (
        f"{found.sentence} In the document the headline ranged from {source.HEADLINE_RANGE[0]:.2f} "
        f"to {source.HEADLINE_RANGE[1]:.2f}{numbers.TIMES} over three sweeps."
    )


def _noisy_half(section: Section | None) -> Judged:
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


def _same_speed(sweep: Sweep | None) -> Judged:
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


def _knee(sweep: Sweep | None) -> Judged:
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


def _same_tokens(sweep: Sweep | None) -> Judged:
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


def _gotcha(sweep: Sweep | None) -> Judged:
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


def _mean_batch(sweep: Sweep | None) -> Judged:
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


def _arithmetic(sweep: Sweep | None) -> Judged:
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


def _stamping(study: Study) -> Judged:
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


def _repeats(section: Section | None) -> Judged:
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


def _prefill(sweep: Sweep | None) -> Judged:
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


def _card(study: Study) -> Judged:
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
