"""The command line of a start, as its ledger keeps it: what was asked for, and no machine in it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from click.core import ParameterSource

from nanoserve_bench import revision


def command_line(context: click.Context) -> str:
    """The command that a context was made from: every option that was given, in one spelling.

    A path is written relative to the checkout that it lies in, or else by its last name: another
    machine has another folder for it.
    """
    given = (
        word
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        for word in _words(parameter, context.params[str(parameter.name)])
    )
    return shlex.join(["nanoserve-bench", str(context.command.name), *given])


def _words(parameter: click.Parameter, value: object) -> Iterator[str]:
    if isinstance(value, bool):
        # A flag that was given as `--no-this` is spelled among the secondary ones.
        yield max(parameter.opts if value else parameter.secondary_opts, key=len)
        return
    option = max(parameter.opts, key=len)
    for one in value if parameter.multiple and isinstance(value, tuple) else (value,):
        yield option
        for part in one if isinstance(one, tuple) else (one,):
            yield portable(str(part))


def portable(text: str) -> str:
    """A value without the paths of this machine; an arm's options are looked at one by one."""
    head, *rest = text.split(",")
    return ",".join([_portable(head), *map(_option, rest)])


def _option(text: str) -> str:
    key, equals, value = text.partition("=")
    return f"{key}{equals}{_portable(value)}" if equals else _portable(text)


def _portable(text: str) -> str:
    """A path as another machine could have it; any other text as it is.

    `owner/name` may be a hub id as well as a folder: it says nothing of this machine and stays.
    """
    path = Path(text).expanduser()
    if not path.is_absolute() and ".." not in path.parts:
        return text
    full = Path(os.path.normpath(Path.cwd() / path))
    for checkout in _checkouts():
        if full.is_relative_to(checkout):
            return full.relative_to(checkout).as_posix()
    return full.name


def _checkouts() -> Iterable[Path]:
    """The checkout that the sweep is started in, if it is started in one."""
    top = revision.git(Path.cwd(), "rev-parse", "--show-toplevel")
    return () if top is None else (Path(top),)
