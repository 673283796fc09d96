"""`nanoserve-bench systems`."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from nanoserve_bench.progress import make_console
from nanoserve_bench.systems import Found, find_all


@click.command()
def systems() -> None:
    """List the systems that a sweep can run here, and why the others cannot.

    Systems come from the entry-point group nanoserve_bench.systems of whatever is installed.
    """
    table = Table(box=None, pad_edge=False)
    for title in ("system", "version", "shape", "stamps", "what"):
        table.add_column(title, overflow="fold")
    for found in find_all().values():
        table.add_row(*map(Text, _row(found)))  # brackets in a message are no markup
    make_console().print(table)


def _row(found: Found) -> tuple[str, ...]:
    if found.system is None or found.problem:
        return found.name, found.version or "", "", "", f"cannot run: {found.problem}"
    system = found.system
    stamps = " ".join(system.stamps)
    what = [system.summary, *(f"  {key}: {meaning}" for key, meaning in system.options.items())]
    return found.name, found.version or "", system.shape.value, stamps, "\n".join(what)
