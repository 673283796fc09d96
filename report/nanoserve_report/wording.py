"""Sentences made from verdicts: what the site says in words is generated, never typed in.

Every function takes sound things and returns plain text (no markup, so that a page, an alternative
text and a message can all use it).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from nanoserve_bench.plan import Cell, SkippedDevice
from nanoserve_bench.soundness import (
    Finding,
    RefusedComparison,
    SoundCell,
    SoundComparison,
    SoundMarginal,
)
from nanoserve_report import numbers
from nanoserve_report.study import Section, Study
from nanoserve_report.sweeps import AnyMarginal, Sweep

ARROW = "\N{RIGHTWARDS ARROW}"


def slots(number: int) -> str:
    """`1 slot`, `8 slots`."""
    return numbers.count(number, "slot")


def row_label(cell: Cell) -> str:
    """A cell at the row of a figure: the arm, and its slots on a line of their own."""
    return f"{cell.arm}\n{slots(cell.slots)}"


def who(cell: Cell) -> str:
    """`nanoserve at 8 slots`."""
    return f"{cell.arm} at {slots(cell.slots)}"


def count_versions(number: int) -> str:
    """`One version`, `3 versions`."""
    return "One version" if number == 1 else f"{number} versions"


def doublings(items: Sequence[AnyMarginal]) -> list[str]:
    """`4 -> 8` for each, with the arm on a line of its own where there are several."""
    several = len({item.lower.arm for item in items}) > 1
    words = []
    for item in items:
        step = f"{item.lower.slots} {ARROW} {item.upper.slots}"
        words.append(f"{item.lower.arm}\n{step}" if several else step)
    return words


def codes(findings: Iterable[Finding]) -> str:
    """The rules of some findings, each once, sorted."""
    return ", ".join(sorted({finding.rule for finding in findings})) or "no finding recorded"


def wrap(text: str, width: int) -> str:
    """For a drawing: lines of at most `width` characters."""
    return "\n".join(textwrap.wrap(text, width))


def baseline_words(sweep: Sweep) -> str:
    """The headline baseline by name."""
    return sweep.plan.headline_baseline


def not_measured(hole: SkippedDevice) -> str:
    """Why a device is a hole."""
    return f"not measured: {hole.reason}"


def product_words(pair: SoundComparison) -> str:
    """`1.64x (1.60-1.68), which is 4.00x the batch times 0.41x per slot-second`."""
    words = numbers.ratio(pair.speedup).words
    if pair.batch_factor is None or pair.slot_factor is None:
        return f"{words}, {pair.verdict}; its factors are not known"
    batch, slot = numbers.ratio(pair.batch_factor), numbers.ratio(pair.slot_factor)
    return (
        f"{words}, {pair.verdict}, which is {batch.point}{batch.unit} the batch times "
        f"{slot.point}{slot.unit} what one row produced"
    )


def marginal_words(item: SoundMarginal) -> str:
    """`From 4 to 8 slots throughput is multiplied by 1.85 (1.80-1.90): worth it`."""
    product = numbers.ratio(item.product)
    return (
        f"from {item.lower.slots} to {2 * item.lower.slots} slots throughput was multiplied by "
        f"{product.point} ({product.interval}): {item.verdict}"
    )


def doublings_alt(sweep: Sweep) -> str:
    """Every doubling of a sweep in one text, holes included."""
    parts = []
    for item in sweep.marginals:
        if isinstance(item, SoundMarginal):
            parts.append(f"{item.lower.arm}, {marginal_words(item)}")
        else:
            parts.append(
                f"{item.lower.arm}, {item.lower.slots} to {2 * item.lower.slots}: refused, a hole"
            )
    return f"{'; '.join(parts)}." if parts else "No doubling was measured."


def second_factor_alt(section: Section) -> str:
    """The second factor of every doubling on a device."""
    setting, items = section.setting, section.lead.sound_marginals
    several = len({item.lower.arm for item in items}) > 1
    parts = [
        f"{f'{item.lower.arm}, ' if several else ''}"
        f"{item.lower.slots} to {item.upper.slots} slots {numbers.ratio(item.slot_ratio).point}"
        for item in items
        if item.slot_ratio is not None
    ]
    values = ", ".join(parts) if parts else "nothing sound"
    return f"{setting.device} {setting.dtype}: {values}."


def identity_words(cell: SoundCell) -> str:
    """Both factorisations of a cell."""
    throughput = numbers.shown(cell.throughput).point
    system = numbers.significant(cell.system_occupancy.point)
    request = numbers.significant(cell.tokens_per_request_second.point)
    caller = f"{system} requests times {request}"
    if cell.batch_occupancy is None or cell.tokens_per_slot_second is None:
        return f"{throughput} tokens per second is {caller}; its slots are not told"
    batch = numbers.significant(cell.batch_occupancy.point)
    slot = numbers.significant(cell.tokens_per_slot_second.point)
    return f"{throughput} tokens per second is {batch} rows times {slot}, and {caller}"


def reach(sections: Sequence[Section]) -> str:
    """How far the doublings of a device were worth it, workload by workload, in one sentence."""
    arms_of: dict[str, list[str]] = {}
    for section in sections:
        sweep = section.lead
        again = {pair.candidate.arm for pair in sweep.selves}
        requests = {w.name: w.requests for w in sweep.plan.workloads}[section.setting.workload]
        for arm in dict.fromkeys(item.lower.arm for item in sweep.marginals):
            worth = [
                item.upper.slots
                for item in sweep.sound_marginals
                if item.lower.arm == arm and item.verdict.value == "worth it"
            ]
            measured = max(m.upper.slots for m in sweep.marginals if m.lower.arm == arm)
            said = f"up to {slots(max(worth))}" if worth else "none"
            said += ", the most measured," if measured in worth else ""
            said += f" on {section.setting.workload} ({numbers.count(requests, 'request')})"
            arms = arms_of.setdefault(said, [])
            if arm not in {*arms, *again}:
                arms.append(arm)
    parts = [f"{said} for {numbers.enumerate_words(arms)}" for said, arms in arms_of.items()]
    return f"Doublings worth it: {'; '.join(parts)}."


def knee(sweep: Sweep, arm: str) -> str:
    """Where the doublings stop paying: the sentence that leads a page."""
    mine = sorted(
        (item for item in sweep.marginals if item.lower.arm == arm),
        key=lambda item: item.lower.slots,
    )
    by_word: dict[str, list[str]] = {}
    for item in mine:
        word = item.verdict.value if isinstance(item, SoundMarginal) else "refused"
        by_word.setdefault(word, []).append(f"{item.lower.slots} to {item.upper.slots}")
    if set(by_word) <= {"refused"}:
        return f"No doubling of {arm}'s slots has a sound measurement."
    worth = by_word.pop("worth it", [])
    if worth and not by_word:
        most = slots(mine[-1].upper.slots)
        return f"Every doubling measured was worth it, up to {most}; the knee lies beyond."
    first = (
        f"The last doubling worth it is {worth[-1]} slots"
        if worth
        else "No doubling was shown to be worth it"
    )
    rest = [
        f"{numbers.enumerate_words(pairs)} {'is' if len(pairs) == 1 else 'are'} {word}"
        for word, pairs in by_word.items()
    ]
    return f"{'; '.join([first, *rest])}."


VERBS = {
    "faster": ("is faster than", "are faster than"),
    "slower": ("is slower than", "are slower than"),
    "no difference": ("does not differ from", "do not differ from"),
    "undecided": ("cannot be told apart from", "cannot be told apart from"),
}
"""What a verdict says of one candidate, and of several."""


def one_slot(sweep: Sweep, pair: SoundComparison) -> str:
    """What one slot is worth against a baseline, absolutes beside the ratio."""
    ratio = numbers.ratio(pair.speedup)
    return (
        f"At one slot, with no batching in the picture, {pair.candidate.arm} "
        f"{VERBS[pair.verdict][0]} {pair.baseline.arm}: {ratio.words}{absolutes(sweep, pair)}."
    )


def standing(sweep: Sweep) -> str:
    """Where the candidates stand against the headline baseline at the fewest slots; may be empty.

    What leads a sweep in which no slots were doubled.
    """
    pairs = [p for p in sweep.sound_rivals if p.baseline.arm == baseline_words(sweep)]
    if not pairs:
        return ""
    fewest = min(pair.candidate.slots for pair in pairs)
    arms_of: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.candidate.slots == fewest:
            arms_of.setdefault(pair.verdict, []).append(pair.candidate.arm)
    said = [
        f"{numbers.enumerate_words(arms)} {VERBS[verdict][len(arms) > 1]} {baseline_words(sweep)}"
        for verdict, arms in arms_of.items()
    ]
    return f"at {slots(fewest)} {'; '.join(said)}"


def refused(sweep: Sweep) -> str:
    """The comparisons that have no ratio, and by which rules; empty where all have one."""
    pairs = [
        f"{pair.candidate.arm} at {slots(pair.candidate.slots)} over {pair.baseline.arm} "
        f"({codes(pair.findings)})"
        for pair in sweep.rivals
        if isinstance(pair, RefusedComparison)
    ]
    if not pairs:
        return ""
    return f"Refused, and without a ratio: {numbers.enumerate_words(pairs)}."


def unproven(sweep: Sweep) -> str:
    """Which arms stand in a ratio with weights that are declared; empty where all are proven."""
    pairs = [pair for pair in sweep.sound_rivals if not pair.weights_proven]
    arms = sorted({cell.arm for pair in pairs for cell in (pair.baseline, pair.candidate)})
    declared = [
        arm
        for arm in arms
        if any((row.weights or "").startswith("declared:") for row in sweep.launches_of(arm))
    ]
    if not declared:
        return ""
    return (
        f"The weights of {numbers.enumerate_words(declared)} are declared, not proven: a converted "
        "form has no canonical tensors to digest. Its tokens agree all the same."
    )


def gotcha(sweep: Sweep) -> str:
    """The occupancy gotcha, told with this sweep's own value; empty where it does not show."""
    for cell in sweep.sound_cells:
        batch, system = cell.batch_occupancy, cell.system_occupancy
        if cell.cell.slots == 1 and batch is not None and system.point > 1.5 * batch.point:
            return (
                f"{cell.cell.arm} with one slot reads a system occupancy of "
                f"{numbers.significant(system.point)} requests, although one row at a time was "
                f"all that ever ran (batch occupancy {numbers.significant(batch.point)}). The "
                "queue is in the system and in no slot."
            )
    return ""


