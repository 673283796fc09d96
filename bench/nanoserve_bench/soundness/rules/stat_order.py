"""Whether the order of the trials was the planned one and favoured nobody."""

from __future__ import annotations

import itertools
from collections import defaultdict

from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule


def _order(evidence: Evidence, inspection: Inspection) -> None:
    blocks: dict[int, list[Trial]] = defaultdict(list)
    for trial in evidence.trials:
        blocks[trial.block].append(trial)
    for block, trials in sorted(blocks.items()):
        inspection.saw(len(trials))
        trials.sort(key=lambda trial: trial.row.order)
        _check_block(evidence, inspection, block, trials)
    for pair in evidence.pairs:
        firsts = [above.row.order < below.row.order for _, below, above in pair.blocks()]
        if len(firsts) >= 2 and len(set(firsts)) == 1:
            first = pair.candidate if firsts[0] else pair.baseline
            inspection.refuse_pair(
                pair, Flaw(f"{first.id} ran first in all {len(firsts)} blocks"), block=None
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
    "was always first.",
    rationale=(
        "The same code measured twice was seen 7 % apart because one side always ran on the "
        "warmer machine. The order of every block is fixed beforehand, and changes sides."
    ),
    remedy="Plan orders in mirrored pairs, as the sweep does by itself.",
    check=_order,
)
