"""From what was asked for to the plan that is written down before the first trial."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nanoserve_bench.arms import ArmChoice, parse_arm, refuse_unknown_options
from nanoserve_bench.builds import BuildEngine, build
from nanoserve_bench.caches import alike, refuse_uncompared
from nanoserve_bench.errors import PlanError
from nanoserve_bench.holes import FindSystem, closed_arms, find_arms, runs_on
from nanoserve_bench.load import LoadChoice
from nanoserve_bench.ordering import orders
from nanoserve_bench.plan import (
    AcknowledgedRefusal,
    Arm,
    Cell,
    Option,
    Plan,
    PlannedComparison,
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
    selves = _self_arms(chosen, baselines)
    chosen += selves.values()
    _refuse_twice("arm", [choice.name for choice in chosen])
    grounds = tuple(itertools.product(devices, choices.dtypes))
    systems, skipped_arms = find_arms(chosen, baselines, grounds, find_system)
    arms = tuple(_arm(c, systems[c.name], build_engine) for c in chosen if c.name in systems)
    _refuse_without_ceilings(systems)
    _refuse_several_grounds(systems, devices, choices.dtypes)
    blocks = stopping_rule(choices.least_blocks, choices.most_blocks, choices.target)
    workloads = tuple(
        _workload(name, choices, files, blocks=blocks.most + blocks.most_reruns)
        for name in choices.workloads
    )
    if choices.load is not None:
        workloads += tuple(w for base in workloads for w in choices.load.workloads(base))
    _refuse_twice("workload", [workload.name for workload in workloads])
    _refuse_twice("dtype", choices.dtypes)
    # In an open loop throughput is what was offered: it gives latencies, and no speedup.
    offered = tuple(workload.name for workload in workloads if workload.arrivals is not None)
    closed_holes = closed_arms(arms, systems, offered)
    cells = tuple(
        _cells(
            arms=arms,
            systems=systems,
            devices=devices,
            dtypes=choices.dtypes,
            workloads=workloads,
            model=model,
        )
    )
    closed = tuple(cell for cell in cells if cell.workload not in offered)
    comparisons = tuple(_comparisons(baselines, selves, arms, systems, closed))
    refuse_uncompared(arms, [arm for arm in arms if arm.name in baselines], comparisons)
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
        comparisons=comparisons,
        blocks=blocks,
        orders=tuple(orders(cells, blocks.most + blocks.most_reruns, choices.seed)),
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


def _self_arms(chosen: Sequence[ArmChoice], baselines: Sequence[str]) -> Mapping[str, ArmChoice]:
    """Each baseline once more where no arm runs the same, by the baseline's name.

    Without an A/A no ratio may be printed. A variant is no stand-in: it is set against the baseline
    to learn what it costs.
    """
    by_name = {choice.name: choice for choice in chosen}
    _refuse_twice("baseline", baselines)
    for name in baselines:
        if name not in by_name:
            raise PlanError(f"no arm is called {name!r}; there are: {', '.join(by_name)}")
    return {
        name: dataclasses.replace(by_name[name], name=f"{name}-again")
        for name in baselines
        if not any(other.name != name and other.runs == by_name[name].runs for other in chosen)
    }


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
    *,
    arms: Sequence[Arm],
    systems: Mapping[str, type[System]],
    devices: Sequence[str],
    dtypes: Sequence[str],
    workloads: Sequence[WorkloadPlan],
    model: str,
) -> Iterator[Cell]:
    # Nothing is compared in an open loop, so the same thing twice says nothing there.
    again = {
        arm.name
        for index, arm in enumerate(arms)
        if any(_told(arm) == _told(other) for other in arms[:index])
    }
    for device, dtype, workload, arm in itertools.product(devices, dtypes, workloads, arms):
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


def _comparisons(
    baselines: Sequence[str],
    selves: Mapping[str, ArmChoice],
    arms: Sequence[Arm],
    systems: Mapping[str, type[System]],
    cells: Sequence[Cell],
) -> Iterator[PlannedComparison]:
    """Every other arm's cells against each baseline's on the same ground.

    A serial baseline has one cell there; a concurrent one is met at the same slots, by a serial
    candidate at its one slot. A baseline is no candidate of a later one, and what was added as a
    baseline's own A/A meets no other baseline. Arms of unlike prefix caches do not meet.
    """
    own_arms = {again.name: name for name, again in selves.items()}
    for index, baseline in enumerate(baselines):
        others = [
            cell
            for cell in cells
            if cell.arm not in baselines[: index + 1]
            and own_arms.get(cell.arm, baseline) == baseline
        ]
        own = [cell for cell in cells if cell.arm == baseline]
        yield from _against(own, others, {arm.name: arm for arm in arms}, systems)


def _against(
    own: Sequence[Cell],
    others: Sequence[Cell],
    arms: Mapping[str, Arm],
    systems: Mapping[str, type[System]],
) -> Iterator[PlannedComparison]:
    """The cells of one baseline, and those that are set against them."""

    def ground(cell: Cell) -> tuple[str, str, str]:
        return cell.device, cell.dtype, cell.workload

    serial = any(systems[cell.arm].shape is Shape.SERIAL for cell in own)
    references = {(*ground(cell), None if serial else cell.slots): cell for cell in own}
    for cell in others:
        reference = references.get((*ground(cell), None if serial else cell.slots))
        if reference is None or not alike(arms[reference.arm], arms[cell.arm]):
            continue
        yield PlannedComparison(
            baseline=reference.id,
            candidate=cell.id,
            kind=_kind(arms[reference.arm], arms[cell.arm], systems),
        )


def _kind(baseline: Arm, candidate: Arm, systems: Mapping[str, type[System]]) -> str:
    """What a comparison of two arms is: of rivals, of two settings of one system, of one thing."""
    one, other = (systems[arm.name].variant_of or arm.system for arm in (baseline, candidate))
    if one != other:
        return "rival"
    told = [(arm.revision, frozenset(arm.options)) for arm in (baseline, candidate)]
    return "self" if told[0] == told[1] else "revision"


def _told(arm: Arm) -> tuple[str, str | None, frozenset[Option]]:
    """What an arm runs, whatever it is called."""
    return arm.system, arm.revision, frozenset(arm.options)
