"""The state of the prefix cache that an arm is told, and which arms may be set against each other.

A prompt that a cache serves was not computed, so a ratio across a cache is none (PAIR010). The plan
knows the state of an arm from its option `cache`; what its worker then reports is for the gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Arm, PlannedComparison

OPTION = "cache"
STATES = ("off", "on")
MEANING = "its prefix cache, on or off (the default)"


def state_of(options: Mapping[str, str]) -> str:
    """The state that options ask for.

    Raises:
        PlanError: It is none.
    """
    state = options.get(OPTION, "off")
    if state not in STATES:
        raise PlanError(f"{OPTION} is off or on, not {state!r}")
    return state


def is_on(arm: Arm) -> bool:
    """Whether an arm is told to cache; what it is not told is off."""
    return any((option.name, option.value) == (OPTION, "on") for option in arm.options)


def alike(one: Arm, other: Arm) -> bool:
    """Whether two arms are told the same state."""
    return is_on(one) == is_on(other)


def refuse_uncompared(
    arms: Iterable[Arm], baselines: Sequence[Arm], comparisons: Iterable[PlannedComparison]
) -> None:
    """Refuse an arm that no baseline may be set against for its cache.

    Raises:
        PlanError: There is one.
    """
    compared = {
        cell.partition("/")[0] for pair in comparisons for cell in (pair.baseline, pair.candidate)
    }
    for arm in arms:
        if arm.name not in compared and not any(alike(arm, baseline) for baseline in baselines):
            state = "on" if is_on(arm) else "off"
            raise PlanError(
                f"arm {arm.name} runs with its prefix cache {state}, and no baseline does, so no "
                "ratio can be stated for it: name one that does with --baseline"
            )
