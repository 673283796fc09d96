"""The ladder: every candidate against the weakest and against the strongest of its baselines.

A speedup over one request at a time persuades nobody. Where a study states ratios against several
baselines, the lowest ratio is the one over the strongest of them, and stands beside the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanoserve_bench.plan import Cell
from nanoserve_bench.soundness import RefusedComparison, SoundComparison
from nanoserve_bench.statistics import Outcome
from nanoserve_report import numbers, wording
from nanoserve_report.sweeps import AnyComparison, Sweep


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """A candidate with all its baselines, in the order of the plan; at least two of them."""

    candidate: Cell
    pairs: tuple[AnyComparison, ...]

    @property
    def sound(self) -> tuple[SoundComparison, ...]:
        """Those that have a ratio."""
        return tuple(pair for pair in self.pairs if isinstance(pair, SoundComparison))

    @property
    def refused(self) -> tuple[RefusedComparison, ...]:
        """Those that have none: any of them may be the strongest, and nobody knows."""
        return tuple(pair for pair in self.pairs if isinstance(pair, RefusedComparison))

    @property
    def against_weakest(self) -> SoundComparison | None:
        """The highest ratio; None where none is sound."""
        return max(self.sound, key=lambda pair: pair.speedup.point, default=None)

    @property
    def against_best(self) -> SoundComparison | None:
        """The lowest ratio; None where none is sound."""
        return min(self.sound, key=lambda pair: pair.speedup.point, default=None)

    @property
    def shown(self) -> AnyComparison:
        """What the row stands on: a sound pair, or the first refused one."""
        return self.against_best or self.pairs[0]


def rungs(sweep: Sweep) -> tuple[Rung, ...]:
    """The candidates of a sweep that have more than one baseline, in the order of its cells."""
    found: dict[str, list[AnyComparison]] = {}
    for pair in sweep.rivals:
        found.setdefault(pair.candidate.id, []).append(pair)
    return tuple(
        Rung(candidate=pairs[0].candidate, pairs=tuple(pairs))
        for pairs in found.values()
        if len(pairs) > 1
    )


def words(items: Sequence[Rung]) -> list[str]:
    """For each candidate's arm: at which slots it wins and loses against its best baseline."""
    lines = []
    for arm in dict.fromkeys(rung.candidate.arm for rung in items):
        of_arm = [rung for rung in items if rung.candidate.arm == arm]
        parts = []
        for outcome, verb in _VERBS.items():
            slots = [
                f"{rung.candidate.slots} ({best.baseline.arm}, {numbers.ratio(best.speedup).words})"
                for rung in of_arm
                if (best := rung.against_best) is not None and best.verdict is outcome
            ]
            if slots:
                parts.append(f"{verb} at {numbers.enumerate_words(slots)}")
        holes = [str(rung.candidate.slots) for rung in of_arm if rung.against_best is None]
        if holes:
            parts.append(f"a hole at {numbers.enumerate_words(holes)}")
        lines.append(f"{arm} against the best of its baselines, by slots: {'; '.join(parts)}.")
    return lines


_VERBS = {
    Outcome.SLOWER: "slower",
    Outcome.NO_DIFFERENCE: "no different",
    Outcome.UNDECIDED: "undecided",
    Outcome.FASTER: "faster",
}
"""Losses first: they are what a reader of speedups looks for."""


def not_counted(rung: Rung) -> str:
    """Which baselines are missing from the choice of the best, and why; empty where none is."""
    return "; ".join(
        f"{pair.baseline.arm} is refused ({wording.codes(pair.findings)})" for pair in rung.refused
    )
