"""`nanoserve-bench sweep`: plan, run or resume, judge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nanoserve_bench.arms import FORM
from nanoserve_bench.arrivals import PROCESSES
from nanoserve_bench.commands.choices import SweepOptions
from nanoserve_bench.commands.names import one_name
from nanoserve_bench.commands.planned import print_plan, print_skipped_arms
from nanoserve_bench.commands.preparing import Prepared, prepare
from nanoserve_bench.commands.recorded import command_line
from nanoserve_bench.commands.surroundings import require_writable
from nanoserve_bench.models import DEFAULT_MODEL
from nanoserve_bench.planning import DEFAULT_ARMS, QUICK_BLOCKS
from nanoserve_bench.progress import BarProgress, PlainProgress, duration, make_console
from nanoserve_bench.results import MANIFEST
from nanoserve_bench.resume import stored
from nanoserve_bench.soundness.judge import judge_path
from nanoserve_bench.standings import print_standings
from nanoserve_bench.stopping import DEFAULT_BLOCKS
from nanoserve_bench.sweep import Sweep
from nanoserve_bench.workload import SUFFIX, WORKLOADS

EXIT_REFUSED = 1

_EPILOG = """
\b
Examples
  nanoserve-bench sweep                    the default study: about six minutes on two cores
  nanoserve-bench sweep --quick            two blocks, to see that everything works
  nanoserve-bench sweep --dry-run --full   what would run, and for how long
  nanoserve-bench sweep --device cpu --arm hf-generate --arm mine=my-engine
  nanoserve-bench sweep --arm before=nanoserve@main --arm nanoserve

\b
Exit codes
  0    everything measured is sound
  1    the gate refused something
  2    the sweep could not be started
  3    a worker failed, or a file could not be written; start it again to go on
  130  interrupted; likewise
"""


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a workload that is neither known nor a file, before anything is prepared."""
    for name in names:
        if name not in WORKLOADS and not name.endswith(SUFFIX):
            raise click.BadParameter(
                f"{name!r} is not one of {', '.join(WORKLOADS)}, and no file that ends in {SUFFIX}"
            )
    return names


@click.command(epilog=_EPILOG)
@click.option(
    "--model",
    default=DEFAULT_MODEL,
    show_default=True,
    help="smollm2-135m, a .gguf file, a model folder, a Hugging Face id, or synthetic:<config>.",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    metavar=FORM,
    help="A system that takes part, under a name of its own, with what it is told (`systems` lists "
    f"the options); give several. [default: {', '.join(DEFAULT_ARMS)}]",
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="NAME",
    help="An arm that ratios are stated against; give several, the headline's first. Each takes "
    "part once more where no other arm is the same: that A/A shows the noise. [default: the "
    "first arm]",
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    callback=lambda _, __, names: _known(names),
    metavar="NAME|FILE.jsonl",
    help=f"What is run: {', '.join(WORKLOADS)}, or a file with one request a line; give several. "
    "[default: day44]",
)
@click.option(
    "--slots",
    type=int,
    multiple=True,
    help="Slots of the concurrent systems; give several. [default: the workload's own]",
)
@click.option(
    "--device",
    "wanted",
    multiple=True,
    help="cpu, cuda:0, mps, xpu; give several. [default: every one that works]",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(["float32", "bfloat16"]),
    help="Weights and activations; give several. [default: float32]",
)
@click.option(
    "--blocks",
    type=click.IntRange(min=1),
    help=f"Blocks that always run; each runs every cell once. [default: {DEFAULT_BLOCKS}]",
)
@click.option(
    "--most-blocks",
    type=click.IntRange(min=1),
    help="Go on to at most this many blocks until --target is met. [default: the same as --blocks]",
)
@click.option(
    "--target",
    type=float,
    help="Half-width of the speedups' intervals, relative to them, that is narrow enough: 0.02.",
)
@click.option(
    "--rate",
    "rates",
    type=float,
    multiple=True,
    help="Also offer the workload in an open loop, at so many requests per second; give several.",
)
@click.option(
    "--load",
    "shares",
    type=float,
    multiple=True,
    help="Likewise, as a share (0.8) of the capacity that an earlier run in --out measured for the "
    "last arm at the most slots; for one workload, device and dtype.",
)
@click.option(
    "--arrivals",
    type=click.Choice(PROCESSES),
    default=PROCESSES[0],
    show_default=True,
    help="Gaps between the requests of an open loop.",
)
@click.option(
    "--objective",
    nargs=2,
    type=float,
    metavar="TTFT_MS TPOT_MS",
    help="What a request of an open loop must meet to count into its goodput.",
)
@click.option("--full", is_flag=True, help="Both workloads: day44 and day44x32.")
@click.option(
    "--quick",
    is_flag=True,
    help=f"{QUICK_BLOCKS} blocks, for a look. The gate refuses verdicts from so few.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Compute threads of every worker. [default: the physical cores]",
)
@click.option("--seed", type=int, default=44, show_default=True, help="Of prompts and orders.")
@click.option(
    "--acknowledge",
    nargs=3,
    multiple=True,
    metavar="CELL RULE REASON",
    help="Expect a refusal, declared now: it stays a hole, and is no failure.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bench/results"),
    show_default=True,
    help="Folder for result folders.",
)
@click.option(
    "--run-id",
    callback=one_name,
    help="Name of the result folder. One that exists and is unfinished goes on where it stopped. "
    "[default: that of an unfinished sweep of the same plan; else date, device, workload and "
    "revision]",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and how long it takes; run nothing.")
def sweep(**given: Any) -> None:
    """Measure systems against each other, and judge what came out.

    A sweep runs blocks. Every block launches a worker process per system afresh, and runs every
    cell (a system on a device, in a dtype, with so many slots, on a workload) once, in an order
    of its own and with prompts of its own. The first block is as good as any other: nothing is
    thrown away, and the plan is written down before the first trial.

    Leave the machine alone while it runs. You may stop it: the same command goes on where it
    stopped, on the same code and machine. Let a block get done between two stops, though: the gate
    accepts 3 starts that ended without one, and refuses the study from the fourth on.
    """
    console = make_console()
    options = SweepOptions(**given)
    if not options.dry_run:
        require_writable(options.out)
    prepared = prepare(options)
    if options.dry_run:
        print_plan(prepared.study.plan, prepared.costs, console)
        return
    _run(prepared, console, command=command_line(click.get_current_context()))
    verdict = judge_path(prepared.folder)
    print_standings(verdict, console)
    for finding in verdict.unacknowledged:
        console.print(str(finding), markup=False, highlight=False, soft_wrap=True)
    console.print(f"results: {prepared.folder}", markup=False, highlight=False, soft_wrap=True)
    if not verdict.ok:
        sys.exit(EXIT_REFUSED)


def _run(prepared: Prepared, console: Console, *, command: str) -> None:
    plan, costs = prepared.study.plan, prepared.costs
    block_s = costs.block_s(plan)
    console.print(
        f"{plan.run_id}: {len(plan.cells)} cells, {plan.blocks.most} blocks, about "
        f"{duration(plan.blocks.most * block_s)} in all",
        highlight=False,
    )
    print_skipped_arms(plan, console)
    if (prepared.folder / MANIFEST).is_file():
        done = stored(prepared.folder)[1].blocks_done
        console.print(f"going on: blocks that are done already: {done}", highlight=False)
    kind = BarProgress if console.is_terminal else PlainProgress
    with kind(console, costs, block_s=block_s) as progress:
        Sweep(
            prepared.study,
            prepared.folder,
            facts=prepared.facts,
            command=command,
            progress=progress,
        ).run()
