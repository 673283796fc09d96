"""The pieces that another repository needs to judge and publish results, laid into it once.

Nothing that is there is touched. Of a file that a repository may well have already, and that can
hold our lines beside its own, the lines to add are told instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from nanoserve_report import __version__
from nanoserve_report.book import escape_markdown


class ScaffoldError(Exception):
    """A repository into which the pieces cannot be laid; nothing was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A file to lay.

    Attributes:
        path: Where it goes, from the root of the repository.
        source: Where it comes from, inside this package.
        shared: Whether a file of this name may be there and be left alone.
    """

    path: str
    source: str
    shared: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Laid:
    """What was done.

    Attributes:
        written: Paths of the files that were written.
        left: Paths that were there, each with what is to be added to it.
    """

    written: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


RESULTS = "bench/results"
PIECES = (
    Piece(path="mkdocs.yml", source="scaffold/mkdocs.yml"),
    Piece(path="docs/index.md", source="scaffold/index.md"),
    Piece(path="theme/main.html", source="theme/main.html"),
    Piece(
        path="theme/partials/javascripts/outdated.html",
        source="theme/partials/javascripts/outdated.html",
    ),
    Piece(path=f"{RESULTS}/README.md", source="scaffold/results.md"),
    Piece(path=".github/workflows/benchmarks.yml", source="scaffold/workflow.yml"),
    Piece(path=".pre-commit-config.yaml", source="scaffold/pre-commit.yaml", shared=True),
    Piece(path=".gitignore", source="scaffold/gitignore", shared=True),
)


def lay(root: Path) -> Laid:
    """Lay the pieces into the repository `root`.

    Raises:
        ScaffoldError: `root` is no folder, or one of the files is there, or something stands where
            a folder would have to be. All of them are named, and nothing was written.
    """
    if not root.is_dir():
        raise ScaffoldError(f"{root} is not a folder: name the root of the repository")
    there = [piece for piece in PIECES if _taken(root, piece.path)]
    blocked = [piece.path for piece in there if not piece.shared]
    blocked += sorted({path for piece in PIECES for path in _in_the_way(root, piece.path)})
    if blocked:
        raise ScaffoldError(
            f"in {root} there is already: {', '.join(blocked)}\n"
            "Nothing was written. Move these away, or run the command in an empty folder and "
            "take over by hand what you need."
        )
    for piece in PIECES:
        if piece not in there:
            target = root / piece.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_text(piece, root), encoding="utf-8")
    return Laid(
        written=tuple(piece.path for piece in PIECES if piece not in there),
        left=tuple((piece.path, _text(piece, root)) for piece in there),
    )


def _taken(root: Path, path: str) -> bool:
    return (root / path).exists() or (root / path).is_symlink()


def _in_the_way(root: Path, path: str) -> list[str]:
    """What stands where a folder above `path` would have to be."""
    above = [root / parent for parent in Path(path).parents if parent != Path()]
    return [
        folder.relative_to(root).as_posix()
        for folder in above
        if (folder.exists() or folder.is_symlink()) and not folder.is_dir()
    ]


def _text(piece: Piece, root: Path) -> str:
    text = files("nanoserve_report").joinpath(piece.source).read_text(encoding="utf-8")
    name = root.resolve().name or "results"
    for mark, value in (
        ("@NAME@", json.dumps(name)),  # a JSON string is a YAML string
        ("@TITLE@", str(escape_markdown(name))),
        ("@VERSION@", __version__),
    ):
        text = text.replace(mark, value)
    return text
