"""Which cells are set against each other, and what such a pair is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from nanoserve_bench.arms import ArmChoice
from nanoserve_bench.caches import alike
from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Arm, Cell, Option, PlannedComparison
from nanoserve_bench.records import Shape
from nanoserve_bench.systems import System


def self_arms(chosen: Sequence[ArmChoice], baselines: Sequence[str]) -> Mapping[str, ArmChoice]:
    """Each baseline once more where no arm runs the same, by the baseline's name.

    Without an A/A no ratio may be printed. A variant is no stand-in: it is set against the baseline
    to learn what it costs.

    Raises:
        PlanError: A baseline is none of the arms.
    """
    by_name = {choice.name: choice for choice in chosen}
    for name in baselines:
        if name not in by_name:
            raise PlanError(f"no arm is called {name!r}; there are: {', '.join(by_name)}")
    return {
        name: dataclasses.replace(by_name[name], name=f"{name}-again")
        for name in baselines
        if not any(other.name != name and other.runs == by_name[name].runs for other in chosen)
    }


def comparisons(
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


def told(arm: Arm) -> tuple[str, str | None, frozenset[Option]]:
    """What an arm runs, whatever it is called."""
    return arm.system, arm.revision, frozenset(arm.options)
