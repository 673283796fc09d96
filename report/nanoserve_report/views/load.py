"""Tables of open loops: what was offered and met, and what the callers waited for."""

from __future__ import annotations

from fractions import Fraction

from nanoserve_bench.latency import Percentiles
from nanoserve_bench.soundness import SoundCell
from nanoserve_report import numbers
from nanoserve_report.links import Linker
from nanoserve_report.loads import Load, loads
from nanoserve_report.sweeps import Sweep
from nanoserve_report.tables import Cell, Column, Hole, Num, Table, Text
from nanoserve_report.views import common

NO_OBJECTIVE = Hole(reason="the plan states no objective")
NO_CAPACITY = Hole(reason="the capacity was not measured in this study")
METRICS = ("TTFT", "TPOT", "ITL", "E2EL")


def offered(sweep: Sweep, linker: Linker) -> Table:
    """One row per open loop: its rate, its queue, its goodput, and whether it was saturated."""
    return Table(
        caption="Open loops: what was offered, and what became of it",
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots"),
            Column(label="arrivals", numeric=False),
            Column(label="offered", unit="requests/s"),
            Column(label="of capacity", unit="measured in this study"),
            Column(label="requests", unit="all blocks"),
            Column(label="queue share", unit="of time in system"),
            Column(label="goodput", unit="requests/s"),
            Column(label="met the objective", unit="of requests"),
            Column(label="state", numeric=False),
        ),
        rows=tuple(_offered(sweep, load, linker) for load in loads(sweep)),
        named=(0, 1, 2, 3),
    )


def _head(load: Load) -> tuple[Cell, Cell]:
    return Text(text=load.cell.cell.arm), common.whole(load.cell.cell.slots)


def _offered(sweep: Sweep, load: Load, linker: Linker) -> tuple[Cell, ...]:
    arrivals = load.workload.arrivals
    process = Text(text="" if arrivals is None else arrivals.process)
    rate = Text(text=numbers.significant(load.rate_per_s))
    cell, figures = load.cell, load.figures
    if not isinstance(cell, SoundCell) or figures is None:
        hole = (
            common.refused(cell.findings, sweep.name, linker)
            if not isinstance(cell, SoundCell)
            else Hole(reason="no figures")
        )
        return (*_head(load), process, rate, *(hole,) * 6)
    share: Cell = NO_CAPACITY
    if load.share is not None:
        share = Num(value=load.share, text=f"{100 * load.share:.0f}{numbers.PERCENT}")
    good: tuple[Cell, Cell] = (NO_OBJECTIVE, NO_OBJECTIVE)
    if figures.goodput is not None:
        met = figures.goodput
        good = (
            _number(met.per_s),
            Num(value=met.good / met.requests, text=_of(met.good, met.requests)),
        )
    requests = 0 if figures.e2el is None else figures.e2el.n
    return (
        *_head(load),
        process,
        rate,
        share,
        common.whole(requests),
        common.share(cell.queue_share, common.NO_HOLDS),
        *good,
        Text(text=load.state, tone="bad" if figures.saturated else ""),
    )


def _number(value: Fraction) -> Num:
    return Num(value=float(value), text=numbers.significant(float(value)))


def _of(part: int, whole: int) -> str:
    return f"{part / whole:.0%}"


def percentiles(sweep: Sweep, linker: Linker) -> Table:
    """One row per open loop and figure, with the number of values behind the percentiles."""
    rows: list[tuple[Cell, ...]] = []
    for load in loads(sweep):
        figures = load.figures
        for metric in METRICS:
            head = (*_head(load), Text(text=numbers.significant(load.rate_per_s)))
            if figures is None:
                findings = () if isinstance(load.cell, SoundCell) else load.cell.findings
                hole = common.refused(findings, sweep.name, linker)
                rows.append((*head, Text(text=metric), *(hole,) * 4))
                continue
            of_metric = dict(
                zip(METRICS, (figures.ttft, figures.tpot, figures.itl, figures.e2el), strict=True)
            )
            rows.append((*head, Text(text=metric), *_percentiles(of_metric[metric])))
    return Table(
        caption="What callers waited for in open loops, over the requests of all blocks",
        columns=(
            Column(label="system", numeric=False),
            Column(label="slots"),
            Column(label="offered", unit="requests/s"),
            Column(label="figure", numeric=False),
            Column(label="n", unit="values"),
            Column(label="p50", unit="ms"),
            Column(label="p90", unit="ms"),
            Column(label="p99", unit="ms"),
        ),
        rows=tuple(rows),
        named=(0, 1, 2, 3),
    )


def _percentiles(found: Percentiles | None) -> tuple[Cell, ...]:
    if found is None:
        return (Hole(reason=common.NO_STAMPS),) * 4
    few = Hole(reason=f"{found.n} values are too few for it")
    return (
        common.whole(found.n),
        *(
            few if value is None else _number(1000 * value)
            for value in (found.p50, found.p90, found.p99)
        ),
    )
