"""`nanoserve-bench check`: judge result folders, in words or for a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from nanoserve_bench.commands import formats
from nanoserve_bench.soundness.judge import judge_path
from nanoserve_bench.soundness.verdict import Verdict

EXIT_SOUND, EXIT_REFUSED = 0, 1

FORMATS: dict[str, Callable[[Sequence[Verdict]], str]] = {
    "text": formats.as_text,
    "json": formats.as_json,
    "github": formats.as_github,
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
    help="text for people; json has everything; github annotates a pull request; junit and sarif "
    "feed the tools that read them.",
)
@click.pass_context
def check(context: click.Context, paths: tuple[Path, ...], style: str) -> None:
    """Judge result folders by every rule, from their rows alone.

    All findings are reported, not the first. Refusals that a plan acknowledged beforehand are
    reported, and do not count.

    \b
    Exit status:
      0  every folder is sound
      1  something was refused
      2  the command line cannot be understood
    """  # noqa: D301 - click reads the \b as a mark, so it must be one
    verdicts = [judge_path(path) for path in paths]
    click.echo(FORMATS[style](verdicts))
    context.exit(EXIT_SOUND if all(verdict.ok for verdict in verdicts) else EXIT_REFUSED)
