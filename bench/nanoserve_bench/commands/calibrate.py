"""`nanoserve-bench calibrate`: what the statistics are worth, on the recorded noise."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from nanoserve_bench.calibration import document
from nanoserve_bench.calibration.records import (
    LEAST_HELD,
    MOST_FALSE,
    MOST_HELD,
    Calibration,
    Outcomes,
    Share,
)
from nanoserve_bench.calibration.simulate import (
    DEFAULT_STUDIES,
    LEAST_STUDIES,
    CalibrationError,
    Order,
)
from nanoserve_bench.calibration.simulate import calibrate as simulate_all
from nanoserve_bench.commands.names import one_name
from nanoserve_bench.progress import make_console
from nanoserve_bench.soundness.judge import judge_path

EXIT_MET, EXIT_MISSED = 0, 1
RESULTS = Path("bench/results")


@click.command()
@click.argument(
    "paths", nargs=-1, type=click.Path(path_type=Path, exists=True), metavar="[PATH]..."
)
@click.option(
    "--studies",
    type=click.IntRange(min=LEAST_STUDIES),
    default=DEFAULT_STUDIES,
    show_default=True,
    help="Simulated studies of each kind.",
)
@click.option("--seed", type=int, default=44, show_default=True, help="Of everything random.")
@click.option(
    "--name", default="default", show_default=True, callback=one_name, help="Of the files."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bench/calibration"),
    show_default=True,
    help="Where the files go. The report looks beside the results.",
)
@click.pass_context
def calibrate(
    context: click.Context,
    paths: tuple[Path, ...],
    *,
    studies: int,
    seed: int,
    name: str,
    out: Path,
) -> None:
    """Simulate whole studies from the noise of real blocks, where the truth is known.

    PATHS are results folders (default: those that NAME was made of, else every folder of
    bench/results). The A/A pairs of the sound ones are played back, block by block, through the
    declared order, the stopping rule, the estimates, the A/A envelope and the verdict that real
    studies use: studies in which nothing differs, and studies in which the candidate is 5 % faster.
    The result is written to the --out folder as NAME.json, NAME.csv and NAME-intervals.csv; the
    same inputs and seed give the same bytes.

    \b
    Exit status:
      0  false verdicts and coverage are within their targets
      1  a target is missed: it is written down all the same
      2  no calibration can be made of these folders
    """  # noqa: D301 - click reads the \b as a mark, so it must be one
    console = make_console()
    verdicts = [judge_path(path) for path in paths or _default_paths(out / f"{name}.json")]
    order = Order(name=name, seed=seed, studies=studies)
    record = simulate_all(order, verdicts, tell=console.print)
    changed = document.write(out, record)
    print_outcomes(record, console)
    where = out / f"{name}.json"
    state = "written" if changed else "reproduced to the byte"
    console.print(f"\n{where}: {state}")
    context.exit(EXIT_MISSED if record.missed or not record.judged else EXIT_MET)


def _default_paths(stored: Path) -> tuple[Path, ...]:
    """The folders of a calibration that is there, so that it can be reproduced; else all."""
    if stored.is_file():
        record, problems = document.read(stored)
        if record is None:
            raise CalibrationError(f"{stored} cannot be reproduced: {'; '.join(problems)}")
        return tuple(RESULTS / item.run_id for item in record.inputs)
    return tuple(sorted(path for path in RESULTS.glob("[!.]*") if path.is_dir()))


def print_outcomes(record: Calibration, console: Console) -> None:
    """A table per source, the other intervals below, then whether the targets are met."""
    for source in record.sources:
        console.print(_studies_table(record, source.name))
        console.print(_intervals_table(record, source.name))
    targets = (
        f"targets: faster or slower in at most {MOST_FALSE:.1%} of A/A studies, coverage between "
        f"{LEAST_HELD:.0%} and {MOST_HELD:.0%}"
    )
    if not record.judged:
        console.print(f"{targets}: no source has enough pairs for them")
        return
    missed = [f"{row.source}, {kind_of(row)}" for row in record.missed]
    met = f"met by all {len(record.judged)} kinds of study"
    console.print(f"{targets}: {'missed by ' + '; '.join(missed) if missed else met}")
    rest = [row for row in record.outcomes if row not in record.judged]
    if held := [row.share(row.held).point for row in rest if row.stated]:
        console.print(
            f"not put to {len(rest)} more kinds, whose coverage goes down to {min(held):.1%}"
        )


def kind_of(row: Outcomes) -> str:
    """What kind of study a row counts, in a few words."""
    rule = f"{row.most} blocks"
    if row.target_half_width is not None:
        rule = f"{row.least}-{row.most} blocks to {row.target_half_width:.0%}"
    drawn = "one by one" if row.run_length == 1 else f"{row.run_length} in a row"
    return f"{rule}, {drawn}, A/A {row.arms}, {row.effect:.2f}"


def _studies_table(record: Calibration, source: str) -> Table:
    table = Table(title=source, title_justify="left", box=None, pad_edge=False)
    table.add_column("studies", no_wrap=True)
    for name in ("refused", "faster", "slower", "same", "undecided", "bare", "coverage", "blocks"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in record.outcomes:
        if row.source == source:
            table.add_row(kind_of(row), *_cells(row))
    return table


def _cells(row: Outcomes) -> tuple[str, ...]:
    refused = f"{row.refused / row.studies:.1%}"
    if not row.stated or row.mean_blocks is None:
        return (refused, *["-"] * 7)
    counts = (row.faster, row.slower, row.no_difference, row.undecided)
    return (
        refused,
        *(f"{row.share(count).point:.1%}" for count in counts),
        f"{row.share(row.bare_faster + row.bare_slower).point:.1%}",
        _with_error(row.share(row.held)),
        f"{row.mean_blocks:.1f}",
    )


def _intervals_table(record: Calibration, source: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("interval", no_wrap=True)
    for name in ("blocks", "run", "coverage", "half-width"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in record.intervals:
        if row.source == source:
            width = f"{row.mean_half_width:.2%}"
            cells = (f"{row.blocks}", f"{row.run_length}", _with_error(row.share), width)
            table.add_row(row.method, *cells)
    return table


def _with_error(share: Share) -> str:
    low, high = share.interval
    return f"{share.point:.1%} \N{PLUS-MINUS SIGN}{100 * (high - low) / 2:.1f}"
