"""`nanoserve-bench perf`: the speed table, or the profile of a step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nanoserve_bench.commands.names import one_name
from nanoserve_bench.commands.recorded import command_line
from nanoserve_bench.commands.surroundings import look_around, require_writable
from nanoserve_bench.models import DEFAULT_MODEL, ModelFolder
from nanoserve_bench.perf.arms import FULL, QUICK, Arm, Scale, arms_of, orders
from nanoserve_bench.perf.figures import Standing, figure_rows
from nanoserve_bench.perf.files import DOCUMENT, read_profile, read_run, write_profile
from nanoserve_bench.perf.goals import GOALS, Best
from nanoserve_bench.perf.profile import DOCUMENT as PROFILE
from nanoserve_bench.perf.profile import SCHEMA_VERSION as PROFILE_SCHEMA
from nanoserve_bench.perf.profile import Profile, joined
from nanoserve_bench.perf.profiling import VARIANTS, take_profile
from nanoserve_bench.perf.records import SCHEMA_VERSION, FigureRow, PerfRun
from nanoserve_bench.perf.session import Session, begin
from nanoserve_bench.perf.table import print_figures, print_profile
from nanoserve_bench.plan import Fact
from nanoserve_bench.progress import duration, make_console
from nanoserve_bench.run_names import dated, first, now
from nanoserve_bench.soundness.rules.stat_blocks import LEAST_FOR_A_RATIO

EXIT_MISSED = 1

_EPILOG = """
\b
Exit codes
  0  measured; holes of absent rivals are no failure
  1  this engine or its baseline gave no number, or one that was refused;
     with --check, a goal was missed, too (an undecided one is no failure)
  2  could not be started
  3  a file could not be written
  130  interrupted; the same command goes on
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerfOptions:
    """The command line, under the names that click gives its options."""

    model: str
    rounds: int | None
    quick: bool
    rivals: bool
    check: bool
    profile: bool
    variants: tuple[str, ...]
    threads: int | None
    seed: int
    out: Path
    run_id: str | None
    dry_run: bool

    @property
    def scale(self) -> Scale:
        """How much is measured."""
        scale = QUICK if self.quick else FULL
        return replace(scale, rounds=self.rounds or scale.rounds)

    def refuse_contradictions(self) -> None:
        """Refuse an option that would be ignored.

        Raises:
            click.UsageError: There is one.
        """
        if self.variants and not self.profile:
            raise click.UsageError("--variant is of the profile: give --profile with it")
        of_the_table = {
            "--rounds": self.rounds is not None,
            "--quick": self.quick,
            "--no-rivals": not self.rivals,
            "--check": self.check,
            "--dry-run": self.dry_run,
        }
        ignored = [name for name, given in of_the_table.items() if given]
        if self.profile and ignored:
            raise click.UsageError(
                f"{', '.join(ignored)} is of the table: give it or --profile, not both"
            )


@click.command(epilog=_EPILOG)
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="As `sweep` takes it.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="Rounds; each runs every arm once. With fewer than "
    f"{LEAST_FOR_A_RATIO} there is no interval and no verdict. [default: {FULL.rounds}]",
)
@click.option("--quick", is_flag=True, help="Two rounds of short outputs, for a look: no verdicts.")
@click.option("--rivals/--no-rivals", default=True, help="Run the rivals that are installed.")
@click.option("--check", is_flag=True, help="Exit with 1 when a goal is missed.")
@click.option(
    "--profile", is_flag=True, help="Take the profile of a decode step instead of the table."
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    type=click.Choice([variant.name for variant in VARIANTS]),
    help="Of the profile: only these; the others stay as they were taken. [default: all]",
)
@click.option("--threads", type=click.IntRange(min=1), help="[default: the physical cores]")
@click.option("--seed", type=int, default=44, show_default=True, help="Of prompts and orders.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bench/perf"),
    show_default=True,
    help="Folder for the folders of runs.",
)
@click.option(
    "--run-id",
    callback=one_name,
    help="Name of the run's folder; an unfinished one goes on. [default: date and revision]",
)
@click.option("--dry-run", is_flag=True, help="Print what would run, and for how long.")
def perf(**given: Any) -> None:
    """Measure the engine's speed table: every goal as a ratio of the same run.

    A round launches every arm once (the baselines, this engine, its torch path, the rivals that are
    installed), in a seeded order that the next round mirrors, and measures what the machine can do.
    Each arm's raw counts and times are kept as soon as it has run. Leave the machine alone while
    it runs: what other load disturbs is run again, within a limit, and marked.
    """
    console = make_console()
    options = PerfOptions(**given)
    options.refuse_contradictions()
    if not options.dry_run:
        require_writable(options.out)
    prepared = _prepare(options, command=command_line(click.get_current_context()))
    if options.profile:
        _take_profile(prepared, console, options.variants or [v.name for v in VARIANTS])
        return
    arms = arms_of(options.scale, rivals=options.rivals)
    session = Session(
        begin(prepared.folder, prepared.run),
        prepared.folder,
        model=prepared.model,
        arms=arms,
        say=lambda line: console.print(line, markup=False, highlight=False),
    )
    console.print(
        f"{prepared.run.run_id}: {len(arms)} arms, {options.scale.rounds} round(s), about "
        f"{duration(session.left_s())} in all",
        highlight=False,
    )
    if options.dry_run:
        _print_plan(arms, console)
        return
    run = session.run()
    figures = figure_rows(run)
    print_figures(run, figures, console)
    console.print(f"results: {prepared.folder}", markup=False, highlight=False, soft_wrap=True)
    if failed(figures, check=options.check):
        sys.exit(EXIT_MISSED)


