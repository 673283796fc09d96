"""Whether everything that was declared is there, and the plan is one that can be kept."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from nanoserve_bench.arrivals import offerable
from nanoserve_bench.plan import Arm, Plan, PlannedComparison
from nanoserve_bench.records import Shape
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.physical import ITEM_BYTES
from nanoserve_bench.soundness.rule import Inspection, StudyRule

KINDS = frozenset({"rival", "revision", "self"})
DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})
_RUN_ID = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)
_ID_PARTS = 5


def _cells(evidence: Evidence, inspection: Inspection) -> None:
    for message, column in (*_plan_flaws(evidence.plan), *_slot_flaws(evidence)):
        inspection.refuse_study(message, file="plan.json", column=column)
    names = Counter(fact.name for fact in evidence.results.manifest.facts)
    for name in (name for name, count in names.items() if count > 1):
        inspection.refuse_study(
            f"the manifest states {name} {names[name]} times", file="manifest.json", column="facts"
        )
    blocks = sorted({trial.block for trial in evidence.trials})
    if blocks != list(range(len(blocks))) or len(blocks) != evidence.results.manifest.blocks_done:
        inspection.refuse_study(
            f"trials.csv has the blocks {blocks}, and the manifest says that "
            f"{evidence.results.manifest.blocks_done} are done",
            file="trials.csv",
            column="block",
        )
    warmed = any(trial.row.warmup for trial in evidence.trials)
    there = {(t.block, t.cell.id, t.row.warmup) for t in evidence.trials}
    for cell in evidence.plan.cells:
        inspection.saw(len(blocks))
        missing = [block for block in blocks if (block, cell.id, False) not in there]
        if missing or not blocks:
            inspection.refuse_cell(
                None,
                cell.id,
                cell.arm,
                f"the plan declares it, and it is missing in block(s) "
                f"{', '.join(map(str, missing)) or '(there is none)'}",
            )
        cold = [block for block in blocks if (block, cell.id, True) not in there]
        if cold and warmed:
            inspection.refuse_cell(
                None,
                cell.id,
                cell.arm,
                f"its warm-up is missing in block(s) {', '.join(map(str, cold))}: warm-ups are "
                "kept",
            )


def _plan_flaws(plan: Plan) -> Iterator[tuple[str, str]]:
    """What is wrong with a plan in itself, and the key under which it stands."""
    if not plan.cells:
        yield "the plan declares no cell", "cells"
    headline = plan.headline_baseline
    arms = {cell.id: cell.arm for cell in plan.cells}
    against = {arms.get(pair.baseline) for pair in plan.comparisons}
    if headline not in {arm.name for arm in plan.arms}:
        yield f"the headline baseline {headline} is no arm", "headline_baseline"
    elif against and headline not in against:
        yield f"nothing is compared with the headline baseline {headline}", "headline_baseline"
    blocks = plan.blocks
    if not 1 <= blocks.least <= blocks.most or blocks.most_reruns < 0:
        yield "the stopping rule cannot be kept: 1 <= least <= most, most_reruns >= 0", "blocks"
    target = blocks.target_half_width
    if target is not None and target <= 0:
        yield f"no interval is as narrow as the target half-width {target}", "blocks"
    if not _RUN_ID.fullmatch(plan.run_id):
        yield f"the run id {plan.run_id!r} is no name of a folder", "run_id"
    yield from _doubled_names(plan)
    yield from _place_flaws(plan)
    yield from _dtype_flaws(plan)
    yield from _skip_flaws(plan)
    yield from _workload_flaws(plan)
    yield from _arrival_flaws(plan)
    yield from _cell_flaws(plan)
    yield from _comparison_flaws(plan)


def _slot_flaws(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Slot counts that a workload lists and no concurrent arm has a cell of.

    Arms that run one request at a time have one slot, whatever the workload lists.
    """
    concurrent = {
        row.arm for row in evidence.results.systems if row.shape == Shape.CONCURRENT.value
    }
    measured: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for cell in evidence.plan.cells:
        if cell.arm in concurrent:
            measured[cell.workload, cell.device, cell.dtype].add(cell.slots)
    listed = {workload.name: workload.slots for workload in evidence.plan.workloads}
    for (workload, device, dtype), slots in measured.items():
        for count in listed.get(workload, ()):
            if count not in slots:
                message = (
                    f"workload {workload} lists {count} slots, and no cell on {device} in {dtype} "
                    "has as many"
                )
                yield message, "workloads"


