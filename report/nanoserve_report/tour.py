"""A tour of a package: a page for each of its modules, made from the sources when a site is built.

What a module is for is its docstring, or the comment at its head. A file of notes adds what no
docstring says: the order to read in, what must always hold, and the one hard place, which is named
and shown as it stands in the sources. So a page cannot say something of code that is no longer
there: a note that names nothing stops the build.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from nanoserve_report import rest

SUFFIXES = {".py": "python", ".h": "cpp", ".cpp": "cpp"}
ELSEWHERE = "Elsewhere"
MOST_LINES = 70
"""The hard place is shown whole, up to this many lines."""


class TourError(Exception):
    """Notes that do not fit the sources."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What is noted of one module; empty where there is nothing to say."""

    must: str = ""
    hard: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Modules that belong together, in the order to read them."""

    title: str
    text: str
    modules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Module:
    """One source file.

    Attributes:
        path: From the package's folder, such as `models/rope.py`.
        source: Its text.
    """

    path: str
    source: str

    @property
    def page(self) -> str:
        """Its page, from the tour's folder."""
        place = PurePosixPath(self.path)
        stem = place.stem.strip("_") or "index"
        name = "package" if stem == "init" else stem
        ending = "" if place.suffix == ".py" else f"-{place.suffix.removeprefix('.')}"
        return str(place.with_name(f"{name}{ending}.md"))

    @property
    def language(self) -> str:
        """For colours."""
        return SUFFIXES[PurePosixPath(self.path).suffix]

    @cached_property
    def text(self) -> str:
        """What it says of itself: its docstring, or the comment that it begins with."""
        if self.language == "python":
            return ast.get_docstring(self.tree) or ""
        lines = []
        for line in self.source.splitlines():
            if not line.startswith("//"):
                break
            lines.append(line.removeprefix("//").removeprefix(" "))
        return "\n".join(lines)

    @property
    def summary(self) -> str:
        """The first sentence of it, in one line."""
        first = " ".join(self.text.partition("\n\n")[0].split())
        return first.removesuffix("::").rstrip()

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax; for Python only."""
        return ast.parse(self.source)

    @property
    def offers(self) -> tuple[str, ...]:
        """Its public classes and functions that say what they are, in order."""
        if self.language != "python":
            return ()
        return tuple(
            node.name
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and ast.get_docstring(node)
        )

    @cached_property
    def imports(self) -> frozenset[str]:
        """Every module that it names, as dotted paths or as included files."""
        if self.language == "cpp":
            return frozenset(re.findall(r'^#include "(.+)"', self.source, re.MULTILINE))
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        return frozenset(found)

    def place(self, name: str) -> tuple[int, int]:
        """First and last line of what is called `name`.

        Raises:
            TourError: Nothing is called so.
        """
        found = self._python(name) if self.language == "python" else self._cpp(name)
        if found is None:
            raise TourError(f"{self.path} has nothing called {name!r}: mend the notes of the tour")
        return found

    def _python(self, name: str) -> tuple[int, int] | None:
        body: list[ast.stmt] = self.tree.body
        node: ast.FunctionDef | ast.ClassDef | None = None
        for part in name.split("."):
            node = next(
                (
                    child
                    for child in body
                    if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == part
                ),
                None,
            )
            if node is None:
                return None
            body = node.body
        if node is None or node.end_lineno is None:
            return None
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        return first, node.end_lineno

    def _cpp(self, name: str) -> tuple[int, int] | None:
        """A definition at the left margin, up to the brace that closes it there."""
        lines = self.source.splitlines()
        head = re.compile(rf"^(?![ /#}}]).*\b{re.escape(name)}\b *(?:\(|\{{)")
        for start, line in enumerate(lines):
            if head.match(line):
                for end in range(start, len(lines)):
                    if lines[end].startswith("}") or (end == start and line.endswith("}")):
                        return start + 1, end + 1
        return None


@dataclass(frozen=True, kw_only=True)
class Tour:
    """The modules of a package, with notes, in the order to read them."""

    package: str
    parts: tuple[Part, ...]
    modules: Mapping[str, Module]
    notes: Mapping[str, Note]
    tests: Mapping[str, tuple[str, ...]]

    @property
    def order(self) -> tuple[str, ...]:
        """All modules, as they are read."""
        return tuple(path for part in self.parts for path in part.modules)

    def name(self, path: str) -> str:
        """`nanoserve.models.rope`, or a source's path where it is no Python."""
        if not path.endswith(".py"):
            return path
        dotted = path.removesuffix(".py").replace("/", ".").removesuffix("__init__").rstrip(".")
        return f"{self.package}.{dotted}".rstrip(".")

    def neighbours(self, path: str) -> tuple[list[str], list[str]]:
        """Whom a module reads, and who reads it, in the order of the tour."""
        return (
            [other for other in self.order if other != path and self._reads(path, other)],
            [other for other in self.order if other != path and self._reads(other, path)],
        )

    def _reads(self, path: str, other: str) -> bool:
        reader = self.modules[path]
        if reader.language == "cpp":
            return PurePosixPath(other).name in reader.imports
        return self.name(other) in reader.imports


