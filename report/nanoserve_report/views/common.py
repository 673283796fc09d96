"""What every table needs: estimates as cells, refusals as holes that link to their findings."""

from __future__ import annotations

from collections.abc import Sequence

from nanoserve_bench.plan import Cell as PlannedCell
from nanoserve_bench.soundness import Finding, RuleOutcome, SoundComparison
from nanoserve_bench.statistics import Estimate
from nanoserve_report import numbers
from nanoserve_report.links import Linker
from nanoserve_report.setting import slug
from nanoserve_report.tables import Cell, Hole, Num, Text

Fact = str | float | bool | None
RUNS = "results/runs/index.md"
RERUN = "again"
"""Anchor on the page of a results folder."""
REFUSALS = "results/refusals.md"
KILLS = "results/kill-table.md"
CLAIMS = "results/claims.md"
NO_HOLDS = "the system does not tell its slots"
NO_CEILING = "no ceiling was measured for it"
NO_STAMPS = "the system does not stamp it"
OTHER_ARRIVALS = "the two sides' arrival patterns differ"
OTHER_SLOTS = "a slot means something else on the other side"
PROVEN = "equal digests"
DECLARED = "declared, not proven"
TONES = {
    "faster": "good", "worth it": "good", "slower": "bad", "not worth it": "bad",
    "reproduced": "good", "refuted": "bad",
}  # fmt: skip
MARKS = {
    "faster": "\N{BLACK UP-POINTING TRIANGLE}",
    "worth it": "\N{BLACK UP-POINTING TRIANGLE}",
    "slower": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "not worth it": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "no difference": "\N{BLACK CIRCLE}",
    "undecided": "\N{WHITE DIAMOND}",
    "reproduced": "\N{CHECK MARK}",
    "refuted": "\N{MULTIPLICATION X}",
    "reproduced in part": "\N{WHITE DIAMOND}",
    "not tried": "\N{EM DASH}",
}


def run_page(name: str) -> str:
    """The page of a results folder."""
    return f"results/runs/{slug(name)}.md"


def rerun(name: str, linker: Linker) -> str:
    """Where a results folder's revision and command stand, with its rows below."""
    return linker.to(run_page(name), RERUN)


def rule_page(code: str) -> str:
    """The page of a rule."""
    return f"results/rules/{slug(code)}.md"


def verdict(word: str) -> Text:
    """A verdict as shape and word; the tone only repeats it."""
    mark = MARKS.get(word, "")
    return Text(text=f"{mark}\N{NO-BREAK SPACE}{word}".strip(), tone=TONES.get(word, "muted"))


def outcome(item: RuleOutcome, href: str = "") -> Text:
    """What a rule came to; `href` leads to its findings."""
    if item.findings:
        return Text(text=numbers.count(len(item.findings), "finding"), href=href, tone="bad")
    if item.not_applicable is not None:
        return Text(text=f"does not apply: {item.not_applicable}", tone="muted")
    return Text(text="passed", tone="good")


def refused(findings: Sequence[Finding], name: str, linker: Linker) -> Hole:
    """The hole that a refusal leaves, linked to its findings."""
    codes = sorted({finding.rule for finding in findings})
    return Hole(
        reason=f"refused: {', '.join(codes) or 'no finding recorded'}",
        href=linker.to(REFUSALS, slug(name)),
    )


def quantity(estimate: Estimate | None, reason: str, *, scale: float = 1.0) -> Cell:
    """A measured quantity, or the hole that its system leaves."""
    if estimate is None:
        return Hole(reason=reason)
    return Num.of(numbers.shown(estimate, scale=scale))


def ratio(estimate: Estimate | None, reason: str) -> Cell:
    """A ratio, or the hole where it would compare what cannot be compared."""
    return Hole(reason=reason) if estimate is None else Num.of(numbers.ratio(estimate))


def slot_ratio(pair: SoundComparison, estimate: Estimate | None) -> Cell:
    """A ratio of held time, or why there is none."""
    return ratio(estimate, NO_HOLDS if pair.slots_alike else OTHER_SLOTS)


def weights(pair: SoundComparison) -> Text:
    """Whether the two sides are known to have run the same weights."""
    if pair.weights_proven:
        return Text(text=PROVEN, tone="muted")
    return Text(text=DECLARED)


def share(estimate: Estimate | None, reason: str) -> Cell:
    """A share in percent."""
    return Hole(reason=reason) if estimate is None else Num.of(numbers.percent(estimate))


def whole(value: int) -> Num:
    """A count."""
    return Num(value=float(value), text=f"{value:,}")


def optional(value: Fact, reason: str = "not recorded") -> Cell:
    """A recorded fact, or its absence."""
    if value is None or value == "":
        return Hole(reason=reason)
    if isinstance(value, bool):
        return Text(text="yes" if value else "no")
    if isinstance(value, int | float):
        return Num(
            value=float(value), text=f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
        )
    return Text(text=value)


def name_of(cell: PlannedCell) -> str:
    """An arm at its slots."""
    return f"{cell.arm}, {numbers.count(cell.slots, 'slot')}"
