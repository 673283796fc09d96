"""A plan on the console: what would run, and what will not."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from nanoserve_bench.estimate import Costs
from nanoserve_bench.plan import Plan
from nanoserve_bench.progress import duration


def print_skipped_arms(plan: Plan, console: Console) -> None:
    """What was asked for and is a hole."""
    for arm in plan.skipped_arms:
        where = f" on {arm.device} in {arm.dtype}" if arm.device else ""
        where += f" in {', '.join(arm.workloads)}" if arm.workloads else ""
        console.print(
            f"skipped: {arm.arm}{where} ({arm.reason})",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def print_plan(plan: Plan, costs: Costs, console: Console) -> None:
    """What would run, cell by cell."""
    table = Table(box=None, pad_edge=False, title=plan.run_id, title_justify="left")
    for title in ("cell", "system", "requests x tokens"):
        table.add_column(title, overflow="fold")
    table.add_column("seconds a trial", justify="right")
    workloads = {workload.name: workload for workload in plan.workloads}
    for cell in plan.cells:
        workload = workloads[cell.workload]
        known = "" if cell.id in costs.measured else "~"
        table.add_row(
            cell.id,
            cell.system,
            f"{workload.requests} x {'up to ' if workload.lengths else ''}{workload.new_tokens}",
            f"{known}{costs.cells_s[cell.id]:.1f}",
        )
    console.print(table)
    for device in plan.skipped_devices:
        console.print(f"skipped: {device.device} ({device.reason})", highlight=False)
    print_skipped_arms(plan, console)
    block_s = costs.block_s(plan)
    console.print(
        f"{plan.blocks.least} to {plan.blocks.most} blocks of about {duration(block_s)}, and at "
        f"most {plan.blocks.most_reruns} contended ones again: about "
        f"{duration(plan.blocks.most * block_s)} in all",
        highlight=False,
    )
    console.print(
        "~ is a rough guess; without it, an earlier run measured it", highlight=False, style="dim"
    )
