"""The tables at the end of a sweep: what is sound, as the source document prints it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from nanoserve_bench.plan import Cell
from nanoserve_bench.soundness.verdict import (
    RefusedComparison,
    SoundCell,
    SoundComparison,
    SoundMarginal,
    Verdict,
)
from nanoserve_bench.statistics import Estimate

_NONE = "-"


def print_standings(verdict: Verdict, console: Console) -> None:
    """A table per device, dtype and workload, the doublings below, then what was refused."""
    if verdict.results is None:
        return
    plan = verdict.results.plan
    grounds = dict.fromkeys((cell.device, cell.dtype, cell.workload) for cell in plan.cells)
    for device, dtype, workload in grounds:
        cells = [
            cell
            for cell in plan.cells
            if (cell.device, cell.dtype, cell.workload) == (device, dtype, workload)
        ]
        title = f"{plan.model}, {device} {dtype}, {workload}"
        console.print(_systems_table(verdict, cells, title, baseline=plan.headline_baseline))
        doublings = [
            marginal
            for marginal in verdict.marginals
            if isinstance(marginal, SoundMarginal)
            and (marginal.device, marginal.dtype, marginal.workload) == (device, dtype, workload)
        ]
        if doublings:
            console.print(_doublings_table(doublings))


def _systems_table(verdict: Verdict, cells: list[Cell], title: str, *, baseline: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("system", no_wrap=True)
    for name in ("tok/s", "speedup", "batch", "per slot-second", "queue share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    comparisons = {
        comparison.candidate.id: comparison
        for comparison in verdict.comparisons
        if comparison.baseline.arm == baseline
    }
    for cell in cells:
        row = _system_row(verdict, cell, comparisons, baseline=baseline)
        table.add_row(f"{cell.arm}, {cell.slots}", *row)
    return table


def _system_row(
    verdict: Verdict,
    cell: Cell,
    comparisons: dict[str, SoundComparison | RefusedComparison],
    *,
    baseline: str,
) -> tuple[str, ...]:
    sound = verdict.cells.get(cell.id)
    if not isinstance(sound, SoundCell):
        codes = sorted({finding.rule for finding in sound.findings}) if sound else []
        return (*[_NONE] * 5, " ".join(["refused:", *codes]))
    speed, share = _number(sound.throughput, "{:.2f}"), _number(sound.queue_share, "{:.0%}")
    batch = _number(sound.batch_occupancy, "{:.2f}")
    comparison = comparisons.get(cell.id)
    if comparison is None:
        role = "baseline" if cell.arm == baseline else _NONE
        return speed, role, batch, _NONE, share, ""
    if isinstance(comparison, RefusedComparison):
        codes = sorted({finding.rule for finding in comparison.findings})
        return speed, _NONE, batch, _NONE, share, " ".join(["refused:", *codes])
    return (
        speed,
        f"{_number(comparison.speedup, '{:.2f}x')} {_interval(comparison.speedup)}",
        batch,
        _number(comparison.slot_factor, "{:.2f}x"),
        share,
        str(comparison.verdict),
    )


def _doublings_table(doublings: list[SoundMarginal]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("doubling", no_wrap=True)
    for name in ("batch x", "per slot-second x", "so throughput x"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for doubling in doublings:
        table.add_row(
            f"{doubling.arm}, {doubling.slots} -> {2 * doubling.slots}",
            _number(doubling.batch_ratio, "{:.2f}"),
            _number(doubling.slot_ratio, "{:.2f}"),
            f"{_number(doubling.product, '{:.2f}')} {_interval(doubling.product)}",
            str(doubling.verdict),
        )
    return table


def _number(estimate: Estimate | None, form: str) -> str:
    return _NONE if estimate is None else form.format(estimate.point)


def _interval(estimate: Estimate) -> str:
    return f"[{estimate.low:.2f}, {estimate.high:.2f}]"
