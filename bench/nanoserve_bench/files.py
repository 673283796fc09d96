"""One file of a results folder as bytes: its digest, its length, and whether it is text at all.

Read piece by piece, so that the size of a file does not matter.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from nanoserve_bench.faults import RESTORE

_PIECE = 2**22
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True, slots=True)
class Flaw:
    """What keeps bytes from being a text file of the contract; `line` is None for all of them."""

    line: int | None
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """What the manifest says of a file, and its flaw."""

    sha256: str
    bytes: int
    line_feeds: int
    flaw: Flaw | None


def examine(path: Path) -> FileFacts:
    """Read a file as bytes. Of several flaws the gravest is told: the others may come of it."""
    digest = hashlib.sha256()
    size = line_feeds = 0
    blank = ended = True
    flaws: dict[str, Flaw] = {}
    with path.open("rb") as file:
        # A piece ends with a line, so no character lies in two of them.
        while piece := file.read(_PIECE) + file.readline():
            if not size and piece.startswith(_MARK):
                hint = "Save it as plain UTF-8 without one."
                flaws["mark"] = Flaw(line=1, message="starts with a byte-order mark", hint=hint)
            for kind, flaw in _flaws(piece, line_feeds).items():
                flaws.setdefault(kind, flaw)
            digest.update(piece)
            size += len(piece)
            line_feeds += piece.count(b"\n")
            blank = blank and not piece.strip()
            ended = piece.endswith(b"\n")
    if blank:
        message = "is empty: not even a header is left"
        flaws["blank"] = Flaw(line=None, message=message, hint=RESTORE)
    if not ended:
        message = "ends in the middle of a line"
        flaws["cut"] = Flaw(line=line_feeds + 1, message=message, hint=RESTORE)
    gravest = ("blank", "mark", "coding", "zero", "return", "cut")
    return FileFacts(
        sha256=digest.hexdigest(),
        bytes=size,
        line_feeds=line_feeds,
        flaw=next((flaws[kind] for kind in gravest if kind in flaws), None),
    )


def _flaws(piece: bytes, lines_before: int) -> dict[str, Flaw]:
    """What is wrong with a piece, by kind, at its first place."""
    found: dict[str, tuple[int, str, str]] = {}
    if not piece.isascii():
        try:
            piece.decode("utf-8")
        except UnicodeDecodeError as error:
            found["coding"] = error.start, "is not UTF-8", "Save it as plain UTF-8."
    for kind, byte, what in (
        ("zero", b"\0", "holds a zero byte"),
        ("return", b"\r", "has a carriage return"),
    ):
        if byte in piece:
            hint = "Save it as plain text with line feeds only."
            found[kind] = piece.index(byte), what, hint
    return {
        kind: Flaw(line=lines_before + piece.count(b"\n", 0, offset) + 1, message=what, hint=hint)
        for kind, (offset, what, hint) in found.items()
    }
