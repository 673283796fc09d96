"""`nanoserve-bench check`: judge result folders, in words or for a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from nanoserve_bench.commands import formats
from nanoserve_bench.commands.markdown import as_markdown
from nanoserve_bench.results import MANIFEST, PLAN
from nanoserve_bench.schema import ROW_TYPES
from nanoserve_bench.soundness.judge import judge_path
from nanoserve_bench.soundness.verdict import Verdict

CONTRACT = frozenset({PLAN, MANIFEST, *(row_type.FILE for row_type in ROW_TYPES)})
"""The names of the files that a results folder is made of."""
EXIT_SOUND, EXIT_REFUSED = 0, 1

FORMATS: dict[str, Callable[[Sequence[Verdict]], str]] = {
    "text": formats.as_text,
    "json": formats.as_json,
    "github": formats.as_github,
    "markdown": as_markdown,
    "junit": formats.as_junit,
    "sarif": formats.as_sarif,
}


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@click.option(
    "--format",
    "style",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="text for people; json has everything; github annotates a pull request, and "
    "markdown is a comment on one; junit and sarif "
    "feed the tools that read them.",
)
@click.pass_context
def check(context: click.Context, paths: tuple[Path, ...], style: str) -> None:
    """Judge result folders by every rule, from their rows alone.

    A file of a results folder stands for its folder, so that a hook can pass the files that change.
    All findings are reported, not the first. Refusals that a plan acknowledged beforehand are
    reported, and do not count.

    \b
    Exit status:
      0  every folder is sound
      1  something was refused
      2  the command line cannot be understood
    """  # noqa: D301 - click reads the \b as a mark, so it must be one
    verdicts = [judge_path(path) for path in dict.fromkeys(folder_of(path) for path in paths)]
    click.echo(FORMATS[style](verdicts))
    context.exit(EXIT_SOUND if all(verdict.ok for verdict in verdicts) else EXIT_REFUSED)


def folder_of(path: Path) -> Path:
    """The folder to judge: a file in a results folder stands for that folder.

    A file anywhere else, and what does not exist, stand for themselves, and are refused as such.
    """
    inside = path.name in CONTRACT or (path.parent / MANIFEST).is_file()
    return path.parent if inside and path.is_file() else path