def best(sweep: Sweep, pair: SoundComparison) -> str:
    """The largest multiple against a baseline, with its absolutes and its factors."""
    return (
        f"The largest ratio to {pair.baseline.arm}, by its point, is {pair.candidate.arm}'s at "
        f"{slots(pair.candidate.slots)}: {product_words(pair)}{absolutes(sweep, pair)}."
    )


def absolutes(sweep: Sweep, pair: SoundComparison) -> str:
    """`, 190 against 15.6 tok/s`; empty where a side has no figure of its own."""
    cells = {cell.cell.id: cell for cell in sweep.sound_cells}
    mine, theirs = cells.get(pair.candidate.id), cells.get(pair.baseline.id)
    if mine is None or theirs is None:
        return ""
    return (
        f", {numbers.shown(mine.throughput).point} against "
        f"{numbers.shown(theirs.throughput).point} tok/s"
    )


def timing_costs(study: Study) -> list[str]:
    """What stamping from inside costs: the untimed system over the timed one."""
    found = []
    for folder in study.folders:
        for sweep in folder.sweeps:
            for pair in sweep.selves:
                if pair.baseline.system == pair.candidate.system:
                    continue
                if not isinstance(pair, SoundComparison):
                    found.append(
                        f"{folder.name}, {sweep.setting.device}: {pair.candidate.arm} over "
                        f"{pair.baseline.arm} is refused ({codes(pair.findings)})."
                    )
                    continue
                ratio = numbers.ratio(pair.speedup)
                found.append(
                    f"{folder.name}, {sweep.setting.device}, {sweep.setting.workload}: "
                    f"{pair.candidate.arm} over {pair.baseline.arm} is {ratio.words}: "
                    f"{pair.verdict}{absolutes(sweep, pair)}."
                )
    return found


