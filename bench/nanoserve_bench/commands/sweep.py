"""`nanoserve-bench sweep`: plan, run or resume, judge."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from nanoserve_bench import devices, environment, revision
from nanoserve_bench.arms import FORM
from nanoserve_bench.arrivals import PROCESSES
from nanoserve_bench.block import Study
from nanoserve_bench.builds import Build, build
from nanoserve_bench.capacity import with_shares
from nanoserve_bench.commands.choices import choices_of
from nanoserve_bench.commands.planned import print_plan, print_skipped_arms
from nanoserve_bench.commands.recorded import command_line
from nanoserve_bench.estimate import Costs, estimate
from nanoserve_bench.models import DEFAULT_MODEL, ModelFolder, materialise
from nanoserve_bench.plan import VOCABULARY, Fact
from nanoserve_bench.planning import (
    DEFAULT_ARMS,
    QUICK_BLOCKS,
    Choices,
    build_plan,
)
from nanoserve_bench.progress import BarProgress, PlainProgress, duration, make_console
from nanoserve_bench.results import MANIFEST
from nanoserve_bench.soundness.judge import judge_path
from nanoserve_bench.standings import print_standings
from nanoserve_bench.stopping import DEFAULT_BLOCKS
from nanoserve_bench.sweep import Sweep, now, stored, unfinished
from nanoserve_bench.systems import find
from nanoserve_bench.workload import FULL, SUFFIX, WORKLOADS, PromptBook
from nanoserve_bench.workload_file import WorkloadFile, read_workload

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
  0  everything measured is sound     2    the sweep could not be started
  1  the gate refused something       3    a worker failed
                                      130  interrupted; start it again to go on
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
    help="Name of the result folder. One that exists and is unfinished goes on where it stopped. "
    "[default: that of an unfinished sweep of the same plan; else date, device, workload and "
    "revision]",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and how long it takes; run nothing.")
def sweep(
    *,
    model: str,
    arms: tuple[str, ...],
    baselines: tuple[str, ...],
    workloads: tuple[str, ...],
    slots: tuple[int, ...],
    wanted: tuple[str, ...],
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
    threads: int | None,
    seed: int,
    acknowledge: tuple[tuple[str, str, str], ...],
    out: Path,
    run_id: str | None,
    dry_run: bool,
) -> None:
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
    choices = choices_of(
        arms=arms,
        baselines=baselines,
        workloads=workloads,
        slots=slots,
        dtypes=dtypes,
        blocks=blocks,
        most_blocks=most_blocks,
        target=target,
        rates=rates,
        shares=shares,
        arrivals=arrivals,
        objective=objective,
        full=full,
        quick=quick,
        seed=seed,
        acknowledge=acknowledge,
    )
    prepared = _prepare(
        shares=shares,
        model=model,
        choices=choices,
        wanted=wanted,
        threads=threads,
        out=out,
        run_id=run_id,
    )
    if dry_run:
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


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A sweep that is ready to be started."""

    study: Study
    folder: Path
    facts: tuple[Fact, ...]
    costs: Costs


def _prepare(
    *,
    shares: tuple[float, ...],
    model: str,
    choices: Choices,
    wanted: tuple[str, ...],
    threads: int | None,
    out: Path,
    run_id: str | None,
) -> _Prepared:
    probe = devices.probe()
    measured, skipped = devices.choose(probe.devices, wanted)
    code = revision.current()
    folder = materialise(model)
    threads = threads or environment.usable_cores()
    machine = environment.fingerprint(probe.accelerators)
    choices, files = _with_files(choices, folder)
    if shares:
        choices = with_shares(choices, shares, measured, model=folder.name, earlier=out)
    stem = f"{datetime.now(UTC):%Y%m%d}-{'-'.join(_words(choices, measured))}-{code.short}"
    plan = build_plan(
        choices,
        run_id=run_id or _free_run_id(stem, out),
        created_at=now(),
        model=folder.name,
        devices=measured,
        skipped_devices=skipped,
        revision=code.commit,
        dirty=code.dirty,
        find_system=find,
        build_engine=_build,
        files=files,
    )
    going_on = unfinished(out, plan) if run_id is None else None
    if going_on is not None:
        plan = dataclasses.replace(plan, run_id=going_on.name)
    book = PromptBook(
        seed=plan.seed,
        workloads=plan.workloads,
        vocabulary=folder.vocabulary,
        given={
            workload.name: files[base].prompts
            for workload in plan.workloads
            for base in files
            if workload.name == base or (workload.arrivals and workload.name.startswith(f"{base}-"))
        },
    )
    return _Prepared(
        study=Study(
            plan=plan,
            model=folder,
            machine=machine,
            threads=threads,
            prompts=book,
            engines={arm.name: build(arm.revision).folder for arm in plan.arms if arm.revision},
        ),
        folder=out / plan.run_id,
        facts=(
            *environment.facts(threads=threads),
            *probe.facts,
            Fact(name="git_commit", value=code.commit),
            Fact(name="git_dirty", value=code.dirty),
            Fact(name="sources", value=code.sources),
            Fact(name="constraints", value=code.constraints),
            Fact(name="model_source", value=folder.source),
            Fact(name=VOCABULARY, value=folder.vocabulary.size, unit="token ids"),
        ),
        costs=estimate(plan, weight_bytes=folder.weight_bytes, earlier=out),
    )


def _with_files(choices: Choices, model: ModelFolder) -> tuple[Choices, dict[str, WorkloadFile]]:
    """The choices with files of requests by their names, and the files that were read."""
    files: dict[str, WorkloadFile] = {}
    names = []
    for workload in choices.workloads:
        if workload.endswith(SUFFIX):
            file = read_workload(Path(workload), model)
            files[file.name] = file
            names.append(file.name)
        else:
            names.append(workload)
    return dataclasses.replace(choices, workloads=tuple(names)), files


def _build(name: str) -> Build:
    """The engine at a revision; said, because compiling it takes a while."""
    click.echo(f"preparing nanoserve at {name}", err=True)
    return build(name)


def _words(choices: Choices, measured: tuple[str, ...]) -> list[str]:
    """What tells one run id from another: devices and workloads."""
    kinds = dict.fromkeys(device.partition(":")[0] for device in measured)
    return [*kinds, "full" if choices.workloads == FULL else "-".join(choices.workloads)]


def _free_run_id(stem: str, out: Path) -> str:
    """The first of `stem`, `stem-2`, ... that is not taken."""
    for number in itertools.count(1):
        run_id = stem if number == 1 else f"{stem}-{number}"
        if not (out / run_id).exists():
            return run_id
    raise AssertionError("unreachable")


def _run(prepared: _Prepared, console: Console, *, command: str) -> None:
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
