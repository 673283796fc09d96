"""From the options of a sweep to what it measures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from nanoserve_bench.load import LoadChoice
from nanoserve_bench.plan import AcknowledgedRefusal
from nanoserve_bench.planning import DEFAULT_ARMS, QUICK_BLOCKS, Choices
from nanoserve_bench.stopping import DEFAULT_BLOCKS
from nanoserve_bench.workload import FULL


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOptions:
    """The command line of a sweep, under the names that click gives its options.

    Where it is empty or None, nothing was said, and what holds then is written in the help.

    Attributes:
        wanted: Devices.
        shares: Of the capacity that an earlier run measured; `--load`.
        objective: TTFT and TPOT, ms.
        acknowledge: Cell, rule and reason of each refusal that is expected.
    """

    model: str
    arms: tuple[str, ...]
    baselines: tuple[str, ...]
    workloads: tuple[str, ...]
    slots: tuple[int, ...]
    wanted: tuple[str, ...]
    dtypes: tuple[str, ...]
    blocks: int | None
    most_blocks: int | None
    target: float | None
    rates: tuple[float, ...]
    shares: tuple[float, ...]
    arrivals: str
    objective: tuple[float, float] | None
    full: bool
    quick: bool
    threads: int | None
    seed: int
    acknowledge: tuple[tuple[str, str, str], ...]
    out: Path
    run_id: str | None
    dry_run: bool


def choices_of(options: SweepOptions) -> Choices:
    """The choices that options make; shares of a capacity are none before somebody looks it up.

    Raises:
        click.UsageError: Two of them contradict each other.
    """
    if options.full and options.workloads:
        raise click.UsageError("--full is two workloads: give it or --workload, not both")
    if options.quick and options.blocks is not None:
        raise click.UsageError(f"--quick is {QUICK_BLOCKS} blocks: give it or --blocks, not both")
    open_loop = bool(options.rates or options.shares)
    if options.objective is not None and not open_loop:
        raise click.UsageError("--objective is about an open loop: give --rate or --load with it")
    least = options.blocks or (QUICK_BLOCKS if options.quick else DEFAULT_BLOCKS)
    ttft, tpot = options.objective or (None, None)
    load = LoadChoice(
        rates_per_s=options.rates,
        process=options.arrivals,
        objective_ttft_ms=ttft,
        objective_tpot_ms=tpot,
    )
    return Choices(
        arms=options.arms or DEFAULT_ARMS,
        baselines=options.baselines,
        workloads=FULL if options.full else options.workloads or ("day44",),
        slots=options.slots,
        dtypes=options.dtypes or ("float32",),
        least_blocks=least,
        most_blocks=options.most_blocks or least,
        target=options.target,
        seed=options.seed,
        acknowledged=tuple(
            AcknowledgedRefusal(cell=cell, rule=rule, reason=reason)
            for cell, rule, reason in options.acknowledge
        ),
        load=load if open_loop else None,
    )
