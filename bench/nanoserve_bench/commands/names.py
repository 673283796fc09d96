"""Options whose value becomes the name of a file or a folder."""

from __future__ import annotations

from pathlib import Path

import click

from nanoserve_bench.columns import text_flaw


def one_name(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    """Refuse what leads into another folder, and what a reader of the folder would not see.

    Raises:
        click.BadParameter: It does.
    """
    if name is None:
        return None
    if not name or text_flaw(name) is not None or Path(name).name != name or name.startswith("."):
        raise click.BadParameter(
            f"{name!r} cannot name a file or a folder: give one plain name, without a slash, and "
            "without a dot in front"
        )
    return name
