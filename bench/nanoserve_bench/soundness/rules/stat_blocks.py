"""Whether there are as many blocks as were promised, and enough of them for a ratio."""

from __future__ import annotations

from collections.abc import Iterable

from nanoserve_bench.contention import contention
from nanoserve_bench.soundness.evidence import Evidence, Pair
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.statistics import estimate

LEAST_FOR_A_RATIO = 5
"""Fewest blocks at which the nominal 95 % of Student's t were seen to hold independent noise."""
LEAST_FOR_AN_INTERVAL = 2


def _enough(evidence: Evidence, inspection: Inspection) -> None:
    promised = max(evidence.plan.blocks.least, LEAST_FOR_AN_INTERVAL)
    for cell in evidence.plan.cells:
        inspection.saw()
        count = len(evidence.by_cell[cell.id])
        if count < promised:
            inspection.refuse_cell(
                None,
                cell.id,
                cell.arm,
                f"it was measured in {count} block(s), and {promised} are the least",
            )
    for pair in evidence.pairs:
        inspection.saw()
        count = sum(1 for _ in pair.blocks())
        if count < LEAST_FOR_A_RATIO:
            inspection.refuse_pair(
                pair,
                Flaw(
                    f"both sides were measured in {count} block(s): a ratio needs "
                    f"{LEAST_FOR_A_RATIO}"
                ),
                block=None,
            )


ENOUGH = StudyRule(
    code="STAT001",
    name="enough-blocks",
    sentence="Every cell has the blocks that the plan promised, and every ratio at least five.",
    rationale=(
        "One block has no spread to judge by, and of fewer than five nothing is known: five are "
        "the fewest at which the nominal 95 % interval of Student's t was seen to hold in "
        "simulations whose noise is independent from block to block. Recorded noise is not: what "
        "the interval holds of that, at five blocks and at more, is on the calibration page, and "
        "`nanoserve-bench calibrate` finds it for a machine's own folders. Eight to ten blocks "
        "are the least that say much."
    ),
    remedy="Run the sweep with at least five blocks; a quick one shows that everything works.",
    check=_enough,
)


def _stopping(evidence: Evidence, inspection: Inspection) -> None:
    plan = evidence.plan.blocks
    replaces: dict[int, int | None] = {}
    for trial in evidence.trials:
        inspection.saw()
        known = replaces.setdefault(trial.block, trial.row.replaces)
        if known != trial.row.replaces:
            inspection.refuse_study(
                f"block {trial.block} replaces block {known} in one row and "
                f"{trial.row.replaces} in another",
                file="trials.csv",
                row=trial.line("trials.csv"),
                column="replaces",
            )
    reruns = {block: old for block, old in replaces.items() if old is not None}
    if len(reruns) > plan.most_reruns:
        inspection.refuse_study(
            f"{len(reruns)} blocks were run again, and the plan allows {plan.most_reruns}",
            file="trials.csv",
            column="replaces",
        )
    for block, old in reruns.items():
        if old not in replaces or old >= block or list(reruns.values()).count(old) > 1:
            inspection.refuse_study(
                f"block {block} replaces block {old}, which does not come before it once",
                file="trials.csv",
                column="replaces",
            )
        elif not any(
            contention(trial.row)
            for trial in evidence.trials
            if trial.block == old and not trial.row.warmup
        ):
            inspection.refuse_study(
                f"block {old} was replaced by block {block}, and nothing disturbed it: a block "
                "that did not please is part of the study",
                file="trials.csv",
                column="replaces",
            )
    count = len(evidence.blocks)
    if count > plan.most:
        inspection.refuse_study(f"{count} blocks are measured, and the plan stops at {plan.most}")
    if plan.least <= count < plan.most:
        _stopped_early(evidence, inspection, count)


def _stopped_early(evidence: Evidence, inspection: Inspection, count: int) -> None:
    target = evidence.plan.blocks.target_half_width
    widest = headline_half_width(evidence.pairs)
    if target is None or widest is None or widest > target:
        inspection.refuse_study(
            f"the study stopped after {count} of {evidence.plan.blocks.most} blocks, and its "
            f"widest relative half-width is {'unknown' if widest is None else f'{widest:.4f}'} "
            f"(the target is {target})"
        )


def headline_half_width(pairs: Iterable[Pair]) -> float | None:
    """The widest relative half-width among the speedups, which decides when to stop.

    None where it is unknown, which is never narrow: there is neither a rival nor another revision,
    a pair has fewer than two blocks, or a block whose runs carry no ratio.
    """
    widths = [_half_width(pair) for pair in pairs if pair.kind in {"rival", "revision"}]
    known = [width for width in widths if width is not None]
    return max(known) if known and len(known) == len(widths) else None


def _half_width(pair: Pair) -> float | None:
    ratios = [comparison.speedup for comparison in pair.comparisons.values()]
    if len(ratios) < LEAST_FOR_AN_INTERVAL or len(ratios) < sum(1 for _ in pair.blocks()):
        return None
    return estimate(ratios).relative_half_width


STOPPING = StudyRule(
    code="STAT007",
    name="stopping-rule-kept",
    sentence="The study stopped when its plan says, and ran again only what was disturbed.",
    rationale=(
        "Whoever may stop when the numbers please, or drop a block that does not please, can show "
        "any ratio that the noise holds. A block is replaced only for contention by the documented "
        "threshold, within the declared limit, and stays in the files."
    ),
    remedy="Let the sweep decide when to stop; declare a target width before the first trial.",
    check=_stopping,
)
