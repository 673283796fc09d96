"""Studies with open loops: the engine at half of its capacity, near it and beyond it."""

from __future__ import annotations

import dataclasses

from nanoserve_bench.load import LoadChoice
from nanoserve_bench.plan import RequestLengths, WorkloadPlan
from support import sound

BASE = WorkloadPlan(name="day44", requests=32, prompt_tokens=6, new_tokens=16, slots=(1, 2, 4, 8))
CAPACITY = 32 / (4 * 16 * 0.058)
"""Requests per second of 8 slots on the ruler: a step of 8 rows takes 34 + 3 x 8 = 58 ms."""


def loads(
    *shares: float, process: str = "poisson", slots: int = 8, **objective: float
) -> tuple[WorkloadPlan, ...]:
    """Open loops at shares of the capacity."""
    choice = LoadChoice(
        rates_per_s=tuple(share * CAPACITY for share in shares), process=process, **objective
    )
    return choice.workloads(dataclasses.replace(BASE, slots=(slots,)))


def study(*shares: float, process: str = "poisson", slots: int = 8, **more) -> sound.Study:
    """A sound study of the slot sweep and of open loops at these shares of the capacity."""
    objective = {k: more.pop(k) for k in tuple(more) if k.startswith("objective")}
    chosen = loads(*shares, process=process, slots=slots, **objective)
    return sound.study(workload=BASE, loads=chosen, **more)


def of_many_lengths() -> sound.Study:
    """A sound study of an open loop whose requests have prompts of four lengths."""
    (load,) = loads(0.9)
    lengths = tuple(
        RequestLengths(prompt_tokens=3 + number % 4, new_tokens=16) for number in range(32)
    )
    return sound.study(
        workload=BASE, loads=(dataclasses.replace(load, lengths=lengths, source="by hand"),)
    )


def cell(load: WorkloadPlan) -> str:
    """The cell of an open loop."""
    return f"nanoserve/cpu/float32/{load.slots[0]}/{load.name}"
