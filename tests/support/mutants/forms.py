"""Mutants of the rules about the form of a folder, which the reader applies (REP001 to REP008)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nanoserve_bench.plan import FileDigest
from support import sound
from support.mutants.base import (
    Mutant,
    mutants_of,
)
from support.rebuild import (
    engine,
    manifest_of,
    replace,
    reseal,
    tamper,
    tamper_lines,
)


def _csv_edit(name: str, old: str, new: str) -> Callable[[Path], Path]:
    return lambda path: tamper(path, name, lambda text: text.replace(old, new, 1))


def _nan(path: Path) -> Path:
    def edit(text: str) -> str:
        header, first, *rest = text.splitlines()
        cells = first.split(",")
        cells[4] = "nan"
        return "\n".join([header, ",".join(cells), *rest]) + "\n"

    return tamper(path, "ceilings.csv", edit)


def _doubled(path: Path) -> Path:
    def edit(text: str) -> str:
        return text + text.splitlines()[1] + "\n"

    return tamper(path, "requests.csv", edit)


def _token(path: Path) -> Path:
    def edit(text: str) -> str:
        header, first, *rest = text.splitlines()
        digest, _, ids = first.partition(",")
        return "\n".join([header, f"{digest},7 {ids.partition(' ')[2]}", *rest]) + "\n"

    return tamper(path, "outputs.csv", edit)


def _cell(name: str, column: str, value: str) -> Callable[[Path], Path]:
    """Put a value into the first row of a file."""

    def edit(lines: list[str]) -> list[str]:
        header, first, *rest = lines
        cells = first.split(",")
        cells[header.split(",").index(column)] = value
        return [header, ",".join(cells), *rest]

    return tamper_lines(name, edit)


def _again(column: str, value: str) -> Callable[[Path], Path]:
    """A request a second time, with something else in it."""

    def edit(lines: list[str]) -> list[str]:
        cells = lines[1].split(",")
        cells[lines[0].split(",").index(column)] = value
        return [*lines, ",".join(cells)]

    return tamper_lines("requests.csv", edit)


def _interpolated(lines: list[str]) -> list[str]:
    """A row for three slots between those for two and four."""
    return [*lines, next(line for line in lines if engine(4) in line).replace("/4/", "/3/")]


def _cut_short(path: Path) -> Path:
    file = path / "requests.csv"
    file.write_bytes(file.read_bytes()[:-40])
    return reseal(path)


def _marked(path: Path) -> Path:
    file = path / "trials.csv"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    return reseal(path)


def _linked_out(path: Path) -> None:
    file = path / "outputs.csv"
    outside = path.parent / "outputs.csv"
    file.rename(outside)
    file.symlink_to(outside)


def _entered(path: Path, edit: Callable[[Any], Any]) -> Path:
    """Change what the manifest says of requests.csv, and the file not."""
    files = manifest_of(path).files
    changed = tuple(edit(entry) if entry.name == "requests.csv" else entry for entry in files)
    return reseal(path, files=changed)


def _false_entry(path: Path) -> FileDigest:
    entry = next(entry for entry in manifest_of(path).files if entry.name == "requests.csv")
    false: FileDigest = replace(entry, sha256="f" * 64)
    return false


def _unsealed(path: Path) -> None:
    file = path / "requests.csv"
    text = file.read_text("utf-8")
    file.write_text(text.replace(",length,", ",stop,", 1), "utf-8")


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "REP001",
        ("file-gone", "outputs.csv is gone.", None, lambda p: (p / "outputs.csv").unlink()),
        ("last-line-cut", "The last line of requests.csv is cut off.", None, _cut_short),
        ("byte-order-mark", "trials.csv begins with a byte-order mark.", None, _marked),
        ("link-out-of-the-folder", "outputs.csv is a link out of the folder.", None, _linked_out),
    ),
    *mutants_of(
        "REP002",
        (
            "another-schema",
            "The plan is of schema 2.",
            None,
            _csv_edit("plan.json", '"schema": 1', '"schema": 2'),
        ),
        (
            "two-schemas-in-one-folder",
            "The manifest is of schema 2, and the rest of schema 1.",
            None,
            lambda path: reseal(path, schema=2),
        ),
    ),
    *mutants_of(
        "REP003",
        (
            "renamed-column",
            "A column is renamed.",
            None,
            _csv_edit("trials.csv", "wall_ns", "wall_s"),
        ),
        (
            "column-doubled",
            "A column stands twice, with other values.",
            None,
            tamper_lines(
                "ceilings.csv",
                lambda lines: [f"{lines[0]},block", *(f"{line},0" for line in lines[1:])],
            ),
        ),
        (
            "column-added",
            "A column that nobody knows stands at the end.",
            None,
            tamper_lines(
                "trials.csv",
                lambda lines: [f"{lines[0]},bonus", *(f"{line},1" for line in lines[1:])],
            ),
        ),
    ),
    *mutants_of(
        "REP004",
        ("nan", "A NaN among the ceilings.", None, _nan),
        (
            "infinity",
            "A ceiling is infinite.",
            None,
            _cell("ceilings.csv", "read_bytes_per_s", "inf"),
        ),
        (
            "float-among-stamps",
            "A finish is a float.",
            None,
            _cell("requests.csv", "finished_ns", "1e15"),
        ),
        (
            "beyond-64-bits",
            "A wall is larger than any clock.",
            None,
            _cell("trials.csv", "wall_ns", "9" * 25),
        ),
        (
            "blank-where-a-number-must-stand",
            "An arrival is left blank.",
            None,
            _cell("requests.csv", "arrival_ns", ""),
        ),
    ),
    *mutants_of(
        "REP005",
        ("doubled-row", "A request stands twice.", None, _doubled),
        (
            "answered-twice",
            "A request stands twice, the second time with more tokens asked for.",
            None,
            _again("max_tokens", "99"),
        ),
    ),
    *mutants_of(
        "REP006",
        ("token-edited", "One id of an output is edited.", None, _token),
        (
            "prompt-edited",
            "A prompt is a token longer than its digest says.",
            None,
            tamper_lines("prompts.csv", lambda lines: [lines[0], f"{lines[1]} 7", *lines[2:]]),
        ),
    ),
    *mutants_of(
        "REP007",
        (
            "byte-edited",
            "A stamp is edited, and no digest with it.",
            None,
            _unsealed,
        ),
        (
            "length-miscounted",
            "The manifest gives one file another length.",
            None,
            lambda path: _entered(path, lambda entry: replace(entry, bytes=entry.bytes + 1)),
        ),
        (
            "rows-miscounted",
            "The manifest counts a row more than one file has.",
            None,
            lambda path: _entered(path, lambda entry: replace(entry, rows=entry.rows + 1)),
        ),
        (
            "file-listed-twice",
            "The manifest lists a file twice, once with another digest.",
            None,
            lambda path: reseal(path, files=(_false_entry(path), *manifest_of(path).files)),
        ),
    ),
    *mutants_of(
        "REP008",
        (
            "another-machine",
            "The engine ran on another machine than the manifest's.",
            None,
            _csv_edit("systems.csv", sound.MACHINE, "sha256:other"),
        ),
        (
            "interpolated-cell",
            "The summary has a row for three slots, which nobody measured.",
            None,
            tamper_lines("sweep.csv", _interpolated),
        ),
        (
            "launch-of-nobody",
            "A trial ran in a worker that was never launched.",
            None,
            _cell("trials.csv", "launch", "999"),
        ),
    ),
)
