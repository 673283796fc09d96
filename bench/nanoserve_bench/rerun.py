"""The command that measures a plan again, worked out from the plan itself.

A start records its own command line. Folders from before that do not, and for them the plan is the
evidence: what was asked for stands in it, with every default spelled out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from nanoserve_bench.plan import Arm, Plan, WorkloadPlan
from nanoserve_bench.workload import SUFFIX, WORKLOADS


@dataclass(frozen=True, kw_only=True, slots=True)
class Derived:
    """A command line, and what the plan does not tell of the one that was typed."""

    command: str
    untold: tuple[str, ...]


def derived(plan: Plan, threads: int | None) -> Derived:
    """The command line from which `sweep` makes this plan again.

    Args:
        plan: What was planned.
        threads: Compute threads of the workers, which no plan holds; None leaves them to the sweep.
    """
    bases = [workload for workload in plan.workloads if workload.arrivals is None]
    baselines = _baselines(plan)
    words = [
        *("--model", plan.model),
        *_each("--arm", _arms(plan)),
        *_each("--baseline", [] if baselines == [plan.arms[0].name] else baselines),
        *_each("--workload", [_name(workload) for workload in bases]),
        *_each("--slots", _slots(bases)),
        *_each("--device", plan.devices),
        *_each("--dtype", plan.dtypes),
        *_blocks(plan),
        *_load(plan),
        *(() if threads is None else ("--threads", str(threads))),
        *("--seed", str(plan.seed)),
        *(
            word
            for refusal in plan.acknowledged
            for word in ("--acknowledge", refusal.cell, refusal.rule, refusal.reason)
        ),
    ]
    return Derived(
        command=shlex.join(["nanoserve-bench", "sweep", *words]),
        untold=tuple(_untold(plan, bases)),
    )


def _each(option: str, values: list[str] | tuple[str, ...]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _arms(plan: Plan) -> list[str]:
    """The arms as they are written, without the A/A arms that the sweep adds by itself."""
    added = {f"{name}-again" for name in _baselines(plan)}
    last = len(plan.arms)
    while (
        last and plan.arms[last - 1].name in added and _meets_only_itself(plan, plan.arms[last - 1])
    ):
        last -= 1
    there = {arm.name for arm in plan.arms}
    nowhere = [hole for hole in plan.skipped_arms if hole.arm not in there]
    return [
        *(_arm(arm) for arm in plan.arms[:last]),
        *(_named(hole.arm, hole.system) for hole in nowhere),
    ]


def _arm(arm: Arm) -> str:
    runs = arm.system if arm.revision is None else f"{arm.system}@{arm.revision}"
    told = "".join(f",{option.name}={option.value}" for option in arm.options)
    return f"{_named(arm.name, runs)}{told}"


def _named(name: str, runs: str) -> str:
    return runs if name == runs else f"{name}={runs}"


def _meets_only_itself(plan: Plan, arm: Arm) -> bool:
    """Whether an arm that is called an A/A is set against the arm of that name alone."""
    arms = {cell.id: cell.arm for cell in plan.cells}
    met = {arms[pair.baseline] for pair in plan.comparisons if arms[pair.candidate] == arm.name}
    return met == {arm.name.removesuffix("-again")}


def _baselines(plan: Plan) -> list[str]:
    """The arms that ratios are stated against, the headline's first."""
    arms = {cell.id: cell.arm for cell in plan.cells}
    met = [arms[pair.baseline] for pair in plan.comparisons]
    return list(dict.fromkeys([plan.headline_baseline, *met]))


def _name(workload: WorkloadPlan) -> str:
    return workload.name if workload.name in WORKLOADS else f"{workload.name}{SUFFIX}"


def _slots(bases: list[WorkloadPlan]) -> list[str]:
    """The slots, where one list of them gives every workload its own."""
    lists = {workload.slots for workload in bases}
    return [str(slots) for slots in lists.pop()] if len(lists) == 1 else []


def _blocks(plan: Plan) -> list[str]:
    blocks = plan.blocks
    words = ["--blocks", str(blocks.least)]
    if blocks.target_half_width is not None:
        words += ["--most-blocks", str(blocks.most), "--target", repr(blocks.target_half_width)]
    return words


def _load(plan: Plan) -> Iterator[str]:
    """The open loops: every rate once, whatever workloads are offered at it."""
    loops = [workload.arrivals for workload in plan.workloads if workload.arrivals is not None]
    if not loops:
        return
    for rate in dict.fromkeys(loop.rate_per_s for loop in loops):
        yield from ("--rate", f"{rate:g}")
    yield from ("--arrivals", loops[0].process)
    ttft, tpot = loops[0].objective_ttft_ms, loops[0].objective_tpot_ms
    if ttft is not None and tpot is not None:
        yield from ("--objective", f"{ttft:g}", f"{tpot:g}")


def _untold(plan: Plan, bases: list[WorkloadPlan]) -> Iterator[str]:
    """What somebody who runs it again has to know beside the command."""
    for workload in bases:
        if workload.name not in WORKLOADS:
            yield f"{_name(workload)} is the file with the digest {workload.source}"
    there = {arm.name for arm in plan.arms}
    for hole in plan.skipped_arms:
        if hole.arm not in there:
            yield f"{hole.arm} was asked for and did not run; what it was told is not in the plan"