def holes(skipped: Iterable[SkippedDevice]) -> str:
    """Which devices are holes, and why; empty where there is none."""
    by_reason: dict[str, list[str]] = {}
    for hole in skipped:
        by_reason.setdefault(hole.reason, []).append(hole.device)
    return " ".join(
        f"{numbers.enumerate_words(devices)} {'was' if len(devices) == 1 else 'were'} not "
        f"measured: {_of_several(reason) if len(devices) > 1 else reason}."
        for reason, devices in by_reason.items()
    )


def _of_several(reason: str) -> str:
    """A reason that speaks of one device, said of several."""
    return f"{reason.removesuffix(' it')} them" if reason.endswith(" it") else reason


def untried(study: Study) -> list[str]:
    """What arms were asked for and could not run, folder by folder, with the reasons."""
    return [
        f"{folder.name}: {hole.arm}"
        f"{f' on {hole.device}, {hole.dtype}' if hole.device else ''}"
        f"{' in ' if hole.workloads else ''}{', '.join(hole.workloads)}: {hole.reason}"
        for folder in reversed(study.folders)
        if folder.plan is not None
        for hole in folder.plan.skipped_arms
    ]


def beside(study: Study) -> str:
    """What is missing without having been refused: holes, and blocks that were run again."""
    arms = sum(
        not hole.workloads
        for folder in study.folders
        if folder.plan is not None
        for hole in folder.plan.skipped_arms
    )
    again = sum(
        len({trial.replaces for trial in folder.results.trials} - {None})
        for folder in study.folders
        if folder.results is not None
    )
    return (
        f"Not measured: {numbers.count(len(study.skipped), 'device')} and "
        f"{numbers.count(arms, 'arm')} that {'was' if arms == 1 else 'were'} asked for. "
        "Run again for contention: "
        f"{numbers.count(again, 'block')}."
    )
