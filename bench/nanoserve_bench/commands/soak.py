"""`nanoserve-bench soak`: the engine's tokens against the reference's, in hostile conditions."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from nanoserve_bench.commands.recorded import command_line
from nanoserve_bench.commands.surroundings import look_around, require_writable
from nanoserve_bench.models import DEFAULT_MODEL
from nanoserve_bench.progress import make_console
from nanoserve_bench.run_names import dated, now
from nanoserve_bench.soak.cases import CASES, FULL, QUICK, draw
from nanoserve_bench.soak.records import SCHEMA_VERSION, Soak
from nanoserve_bench.soak.resume import begin
from nanoserve_bench.soak.session import Session

EXIT_BUG = 1

_EPILOG = """
\b
Exit codes
  0  the reference's tokens everywhere, but for near-ties, which are published
  1  a difference that is no near-tie, a request that failed, or a case that did not do what
     it is there for
  2  could not be started
  3  the reference failed, or a file could not be written
  130  interrupted; the same command goes on
"""


@click.command(epilog=_EPILOG)
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="As `sweep` takes it.")
@click.option("--quick", is_flag=True, help="A few short requests, for a look.")
@click.option(
    "--case",
    "chosen",
    multiple=True,
    type=click.Choice([case.name for case in CASES]),
    help="Only these; give several. [default: all]",
)
@click.option(
    "--prompts",
    type=click.IntRange(min=1),
    help="Only the first so many, for a machine with little time. [default: all]",
)
@click.option("--threads", type=click.IntRange(min=1), help="[default: the physical cores]")
@click.option("--seed", type=int, default=44, show_default=True, help="Of the prompts.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bench/soak"),
    show_default=True,
    help="Folder for the folders of runs.",
)
def soak(
    *,
    model: str,
    quick: bool,
    chosen: tuple[str, ...],
    prompts: int | None,
    threads: int | None,
    seed: int,
    out: Path,
) -> None:
    """Hold the engine's tokens against the reference's, over prompts of mixed length.

    The reference answers every prompt once. The engine serves all of them in one slot and in many,
    in pieces, from a cache that is too small and with one that is shared, on both its paths. A
    token that differs is looked into by teacher forcing: inside the reference's own noise floor it
    is published as a near-tie, otherwise it is a bug. Answers and cases are kept as they come, and
    an interrupted soak goes on when it is started again with the same code on the same machine.
    """
    console = make_console()
    require_writable(out)
    around = look_around(model, threads)
    code, folder = around.code, around.model
    requests = draw(QUICK if quick else FULL, folder.vocabulary, seed)[:prompts]
    cases = [case for case in CASES if not chosen or case.name in chosen]
    planned = Soak(
        schema=SCHEMA_VERSION,
        run_id=dated(code.short),
        created_at=now(),
        revision=code.commit,
        dirty=code.dirty,
        sources=code.sources,
        model=folder.name,
        model_source=folder.source,
        machine=around.machine,
        threads=around.threads,
        seed=seed,
        facts=around.facts,
        reference="",
        requests=0,
        complete=False,
        cases=(),
        differences=(),
        command=command_line(click.get_current_context()),
    )
    begun = begin(out, planned, requests=requests, cases={case.name for case in cases})
    kept = out / begun.soak.run_id
    if begun.answers:
        console.print(
            f"{kept} goes on: {len(begun.answers)} of {len(requests)} answers, "
            f"{len(begun.soak.cases)} of {len(cases)} cases",
            highlight=False,
            markup=False,
        )
    session = Session(
        begun,
        kept,
        model=folder,
        requests=requests,
        say=lambda line: console.print(line, markup=False, highlight=False),
    )
    result = session.run(cases)
    _print(result, console)
    console.print(f"results: {kept}", markup=False, highlight=False, soft_wrap=True)
    if not result.sound:
        sys.exit(EXIT_BUG)


def _print(soak: Soak, console: Console) -> None:
    table = Table(box=None, pad_edge=False, title=soak.run_id, title_justify="left")
    table.add_column("case")
    for title in ("requests", "tokens", "identical", "near-ties", "bugs"):
        table.add_column(title, justify="right")
    table.add_column("finding")
    table.add_column("note", overflow="fold")
    for row in soak.cases:
        numbers = (row.requests, row.tokens, row.identical, row.near_ties, row.bugs)
        table.add_row(row.case, *map(str, numbers), row.finding, row.note or "")
    console.print(table)