def load(source: Path, notes: Path, tests: Path) -> Tour:
    """Read a package's sources and what is noted of them.

    Args:
        source: The package's folder.
        notes: The file of notes (TOML).
        tests: The folder of its tests, named after the modules.

    Raises:
        TourError: The notes name a module, or something in one, that is not there.
    """
    modules = {
        path.relative_to(source).as_posix(): Module(
            path=path.relative_to(source).as_posix(), source=path.read_text(encoding="utf-8")
        )
        for path in sorted(source.rglob("*"))
        if path.suffix in SUFFIXES
    }
    said = tomllib.loads(notes.read_text(encoding="utf-8"))
    parts = [
        Part(title=part["title"], text=part["text"], modules=tuple(part["modules"]))
        for part in said["part"]
    ]
    listed = [path for part in parts for path in part.modules]
    kept = {path: Note(**note) for path, note in said["module"].items()}
    unknown = sorted({*listed, *kept} - set(modules))
    if unknown or len(listed) != len(set(listed)):
        raise TourError(f"{notes}: not there, or listed twice: {', '.join(unknown) or listed}")
    for path, note in kept.items():
        if note.hard:
            modules[path].place(note.hard)
    rest_of_them = tuple(path for path in modules if path not in listed)
    if rest_of_them:
        parts.append(Part(title=ELSEWHERE, text="Not sorted in yet.", modules=rest_of_them))
    return Tour(
        package=source.name,
        parts=tuple(parts),
        modules=modules,
        notes=kept,
        tests={path: _tests(path, tests) for path in modules},
    )


def _tests(path: str, folder: Path) -> tuple[str, ...]:
    stem = PurePosixPath(path).stem
    found = sorted({*folder.glob(f"test_{stem}.py"), *folder.glob(f"test_{stem}_*.py")})
    return tuple(f"{folder.parent.name}/{folder.name}/{file.name}" for file in found)


def pages(tour: Tour) -> dict[str, str]:
    """Every module's page, by its path from the tour's folder."""
    order = tour.order
    made = {}
    for index, path in enumerate(order):
        neighbours = {"Before": order[max(index - 1, 0) : index], "Next": order[index + 1 :][:1]}
        made[tour.modules[path].page] = _page(tour, path, neighbours)
    if len(made) != len(order):
        raise TourError("two modules would have one page")
    return made


def _page(tour: Tour, path: str, neighbours: Mapping[str, tuple[str, ...]]) -> str:
    module, note = tour.modules[path], tour.notes.get(path, Note())
    home = "../" * module.page.count("/")
    part = next(part for part in tour.parts if path in part.modules)
    lines = [
        "---",
        f'title: "{tour.name(path)}"',
        "hide: [navigation]",
        "---",
        f"[Engine tour]({home}index.md) &rsaquo; {part.title}",
        "{: .ns-crumbs }",
        "",
        f"# {_shown(path)}",
        "",
        rest.to_markdown(module.text),
        "",
    ]
    if note.must:
        lines += ["## What must hold", "", note.must, ""]
    if note.hard:
        first, last = module.place(note.hard)
        lines += [
            "## The hard place",
            "",
            note.why,
            "",
            f"`{note.hard}`, lines {first} to {last}:",
            "",
            *_excerpt(module, first, last),
            "",
        ]
    lines += _around(tour, path, home)
    lines += _interface(tour, path)
    links = [
        f"{word}: [{_shown(other)}]({home}{tour.modules[other].page})"
        for word, others in neighbours.items()
        for other in others
    ]
    return "\n".join([*lines, " · ".join(links), ""])


def _interface(tour: Tour, path: str) -> list[str]:
    """What the module offers: a directive of mkdocstrings for each public class and function."""
    lines: list[str] = []
    for name in tour.modules[path].offers:
        # A link to a type leads to the API's page of it, which is its one home.
        lines += [f"::: {tour.name(path)}.{name}", "    options:"]
        lines += ["      skip_local_inventory: true", ""]
    return ["## Interface", "", *lines] if lines else []


def _shown(path: str) -> str:
    """A path in which no underscore begins an emphasis."""
    return path.replace("_", "\\_")


def _excerpt(module: Module, first: int, last: int) -> list[str]:
    shown = module.source.splitlines()[first - 1 : min(last, first - 1 + MOST_LINES)]
    code = textwrap.dedent("\n".join(shown)).splitlines()
    more = [f"… {last - first + 1 - MOST_LINES} lines more"] if last - first >= MOST_LINES else []
    return [f"```{module.language}", *code, "```", *more]


def _around(tour: Tour, path: str, home: str) -> list[str]:
    reads, read_by = tour.neighbours(path)

    def links(paths: list[str]) -> str:
        return ", ".join(f"[{_shown(other)}]({home}{tour.modules[other].page})" for other in paths)

    lines = ["## Around it", ""]
    for word, paths in (("Reads", reads), ("Read by", read_by)):
        if paths:
            lines.append(f"- {word}: {links(paths)}")
    if tour.tests[path]:
        lines.append(f"- Held by: {', '.join(f'`{test}`' for test in tour.tests[path])}")
    return [*lines, ""] if len(lines) > 2 else []


def index(tour: Tour) -> str:
    """The list of all modules, part by part, for the tour's first page."""
    lines = []
    for part in tour.parts:
        lines += [f"## {part.title}", "", part.text, ""]
        for path in part.modules:
            module = tour.modules[path]
            lines.append(f"- [{_shown(path)}]({module.page}): {rest.inline(module.summary)}")
        lines.append("")
    return "\n".join(lines)
