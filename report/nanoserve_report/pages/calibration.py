"""The calibration page: whether the statistics keep their word, on the noise of real blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nanoserve_bench.calibration import document
from nanoserve_bench.calibration.records import (
    JUDGED_PAIRS,
    LEAST_HELD,
    MOST_FALSE,
    MOST_HELD,
    Calibration,
    Outcomes,
    Share,
    SourceFacts,
)
from nanoserve_bench.calibration.study import Arms
from nanoserve_report import numbers
from nanoserve_report.book import Book
from nanoserve_report.calibrations import RefusedCalibration, SoundCalibration
from nanoserve_report.figures import calibration as figure
from nanoserve_report.links import Linker
from nanoserve_report.study import Study
from nanoserve_report.views import calibration as tables

PAGE = "results/calibration.md"


def write(book: Book, study: Study) -> None:
    """Add the page, and the files of every calibration that stands."""
    linker = book.linker(PAGE)
    sound = [item for item in study.calibrations if isinstance(item, SoundCalibration)]
    refused = [item for item in study.calibrations if isinstance(item, RefusedCalibration)]
    for item in sound:
        for name, content in document.files_of(item.record).items():
            book.add(tables.data_path(name), content.encode())
    book.page(
        PAGE,
        "calibration.md.jinja",
        linker,
        targets=target_words(),
        refused=[{"name": item.name, "problems": item.problems} for item in refused],
        calibrations=[_calibration(book, item.record, linker) for item in sound],
    )


def target_words() -> str:
    """What is asked of the statistics."""
    return (
        f"At most {100 * MOST_FALSE:g} % of studies in which nothing differs may be called faster "
        f"or slower, and the nominal 95 % interval has to hold the truth in {100 * LEAST_HELD:g} "
        f"to {100 * MOST_HELD:g} % of studies. The targets are put to noise of at least "
        f"{JUDGED_PAIRS} pairs."
    )


def _calibration(book: Book, record: Calibration, linker: Linker) -> dict[str, Any]:
    return {
        "name": record.name,
        "met": bool(record.judged) and not record.missed,
        "standing": standing(record),
        "studies": f"{record.studies:,}",
        "kinds": str(len(record.outcomes)),
        "seed": str(record.seed),
        "noise": tables.noise(record),
        "inputs": tables.inputs(record, linker),
        "command": command(record),
        "files": tables.files(record.name, linker),
        "sources": [_source(book, record, facts, linker) for facts in record.sources],
    }


def _source(book: Book, record: Calibration, facts: SourceFacts, linker: Linker) -> dict[str, Any]:
    return {
        "title": tables.source_words(facts),
        "anchor": tables.anchor(facts),
        "sentences": sentences(record, facts),
        "figure": book.drawing(figure.draw(record, facts), tables.anchor(facts), linker),
        "verdicts": tables.verdicts(record, facts.name),
        "coverage": tables.coverage(record, facts.name),
        "methods": tables.methods(record, facts.name),
    }


def command(record: Calibration) -> str:
    """What makes the same bytes again."""
    folders = " ".join(f"bench/results/{item.run_id}" for item in record.inputs)
    return (
        f"nanoserve-bench calibrate {folders} --name {record.name} --studies {record.studies} "
        f"--seed {record.seed}"
    )


def standing(record: Calibration) -> str:
    """The lead: whether the targets are met, what they are not put to, and what is found of a gain.

    The three belong together: a false verdict is rare wherever hardly anything gets a verdict.
    """
    return " ".join([_targets(record), *_not_put(record), *_power(record)])


def _targets(record: Calibration) -> str:
    """Whether the targets are met, and by how much; what misses them is named."""
    if not record.judged:
        return "No source has enough pairs for the targets to be put to it."
    rows = [row for row in record.judged if row.stated]
    if not record.missed:
        calls = [row.share(row.faster + row.slower) for row in rows if row.effect == 1]
        worst = max(calls, key=lambda share: share.point)
        low, high = _span([row.share(row.held) for row in rows])
        return (
            f"The targets are met by all {len(record.judged)} kinds of study that they are put to. "
            f"Where nothing differs, at most {numbers.simulated(worst).words} of studies were "
            f"called faster or slower; the intervals held the truth in {low} to {high} of studies."
        )
    missed = numbers.enumerate_words([_missed(row) for row in record.missed])
    of = f"{len(record.missed)} of the {len(record.judged)} kinds of study that the targets are put"
    return f"{of} to miss one: {missed}."


def _not_put(record: Calibration) -> Iterator[str]:
    """The kinds that no target is put to, and the least that their intervals held."""
    judged = set(record.judged)
    rows = [row for row in record.outcomes if row not in judged]
    if not rows:
        return
    facts = [source for source in record.sources if not source.judged]
    noise = numbers.enumerate_words([tables.source_words(source) for source in facts])
    words = (
        f"To {len(rows)} more kinds no target is put, for want of pairs: those of the noise of "
        f"{noise}"
    )
    stated = [row for row in rows if row.stated]
    if not stated:
        yield f"{words}; every one of those studies was refused."
        return
    low, _ = _span([row.share(row.held) for row in stated])
    outside = sum(not row.meets for row in rows)
    yield (
        f"{words}. Their intervals held the truth in as little as {low} of studies, and {outside} "
        f"of the {len(rows)} kinds would miss a target."
    )


def _power(record: Calibration) -> Iterator[str]:
    """How often a true gain is found, under each stopping rule, over all kinds of study."""
    found = [row for row in record.outcomes if row.effect != 1 and row.stated]
    for truth in dict.fromkeys(tables.truth_words(row) for row in found):
        true = [row for row in found if tables.truth_words(row) == truth]
        parts = []
        for rule in dict.fromkeys(tables.rule_words(row) for row in true):
            rows = [row for row in true if tables.rule_words(row) == rule]
            low, high = _span([row.share(row.faster) for row in rows])
            least, most = _span([row.share(row.bare_faster) for row in rows])
            parts.append(
                f"under {rule} in {low} to {high} of studies with the envelope, and in {least} to "
                f"{most} without it"
            )
        yield (
            f"A candidate that is {truth} is called faster, depending on the noise, "
            f"{'; '.join(parts)}."
        )


def _span(shares: Sequence[Share]) -> tuple[str, str]:
    """The least and the greatest share, in words."""
    low, high = (pick(shares, key=lambda share: share.point) for pick in (min, max))
    return numbers.simulated(low).words, numbers.simulated(high).words


def _missed(row: Outcomes) -> str:
    kind = (
        f"{tables.rule_words(row)}, drawn {tables.drawing_words(row.run_length)}, A/A arm shares "
        f"{tables.arms_words(row)}, {tables.truth_words(row)}"
    )
    if not row.stated:
        return f"{kind} (every study was refused)"
    called = numbers.simulated(row.share(row.faster + row.slower)).words
    held = numbers.simulated(row.share(row.held)).words
    return f"{kind} (called {called}, held {held})" if row.effect == 1 else f"{kind} (held {held})"


def sentences(record: Calibration, facts: SourceFacts) -> list[str]:
    """What the envelope costs and buys under each stopping rule, and what no target is put to."""
    rows = [row for row in tables.rows_of(record, facts.name) if row.stated]
    return [*_envelope_sentences(rows, facts), *_factor_sentences(rows), *_unjudged(rows, facts)]


def _envelope_sentences(rows: Sequence[Outcomes], facts: SourceFacts) -> Iterator[str]:
    """Of studies whose blocks are drawn one by one, the A/A arm as near to a real one's as is."""
    arms = Arms.SHARED if facts.judged else Arms.APART
    plain = [row for row in rows if row.run_length == 1 and row.arms == arms]
    for rule in dict.fromkeys(tables.rule_words(row) for row in plain):
        kinds = [row for row in plain if tables.rule_words(row) == rule]
        same = next((row for row in kinds if row.effect == 1), None)
        other = next((row for row in kinds if row.effect != 1), None)
        if same is None or other is None:
            continue
        bare, called = same.bare_faster + same.bare_slower, same.faster + same.slower
        yield (
            f"{rule.capitalize()}: where nothing differs, the envelope takes false verdicts from "
            f"{_words(same, bare)} to {_words(same, called)} of studies; a candidate that is "
            f"{tables.truth_words(other)} is called faster in {_words(other, other.faster)}, and "
            f"without the envelope in {_words(other, other.bare_faster)}."
        )


