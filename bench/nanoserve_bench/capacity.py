"""Shares of a measured capacity, as rates that a plan can hold.

The load that a system can bear is not known before it was measured. A share of it (`--load 0.8`) is
taken of what an earlier run in the results folder measured, at the same slots and with all requests
at once; the plan holds the rate that came out, in requests per second, and the study measures the
capacity again in a cell of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from nanoserve_bench.arms import parse_arm
from nanoserve_bench.errors import PlanError
from nanoserve_bench.estimate import measured_walls
from nanoserve_bench.planning import Choices
from nanoserve_bench.workload import WORKLOADS, planned


def with_shares(
    choices: Choices,
    shares: Sequence[float],
    devices: Sequence[str],
    *,
    model: str,
    earlier: Path,
) -> Choices:
    """The choices with shares of a measured capacity as rates.

    Raises:
        PlanError: It is not clear whose capacity is meant, or nobody measured it.
    """
    if (len(choices.workloads), len(devices), len(choices.dtypes)) != (1, 1, 1):
        raise PlanError(
            "a share of the capacity takes one workload, one device and one dtype: choose with "
            "--workload, --device and --dtype, or give --rate"
        )
    if choices.load is None or choices.workloads[0] not in WORKLOADS:
        raise PlanError("a share of the capacity takes a named workload: give --rate for a file")
    workload = planned(choices.workloads[0], choices.seed)
    arm = parse_arm(choices.arms[-1]).name
    most = max(choices.slots or workload.slots)
    rates = rates_of(
        shares,
        cell=f"{arm}/{devices[0]}/{choices.dtypes[0]}/{most}/{workload.name}",
        requests=workload.requests,
        model=model,
        earlier=earlier,
    )
    load = dataclasses.replace(choices.load, rates_per_s=(*choices.load.rates_per_s, *rates))
    return dataclasses.replace(choices, load=load)


def rates_of(
    shares: Sequence[float],
    *,
    cell: str,
    requests: int,
    model: str,
    earlier: Path,
) -> tuple[float, ...]:
    """Shares of the capacity that earlier runs measured, in requests per second.

    Args:
        shares: Of the capacity; 1 is all of it.
        cell: The cell whose capacity it is: all of its requests at once.
        requests: How many those are.
        model: The model that the earlier runs ran.
        earlier: Folder with their results.

    Raises:
        PlanError: No earlier run measured that cell.
    """
    walls = measured_walls(earlier, model)
    if cell not in walls:
        raise PlanError(
            f"the capacity of {cell} is not known: no run in {earlier} measured that cell. Run the "
            "same sweep without --load first, or give --rate in requests per second"
        )
    return tuple(share * requests / walls[cell] for share in shares)