def failed(figures: Sequence[FigureRow], *, check: bool) -> bool:
    """Whether the exit code says so; see the epilogue."""
    optional = {goal.key for goal in GOALS if isinstance(goal.reference, Best)}
    return any(
        row.verdict == Standing.REFUSED
        or (row.verdict == Standing.HOLE and row.figure not in optional)
        or (check and row.verdict == Standing.MISSED)
        for row in figures
    )


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A run that is ready to be started."""

    run: PerfRun
    model: ModelFolder
    folder: Path


def _prepare(options: PerfOptions, *, command: str) -> _Prepared:
    around = look_around(options.model, options.threads)
    code, folder, scale = around.code, around.model, options.scale
    run_id = options.run_id or first(
        dated(code.short),
        lambda name: _suits(options.out / name, unfinished=not options.profile),
    )
    run = PerfRun(
        schema=SCHEMA_VERSION,
        run_id=run_id,
        created_at=now(),
        revision=code.commit,
        dirty=code.dirty,
        sources=code.sources,
        model=folder.name,
        model_source=folder.source,
        weight_bytes=folder.weight_bytes,
        machine=around.machine,
        threads=around.threads,
        seed=options.seed,
        facts=(*around.facts, Fact(name="constraints", value=code.constraints)),
        workloads=scale.workloads(),
        orders=orders(arms_of(scale, rivals=options.rivals), scale.rounds, options.seed),
        done=(),
        complete=False,
        command=command,
    )
    return _Prepared(run=run, model=folder, folder=options.out / run_id)


def _suits(folder: Path, *, unfinished: bool) -> bool:
    """Whether a run may go there: it holds no table, or one to go on with where that is asked for.

    A profile stands beside the table of the same code, complete or not.
    """
    if not unfinished or not (folder / DOCUMENT).is_file():
        return True
    return not read_run(folder).complete


def _print_plan(arms: Sequence[Arm], console: Console) -> None:
    for arm in arms:
        cells = ", ".join(f"{c.requests} x {c.workload} in {c.slots}" for c in arm.cells)
        console.print(f"{arm.name}: {cells}", markup=False, highlight=False)


def _take_profile(prepared: _Prepared, console: Console, names: Sequence[str]) -> None:
    run = prepared.run
    console.print(f"{run.run_id}: the profile of a step, some minutes", highlight=False)
    taken = take_profile(
        prepared.model,
        threads=run.threads,
        say=lambda line: console.print(line, markup=False, highlight=False),
        variants=[variant for variant in VARIANTS if variant.name in names],
    )
    profile = Profile(
        schema=PROFILE_SCHEMA,
        run_id=run.run_id,
        created_at=run.created_at,
        revision=run.revision,
        dirty=run.dirty,
        sources=run.sources,
        model=run.model,
        machine=run.machine,
        threads=run.threads,
        facts=run.facts,
        disturbed=taken.disturbed,
        rows=taken.rows,
        command=run.command,
    )
    if (prepared.folder / PROFILE).is_file():
        profile = joined(read_profile(prepared.folder), profile)
    write_profile(prepared.folder, profile)
    print_profile(taken.rows, console)
    for line in taken.disturbed:
        console.print(f"disturbed: {line}", markup=False, highlight=False)
    console.print(f"results: {prepared.folder}", markup=False, highlight=False, soft_wrap=True)
