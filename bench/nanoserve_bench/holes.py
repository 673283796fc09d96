"""Which of the arms that were asked for can run what, and where the others are holes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nanoserve_bench.arms import ArmChoice
from nanoserve_bench.errors import PlanError, UnavailableError
from nanoserve_bench.plan import Arm, SkippedArm
from nanoserve_bench.systems import System

FindSystem = Callable[[str], type[System]]


def find_arms(
    chosen: Sequence[ArmChoice],
    baselines: Sequence[str],
    grounds: Sequence[tuple[str, str]],
    find_system: FindSystem,
) -> tuple[Mapping[str, type[System]], tuple[SkippedArm, ...]]:
    """The systems of the arms that can run somewhere, by arm, and where which arm is a hole.

    An optional system is a hole where it cannot run; one that ratios are stated against may not be.

    Args:
        chosen: The arms.
        baselines: Names of those that ratios are stated against.
        grounds: Devices and dtypes.
        find_system: Finds a system by its name, or says why it cannot run.

    Raises:
        PlanError: There is no such system, or one is missing that may not be.
    """
    systems: dict[str, type[System]] = {}
    skipped: list[SkippedArm] = []
    for arm in chosen:
        try:
            found = find_system(arm.system)
        except UnavailableError as error:
            if arm.name in baselines or not error.optional:
                raise
            skipped.append(_hole(arm, (None, None), error.reason))
            continue
        unfit = [ground for ground in grounds if not runs_on(found, *ground)]
        able = " or ".join(f"{kind} in {dtype}" for kind, dtype in found.runs_on or ())
        if unfit and arm.name in baselines:
            raise PlanError(f"{arm.name} is a baseline, and runs on {able} only")
        skipped += [_hole(arm, ground, f"it runs on {able} only") for ground in unfit]
        if len(unfit) < len(grounds):
            systems[arm.name] = found
    return systems, tuple(skipped)


def closed_arms(
    arms: Sequence[Arm], systems: Mapping[str, type[System]], offered: Sequence[str]
) -> tuple[SkippedArm, ...]:
    """The arms that take no part in open loops, with their reasons.

    Args:
        arms: The arms that run.
        systems: Their systems, by arm.
        offered: Names of the open loops; where there are none, nobody is a hole.

    Raises:
        PlanError: None of the arms can take part.
    """
    closed = [arm for arm in arms if not systems[arm.name].open_loop]
    if offered and len(closed) == len(arms):
        why = "; ".join(f"{arm.name}: {systems[arm.name].why_closed}" for arm in arms)
        raise PlanError(
            f"none of the arms takes requests when they are due ({why}): add one that does, such "
            "as nanoserve"
        )
    return tuple(
        SkippedArm(
            arm=arm.name,
            system=arm.system,
            device=None,
            dtype=None,
            reason=systems[arm.name].why_closed,
            workloads=tuple(offered),
        )
        for arm in closed
        if offered
    )


def runs_on(system: type[System], device: str, dtype: str) -> bool:
    """Whether a system runs on a device in a dtype."""
    return system.runs_on is None or (device.partition(":")[0], dtype) in system.runs_on


def _hole(arm: ArmChoice, ground: tuple[str | None, str | None], reason: str) -> SkippedArm:
    device, dtype = ground
    return SkippedArm(arm=arm.name, system=arm.system, device=device, dtype=dtype, reason=reason)