def _factor_sentences(rows: Sequence[Outcomes]) -> Iterator[str]:
    """The factors whose intervals hold more or less than is asked of the ratio's."""
    for name, held in tables.FACTORS:
        shares = [row.share(count) for row in rows if (count := held(row)) is not None]
        low, high = (
            pick(shares, key=lambda share: share.point, default=None) for pick in (min, max)
        )
        if low is None or high is None:
            continue
        between = f"{numbers.simulated(low).words} to {numbers.simulated(high).words} of studies"
        if low.point < LEAST_HELD:
            yield f"The intervals of the {name} held the truth in {between}: partly too narrow."
        elif high.point > MOST_HELD:
            yield (
                f"The intervals of the {name} held the truth in {between}: wider than they need be."
            )


def _unjudged(rows: Sequence[Outcomes], facts: SourceFacts) -> Iterator[str]:
    if facts.judged:
        return
    outside = [row for row in rows if not row.meets]
    words = f"{len(outside)} of {len(rows)} kinds of study would miss"
    if outside:
        words += f": {numbers.enumerate_words([_missed(row) for row in outside])}"
    yield f"With fewer than {JUDGED_PAIRS} pairs no target is put to this noise; {words}."


def _words(row: Outcomes, count: int) -> str:
    return numbers.simulated(row.share(count)).words