def _doubled_names(plan: Plan) -> Iterator[tuple[str, str]]:
    for name, values in (
        ("cells", [cell.id for cell in plan.cells]),
        ("cells", list(_places(plan))),
        ("arms", [arm.name for arm in plan.arms]),
        ("devices", plan.devices),
        ("dtypes", plan.dtypes),
        ("workloads", [workload.name for workload in plan.workloads]),
        ("comparisons", [f"{c.candidate} against {c.baseline}" for c in plan.comparisons]),
    ):
        for value, count in Counter(values).items():
            if count > 1:
                yield f"the plan names {value} {count} times among its {name}", name


def _places(plan: Plan) -> Iterator[str]:
    """What each cell measures, whatever it is called, for cells that are not called by it."""
    for cell in plan.cells:
        place = f"{cell.arm}/{cell.device}/{cell.dtype}/{cell.slots}/{cell.workload}"
        yield f"the measurement {place}"


def _place_flaws(plan: Plan) -> Iterator[tuple[str, str]]:
    """Arms and devices that are listed for nothing, or under a name that misleads."""
    skipped = {skip.device for skip in plan.skipped_devices}
    for device in plan.devices:
        if device in skipped:
            yield f"device {device} is measured, and skipped as well", "skipped_devices"
        if device not in {cell.device for cell in plan.cells}:
            yield f"device {device} is to be measured, and has no cell", "devices"
        if device.partition(":")[0].casefold() in DEVICES and device != device.casefold():
            yield f"device {device} is not spelled as torch spells it", "devices"
    systems = {arm.system for arm in plan.arms}
    for arm in plan.arms:
        if arm.name not in {cell.arm for cell in plan.cells}:
            yield f"arm {arm.name} is to be measured, and has no cell", "arms"
        if arm.name in systems and arm.name != arm.system:
            yield f"arm {arm.name} runs {arm.system}, and has another system's name", "arms"


def _skip_flaws(plan: Plan) -> Iterator[tuple[str, str]]:
    """Holes of the plan without a reason, or where something was measured after all."""
    for device in plan.skipped_devices:
        if not device.reason.strip():
            yield f"device {device.device} is skipped without a reason", "skipped_devices"
    for skip in plan.skipped_arms:
        if not skip.reason.strip():
            yield f"arm {skip.arm} is skipped without a reason", "skipped_arms"
        for cell in plan.cells:
            if cell.arm == skip.arm and (skip.device, skip.dtype) in {
                (None, None),
                (cell.device, cell.dtype),
            }:
                yield f"arm {skip.arm} is skipped, and has the cell {cell.id}", "skipped_arms"


def _dtype_flaws(plan: Plan) -> Iterator[tuple[str, str]]:
    measured = {cell.dtype for cell in plan.cells}
    for dtype in plan.dtypes:
        if dtype.casefold() in ITEM_BYTES and dtype not in ITEM_BYTES:
            yield f"dtype {dtype} is not spelled as torch spells it", "dtypes"
        if dtype not in measured:
            yield f"dtype {dtype} is to be measured, and has no cell", "dtypes"


def _workload_flaws(plan: Plan) -> Iterator[tuple[str, str]]:
    measured = {cell.workload for cell in plan.cells}
    for workload in plan.workloads:
        if len(set(workload.slots)) < len(workload.slots):
            yield f"workload {workload.name} lists a number of slots twice", "workloads"
        if workload.name not in measured:
            yield f"workload {workload.name} is to be run, and has no cell", "workloads"
        lengths = workload.lengths
        if lengths and (
            workload.prompt_tokens != max(one.prompt_tokens for one in lengths)
            or workload.new_tokens != max(one.new_tokens for one in lengths)
        ):
            yield f"workload {workload.name} is not as long as its longest request", "workloads"
        if lengths and (workload.requests < 1 or len(lengths) % workload.requests):
            message = (
                f"workload {workload.name} has {workload.requests} requests a block and "
                f"{len(lengths)} lengths, which are no whole blocks"
            )
            yield message, "workloads"


