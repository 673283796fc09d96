"""From what was asked for to the plan that is written down before the first trial."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nanoserve_bench.arms import ArmChoice, parse_arm, refuse_unknown_options
from nanoserve_bench.builds import BuildEngine, build
from nanoserve_bench.caches import refuse_uncompared
from nanoserve_bench.errors import PlanError
from nanoserve_bench.holes import FindSystem, closed_arms, find_arms, runs_on
from nanoserve_bench.load import LoadChoice
from nanoserve_bench.ordering import orders
from nanoserve_bench.pairing import comparisons, self_arms, told
from nanoserve_bench.plan import (
    AcknowledgedRefusal,
    Arm,
    Cell,
    Plan,
    SkippedDevice,
    WorkloadPlan,
)
from nanoserve_bench.records import Shape
from nanoserve_bench.schema import SCHEMA_VERSION
from nanoserve_bench.soundness.acknowledgement import STUDY_WIDE
from nanoserve_bench.soundness.catalogue import CODES
from nanoserve_bench.stopping import DEFAULT_BLOCKS, stopping_rule
from nanoserve_bench.systems import System
from nanoserve_bench.workload import planned
from nanoserve_bench.workload_file import WorkloadFile

DECODING = "greedy;ignore_eos"
DEFAULT_ARMS = ("hf-generate", "hf-generate-again=hf-generate", "nanoserve")
"""The headline baseline, the same once more (the A/A), and this engine."""
QUICK_BLOCKS = 2
"""Enough to see that everything works, and too few for any verdict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What the person at the command line chose; everything else is measured or derived.

    Attributes:
        arms: Texts that `arms.parse_arm` reads.
        baselines: Names of the arms that ratios are stated against, the headline's first; empty
            takes the first arm alone. Where no other arm runs the same as a baseline, that baseline
            takes part once more: each is measured against itself.
        workloads: Names of workloads, or of files of requests.
        slots: Slot counts of concurrent systems; empty takes each workload's own.
        dtypes: Weights and activations.
        least_blocks: Blocks that always run.
        most_blocks: Blocks after which the sweep stops.
        target: Relative half-width of the headline intervals at which it may stop in between.
        seed: Seed of prompts and orders.
        acknowledged: Refusals that are expected, with their reasons.
        load: Open loops that every workload is also run in; None for none.
    """

    arms: tuple[str, ...] = DEFAULT_ARMS
    baselines: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ("day44",)
    slots: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ("float32",)
    least_blocks: int = DEFAULT_BLOCKS
    most_blocks: int = DEFAULT_BLOCKS
    target: float | None = None
    seed: int = 44
    acknowledged: tuple[AcknowledgedRefusal, ...] = ()
    load: LoadChoice | None = None


def build_plan(
    choices: Choices,
    *,
    run_id: str,
    created_at: str,
    model: str,
    devices: Sequence[str],
    skipped_devices: Sequence[SkippedDevice],
    revision: str | None,
    dirty: bool | None,
    find_system: FindSystem,
    build_engine: BuildEngine = build,
    files: Mapping[str, WorkloadFile] | None = None,
) -> Plan:
    """Everything that the sweep will do, decided now; `files` are workloads of one's own, by name.

    Raises:
        PlanError: What was chosen cannot be measured.
    """
    chosen = [parse_arm(arm) for arm in choices.arms]
    baselines = choices.baselines or (chosen[0].name,)
    _refuse_twice("baseline", baselines)
    selves = self_arms(chosen, baselines)
    chosen += selves.values()
    _refuse_twice("arm", [choice.name for choice in chosen])
    grounds = tuple(itertools.product(devices, choices.dtypes))
    systems, skipped_arms = find_arms(chosen, baselines, grounds, find_system)
    arms = tuple(_arm(c, systems[c.name], build_engine) for c in chosen if c.name in systems)
    _refuse_without_ceilings(systems)
    _refuse_several_grounds(systems, devices, choices.dtypes)
    blocks = stopping_rule(choices.least_blocks, choices.most_blocks, choices.target)
    most_blocks = blocks.most + blocks.most_reruns
    workloads = _workloads(choices, files, blocks=most_blocks)
    _refuse_twice("dtype", choices.dtypes)
    # In an open loop throughput is what was offered: it gives latencies, and no speedup.
    offered = tuple(workload.name for workload in workloads if workload.arrivals is not None)
    closed_holes = closed_arms(arms, systems, offered)
    cells = tuple(_cells(arms, systems, grounds=grounds, workloads=workloads, model=model))
    closed = tuple(cell for cell in cells if cell.workload not in offered)
    pairs = tuple(comparisons(baselines, selves, arms, systems, closed))
    refuse_uncompared(arms, [arm for arm in arms if arm.name in baselines], pairs)
    return Plan(
        schema=SCHEMA_VERSION,
        run_id=run_id,
        created_at=created_at,
        revision=revision,
        dirty=dirty,
        model=model,
        seed=choices.seed,
        decoding=DECODING,
        arms=arms,
        headline_baseline=baselines[0],
        devices=tuple(devices),
        skipped_devices=tuple(skipped_devices),
        dtypes=choices.dtypes,
        workloads=workloads,
        cells=cells,
        comparisons=pairs,
        blocks=blocks,
        orders=tuple(orders(cells, most_blocks, choices.seed)),
        acknowledged=_acknowledged(choices.acknowledged, cells),
        skipped_arms=skipped_arms + closed_holes,
    )


def _arm(choice: ArmChoice, system: type[System], build_engine: BuildEngine) -> Arm:
    refuse_unknown_options(choice, system.options)
    try:
        system.check({option.name: option.value for option in choice.options})
    except PlanError as error:
        raise PlanError(f"arm {choice.name}: {error}") from error
    if choice.revision is not None and not system.revisable:
        raise PlanError(
            f"arm {choice.name}: {choice.system} is not built from this repository, so it has no "
            "revisions"
        )
    built = None if choice.revision is None else build_engine(choice.revision)
    return Arm(
        name=choice.name,
        system=choice.system,
        version=system.version() if built is None else built.version,
        revision=None if built is None else built.revision,
        options=choice.options,
    )


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise PlanError(f"{what} {name!r} is there twice: give each a name of its own")


def _refuse_without_ceilings(systems: Mapping[str, type[System]]) -> None:
    if not any(system.measures_ceilings for system in systems.values()):
        raise PlanError(
            f"none of the arms ({', '.join(systems)}) can measure what the device does at best, "
            "and without it no run is judged: add hf-generate or nanoserve"
        )


def _refuse_several_grounds(
    systems: Mapping[str, type[System]], devices: Sequence[str], dtypes: Sequence[str]
) -> None:
    fixed = [name for name, system in systems.items() if system.one_ground]
    if fixed and len(devices) * len(dtypes) != 1:
        raise PlanError(
            f"arm {fixed[0]} computes on one device in one dtype, as it was started, and the study "
            f"has {', '.join(devices)} in {', '.join(dtypes)}: choose with --device and --dtype"
        )


def _workloads(
    choices: Choices, files: Mapping[str, WorkloadFile] | None, *, blocks: int
) -> tuple[WorkloadPlan, ...]:
    """The workloads, then the open loops that offer them."""
    closed = tuple(_workload(name, choices, files, blocks=blocks) for name in choices.workloads)
    loops = () if choices.load is None else (w for b in closed for w in choices.load.workloads(b))
    workloads = (*closed, *loops)
    _refuse_twice("workload", [workload.name for workload in workloads])
    return workloads


def _workload(
    name: str, choices: Choices, files: Mapping[str, WorkloadFile] | None, *, blocks: int
) -> WorkloadPlan:
    slots = tuple(sorted(set(choices.slots)))
    if files and name in files:
        workload = files[name].planned(blocks=blocks, slots=slots)
    else:
        workload = planned(name, choices.seed)
        workload = dataclasses.replace(workload, slots=slots or workload.slots)
    for count in workload.slots:
        if not 1 <= count <= workload.requests:
            raise PlanError(
                f"{count} slots do not suit {name}: its {workload.requests} requests fill 1 to "
                f"{workload.requests}"
            )
    return workload


def _cells(
    arms: Sequence[Arm],
    systems: Mapping[str, type[System]],
    *,
    grounds: Sequence[tuple[str, str]],
    workloads: Sequence[WorkloadPlan],
    model: str,
) -> Iterator[Cell]:
    # Nothing is compared in an open loop, so the same thing twice says nothing there.
    again = {
        arm.name
        for index, arm in enumerate(arms)
        if any(told(arm) == told(other) for other in arms[:index])
    }
    for (device, dtype), workload, arm in itertools.product(grounds, workloads, arms):
        if not runs_on(systems[arm.name], device, dtype):
            continue
        if workload.arrivals is not None and (arm.name in again or not systems[arm.name].open_loop):
            continue
        serial = systems[arm.name].shape is Shape.SERIAL
        for slots in (1,) if serial else workload.slots:
            yield Cell(
                id=f"{arm.name}/{device}/{dtype}/{slots}/{workload.name}",
                arm=arm.name,
                system=arm.system,
                device=device,
                dtype=dtype,
                slots=slots,
                workload=workload.name,
                model=model,
            )


def _acknowledged(
    refusals: tuple[AcknowledgedRefusal, ...], cells: Sequence[Cell]
) -> tuple[AcknowledgedRefusal, ...]:
    known = {cell.id for cell in cells}
    for refusal in refusals:
        if refusal.cell not in known:
            raise PlanError(f"no cell is called {refusal.cell!r}; --dry-run lists them")
        if refusal.rule not in CODES:
            raise PlanError(
                f"no rule has the code {refusal.rule!r}; `nanoserve-bench rules` lists them"
            )
        if refusal.rule in STUDY_WIDE:
            raise PlanError(
                f"{refusal.rule} is about the whole study, and only a refusal of one cell or pair "
                "can be acknowledged"
            )
        if not refusal.reason.strip():
            raise PlanError(f"say why {refusal.rule} is expected of {refusal.cell}")
    return refusals
