"""Whether the order of the trials was the planned one and favoured nobody."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence

from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.soundness.rules.stat_ledger import start_of

MOST_FIRST = 0.8
"""Share of the blocks in which one side of a pair may run first.

Mirrored orders give each side half. A block that is run again, and an odd number of blocks, may
move that to four of five or six of eight; seven of eight leaves three quarters of what the first
place is worth in the ratio.
"""


def _order(evidence: Evidence, inspection: Inspection) -> None:
    blocks: dict[int, list[Trial]] = defaultdict(list)
    for trial in evidence.trials:
        blocks[trial.block].append(trial)
    for block, trials in sorted(blocks.items()):
        inspection.saw(len(trials))
        trials.sort(key=lambda trial: trial.row.order)
        _check_block(evidence, inspection, block, trials)
    _check_succession(evidence, inspection, blocks)
    for pair in evidence.pairs:
        firsts = [above.row.order < below.row.order for _, below, above in pair.blocks()]
        often = max(sum(firsts), len(firsts) - sum(firsts))
        if len(firsts) >= 2 and often > MOST_FIRST * len(firsts):
            first = pair.candidate if often == sum(firsts) else pair.baseline
            inspection.refuse_pair(
                pair,
                Flaw(f"{first.id} ran first in {often} of {len(firsts)} blocks"),
                block=None,
            )


def _check_succession(
    evidence: Evidence, inspection: Inspection, blocks: Mapping[int, Sequence[Trial]]
) -> None:
    """One start runs its blocks one after the other; between two the clock may begin anew."""
    ledger = evidence.results.manifest.ledger
    for earlier, later in itertools.pairwise(sorted(blocks)):
        first = min(blocks[later], key=lambda trial: trial.row.started_ns)
        end = max(trial.row.started_ns + trial.row.wall_ns for trial in blocks[earlier])
        same = start_of(ledger, earlier) == start_of(ledger, later)
        if same and first.row.started_ns < end:
            inspection.refuse_trial(
                first,
                Flaw(
                    f"it started at {first.row.started_ns} ns, before block {earlier} was done at "
                    f"{end} ns: one start runs its blocks one after the other"
                ),
                file="trials.csv",
            )


def _check_block(
    evidence: Evidence, inspection: Inspection, block: int, trials: list[Trial]
) -> None:
    orders = evidence.plan.orders
    planned = orders[block] if 0 <= block < len(orders) else None
    ran = [trial.cell.id for trial in trials if not trial.row.warmup]
    if planned is None:
        inspection.refuse_study(
            f"the plan has no order for block {block}: it has {len(orders)}",
            file="plan.json",
            column="orders",
        )
    elif [cell for cell in planned if cell in set(ran)] != ran:
        inspection.refuse_study(
            f"block {block} ran its cells in another order than the plan's",
            evidence=f"ran {', '.join(ran)}; planned {', '.join(planned)}",
            file="trials.csv",
            column="order",
        )
    measured: set[str] = set()
    for trial in trials:
        if trial.row.warmup and trial.cell.id in measured:
            message = "its warm-up ran after the trial that it was to warm up for"
            inspection.refuse_trial(trial, Flaw(message), file="trials.csv")
        if not trial.row.warmup:
            measured.add(trial.cell.id)
    for earlier, later in itertools.pairwise(trials):
        if later.row.order == earlier.row.order:
            inspection.refuse_trial(
                later,
                Flaw(f"two trials of block {block} are number {later.row.order} in its order"),
                file="trials.csv",
            )
        elif later.row.started_ns < earlier.row.started_ns + earlier.row.wall_ns:
            inspection.refuse_trial(
                later,
                Flaw(
                    f"it started at {later.row.started_ns} ns, before {earlier.cell.id} was done "
                    f"at {earlier.row.started_ns + earlier.row.wall_ns} ns: one system runs at a "
                    "time, in the recorded order"
                ),
                file="trials.csv",
            )


ORDER = StudyRule(
    code="STAT002",
    name="order-favours-nobody",
    sentence="Each block ran its cells one at a time in the planned order, and no side of a pair "
    "was first in more than four fifths of the blocks.",
    rationale=(
        "The same code measured twice was seen 7 % apart because one side always ran on the "
        "warmer machine. The order of every block is fixed beforehand, and changes sides: in "
        "mirrored pairs each side is first in half of the blocks, and blocks that are run again "
        "move that by one or two."
    ),
    remedy="Plan orders in mirrored pairs, as the sweep does by itself.",
    check=_order,
)
