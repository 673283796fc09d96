"""Does a figure reproduce over whole sweeps? The largest point over the smallest, sweep by sweep.

The source document's claim is that the worth of each doubling reproduces while the headline ratio
wanders with the baseline's noise. It is put to the test here, on at least three sweeps of one
setting: reproduced when every doubling keeps its verdict and the doublings spread clearly less than
the headline does (in the logs); reproduced in part when they do and yet a verdict changed; refuted
when they spread as much or more; undecided between.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nanoserve_bench.statistics import Estimate
from nanoserve_report import noise, numbers
from nanoserve_report.figures import style
from nanoserve_report.study import Section

LEAST_SWEEPS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One quantity over the sweeps of a section."""

    quantity: str
    arm: str
    slots: int
    label: str
    role: style.Role
    by_run: Mapping[str, Estimate]
    verdicts: tuple[str, ...]

    @property
    def spread(self) -> float | None:
        """Largest point over smallest; None with fewer than two sweeps."""
        points = [estimate.point for estimate in self.by_run.values()]
        return max(points) / min(points) if len(points) > 1 and min(points) > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """The judgement, in a word and in a sentence."""

    word: str
    sentence: str


def comparable(section: Section) -> bool:
    """Whether at least two sweeps have something sound to set side by side."""
    return len([s for s in section.sweeps if s.sound_rivals or s.sound_marginals]) > 1


Values = dict[tuple[str, int], dict[str, tuple[Estimate, str]]]
"""By arm and slots, and by run: the estimate and its verdict."""


def headline(section: Section) -> tuple[Line, ...]:
    """The speedup of every rival cell over the headline baseline."""
    found: Values = defaultdict(dict)
    for sweep in section.sweeps:
        for pair in sweep.sound_rivals:
            if pair.baseline.arm == sweep.plan.headline_baseline:
                key = (pair.candidate.arm, pair.candidate.slots)
                found[key][sweep.name] = (pair.speedup, pair.verdict)
    return _lines("speedup", found, style.BATCH)


def doublings(section: Section) -> tuple[Line, ...]:
    """The product of every doubling."""
    found: Values = defaultdict(dict)
    for sweep in section.sweeps:
        for item in sweep.sound_marginals:
            found[item.lower.arm, item.lower.slots][sweep.name] = (item.product, item.verdict)
    return _lines("doubling", found, style.SLOT)


def _lines(quantity: str, found: Values, role: style.Role) -> tuple[Line, ...]:
    several = len({arm for arm, _ in found}) > 1
    made = []
    for (arm, slots), values in sorted(found.items()):
        label = f"{slots} \N{RIGHTWARDS ARROW} {2 * slots}"
        if quantity == "speedup":
            label = _slots(slots)
        made.append(
            Line(
                quantity=quantity,
                arm=arm,
                slots=slots,
                label=f"{arm}\n{label}" if several else label,
                role=role,
                by_run={name: estimate for name, (estimate, _) in values.items()},
                verdicts=tuple(word for _, word in values.values()),
            )
        )
    return tuple(made)


def ranges(section: Section) -> str:
    """From which to which point every headline ratio came out, over the sweeps; else empty."""
    lines = [line for line in headline(section) if len(line.by_run) > 1]
    if not lines:
        return ""
    said = []
    for line in lines:
        points = sorted(line.by_run.values(), key=lambda value: value.point)
        low, high = (numbers.ratio(value).point for value in (points[0], points[-1]))
        said.append(f"{low} to {high}{numbers.TIMES} ({line.arm}, {_slots(line.slots)})")
    return (
        f"Over the sweeps of this setting the speedup over "
        f"{section.lead.plan.headline_baseline} came out from {numbers.enumerate_words(said)}."
    )


def _widest(lines: Iterable[Line]) -> Line | None:
    spread = [line for line in lines if len(line.by_run) >= LEAST_SWEEPS and line.spread]
    return max(spread, key=lambda line: line.spread or 0.0, default=None)


def _most_sweeps(lines: Iterable[Line]) -> int:
    """In how many sweeps the best covered line is sound."""
    return max((len(line.by_run) for line in lines), default=0)


def words(section: Section) -> str:
    """The judgement, and which half of the ratios was the noisy one."""
    return f"{verdict(section).sentence} {noise.words(section)}".rstrip()


def verdict(section: Section) -> Reproduction:
    """Whether the doublings reproduce while the headline wanders, in generated words."""
    ratio, doubling = _widest(headline(section)), _widest(doublings(section))
    if ratio is None or doubling is None or ratio.spread is None or doubling.spread is None:
        have = min(_most_sweeps(headline(section)), _most_sweeps(doublings(section)))
        return Reproduction(
            word="not tried",
            sentence=(
                f"Not tried: it takes {LEAST_SWEEPS} sweeps of one setting in which one headline "
                f"ratio and one doubling are sound, and there {'is' if have == 1 else 'are'} "
                f"{numbers.count(have, 'such sweep')}."
            ),
        )
    runs = len(doubling.by_run)
    several = len({line.arm for line in doublings(section)}) > 1
    facts = (
        f"over {runs} sweeps the headline speedup differed by up to a factor of "
        f"{ratio.spread:.2f} ({ratio.arm}, {_slots(ratio.slots)}), the worth of a doubling by up "
        f"to {doubling.spread:.2f} ({_doubling(doubling, several=several)})"
    )
    changed = [line for line in doublings(section) if len(set(line.verdicts)) > 1]
    kept = (
        "every doubling kept its verdict"
        if not changed
        else "the verdict changed on "
        + numbers.enumerate_words([_doubling(line, several=several) for line in changed])
    )
    if doubling.spread >= ratio.spread:
        word = "refuted"
    elif math.log(ratio.spread) <= noise.NOISIER * math.log(doubling.spread):
        word = "undecided"
    else:
        word = "reproduced in part" if changed else "reproduced"
    return Reproduction(word=word, sentence=f"{word.capitalize()}: {facts}; {kept}.")


def _doubling(line: Line, *, several: bool) -> str:
    return f"{f'{line.arm}, ' if several else ''}{line.slots} to {2 * line.slots} slots"


def _slots(slots: int) -> str:
    return numbers.count(slots, "slot")
