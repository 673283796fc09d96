"""From the options of a sweep to what it measures."""

from __future__ import annotations

import click

from nanoserve_bench.load import LoadChoice
from nanoserve_bench.plan import AcknowledgedRefusal
from nanoserve_bench.planning import DEFAULT_ARMS, QUICK_BLOCKS, Choices
from nanoserve_bench.stopping import DEFAULT_BLOCKS
from nanoserve_bench.workload import FULL


def choices_of(
    *,
    arms: tuple[str, ...],
    baselines: tuple[str, ...],
    workloads: tuple[str, ...],
    slots: tuple[int, ...],
    dtypes: tuple[str, ...],
    blocks: int | None,
    most_blocks: int | None,
    target: float | None,
    rates: tuple[float, ...],
    shares: tuple[float, ...],
    arrivals: str,
    objective: tuple[float, float] | None,
    full: bool,
    quick: bool,
    seed: int,
    acknowledge: tuple[tuple[str, str, str], ...],
) -> Choices:
    """The choices that the options of these names make.

    Raises:
        click.UsageError: Two of them contradict each other.
    """
    if full and workloads:
        raise click.UsageError("--full is two workloads: give it or --workload, not both")
    if quick and blocks is not None:
        raise click.UsageError(f"--quick is {QUICK_BLOCKS} blocks: give it or --blocks, not both")
    if objective is not None and not (rates or shares):
        raise click.UsageError("--objective is about an open loop: give --rate or --load with it")
    least = blocks or (QUICK_BLOCKS if quick else DEFAULT_BLOCKS)
    ttft, tpot = objective or (None, None)
    return Choices(
        arms=arms or DEFAULT_ARMS,
        baselines=baselines,
        workloads=FULL if full else workloads or ("day44",),
        slots=slots,
        dtypes=dtypes or ("float32",),
        least_blocks=least,
        most_blocks=most_blocks or least,
        target=target,
        seed=seed,
        acknowledged=tuple(
            AcknowledgedRefusal(cell=cell, rule=rule, reason=reason)
            for cell, rule, reason in acknowledge
        ),
        load=LoadChoice(
            rates_per_s=rates, process=arrivals, objective_ttft_ms=ttft, objective_tpot_ms=tpot
        )
        if rates or shares
        else None,
    )