def _arrival_flaws(plan: Plan) -> Iterator[tuple[str, str]]:
    for workload in plan.workloads:
        arrivals = workload.arrivals
        if arrivals is not None and not offerable(arrivals):
            message = (
                f"workload {workload.name} offers {arrivals.rate_per_s} requests a second, "
                f"{arrivals.process}: no such load can be offered"
            )
            yield message, "workloads"
        objectives = (
            ()
            if arrivals is None
            else (
                arrivals.objective_ttft_ms,
                arrivals.objective_tpot_ms,
            )
        )
        if any(objective is not None and objective <= 0 for objective in objectives):
            yield f"workload {workload.name} has an objective that nothing can meet", "workloads"


def _cell_flaws(plan: Plan) -> Iterator[tuple[str, str]]:
    arms = {arm.name for arm in plan.arms}
    workloads = {workload.name for workload in plan.workloads}
    for cell in plan.cells:
        for what, value, known in (
            ("arm", cell.arm, arms),
            ("workload", cell.workload, workloads),
            ("device", cell.device, plan.devices),
            ("dtype", cell.dtype, plan.dtypes),
        ):
            if value not in known:
                yield f"cell {cell.id} is of {what} {value}, which the plan does not list", "cells"
        parts = (cell.arm, cell.device, cell.dtype, str(cell.slots), cell.workload)
        if cell.id.count("/") + 1 >= _ID_PARTS and cell.id != "/".join(parts):
            yield f"cell {cell.id} is {'/'.join(parts)}, and its id says otherwise", "cells"
        if cell.model != plan.model:
            yield f"cell {cell.id} is of model {cell.model}, and the plan of {plan.model}", "cells"
        if cell.slots < 1:
            yield f"cell {cell.id} has {cell.slots} slots", "cells"


def _told(arm: Arm) -> tuple[object, ...]:
    """What makes an arm another one of its system."""
    return arm.system, arm.version, arm.revision, frozenset(arm.options)


def _kind_flaws(
    planned: PlannedComparison, below: tuple[object, ...] | None, above: tuple[object, ...] | None
) -> Iterator[tuple[str, str]]:
    """Two arms that are no two revisions, or no one thing, by what they were told."""
    if below is None or above is None:
        return
    names = f"{planned.candidate} and {planned.baseline}"
    if planned.kind == "revision" and below == above:
        yield f"{names} are of one revision and setting", "comparisons"
    if planned.kind == "revision" and below[0] != above[0]:
        yield f"{names} are of two systems, and called two revisions of one", "comparisons"
    if planned.kind == "self" and below[0] == above[0] and below != above:
        yield f"{names} are called one thing, and differ", "comparisons"


def _comparison_flaws(plan: Plan) -> Iterator[tuple[str, str]]:
    systems = {cell.id: cell.system for cell in plan.cells}
    workloads = {cell.id: cell.workload for cell in plan.cells}
    told = {arm.name: _told(arm) for arm in plan.arms}
    arms = {cell.id: told.get(cell.arm) for cell in plan.cells}
    open_loop = {workload.name for workload in plan.workloads if workload.arrivals is not None}
    for planned in plan.comparisons:
        for cell_id in (planned.baseline, planned.candidate):
            if cell_id not in systems:
                yield f"a comparison names {cell_id}, which is no cell", "comparisons"
        below, above = arms.get(planned.baseline), arms.get(planned.candidate)
        yield from _kind_flaws(planned, below, above)
        if planned.kind not in KINDS:
            yield f"a comparison is of the unknown kind {planned.kind!r}", "comparisons"
        if planned.kind == "rival" and systems.get(planned.baseline) == systems.get(
            planned.candidate
        ):
            yield (
                f"{planned.candidate} and {planned.baseline} are of one system, and called rivals",
                "comparisons",
            )
        if {workloads.get(planned.baseline), workloads.get(planned.candidate)} & open_loop:
            message = (
                f"{planned.candidate} is compared in an open loop, where throughput is what was "
                "offered: it gives latencies and no speedup"
            )
            yield message, "comparisons"
        if planned.baseline == planned.candidate:
            yield f"{planned.baseline} is compared with its own rows", "comparisons"


CELLS = StudyRule(
    code="REP010",
    name="declared-cells-present",
    sentence="Every cell of the plan was measured in every block, and the plan can be kept.",
    rationale=(
        "A cell that failed and was left out, or a block that disappeared, makes the rest look "
        "better than the study was. A plan that compares a cell with itself, or names what it does "
        "not declare, promises nothing."
    ),
    remedy="Run the whole plan, or acknowledge the hole in the next one before it starts.",
    check=_cells,
)
