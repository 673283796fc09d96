"""The pages and files of a site while they are being written, and the links between them.

Everything is kept in memory until it is complete, so that a build that fails leaves no half of a
site behind, and so that a check can compare without writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from nanoserve_report import markup
from nanoserve_report.figures.drawing import Drawing
from nanoserve_report.figures.store import Drawn, Store, Subject
from nanoserve_report.links import Link, Linker
from nanoserve_report.mathml import to_mathml
from nanoserve_report.terms import mark
from nanoserve_report.views import common

ROOT = "results"
GLOSSARY = f"{ROOT}/glossary.md"
MOST_ORIGINS = 4
_TICKS = re.compile(r"`([^`]+)`")
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|$<>&~])")


class BookError(Exception):
    """A site that cannot be written as asked: a page twice, a link into nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a run's revision, command and rows stand, as a page links it."""

    words: str
    href: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureView:
    """A figure as a page shows it: addresses relative to that page."""

    title: str
    alt: str
    caption: str
    src: str
    data: str
    origins: tuple[Origin, ...]
    width: int
    height: int


@dataclass(kw_only=True)
class Book:
    """Pages and files by path below `docs/`."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    store: Store = field(default_factory=Store)

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=PackageLoader("nanoserve_report"),
            undefined=StrictUndefined,
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            finalize=_printable,
        )
        environment.filters["md"] = escape_markdown
        environment.filters["ticks"] = code_in_ticks
        environment.globals["math"] = _math
        environment.globals["table_html"] = markup.table
        return environment

    def linker(self, page: str) -> Linker:
        """The links of one page, remembered."""
        return Linker(page=page, written=self.links)

    def add(self, path: str, content: bytes) -> None:
        """Keep a file.

        Raises:
            BookError: The path is taken: two things would be published under one name.
        """
        if path in self.files:
            raise BookError(f"two things would be published as {path}")
        self.files[path] = content

    def page(self, path: str, template: str, linker: Linker, **context: Any) -> None:
        """Render a page; an undefined name, a missing value or a raw float fails the build."""
        text = self._environment.get_template(template).render(link=linker.to, **context)
        if path != GLOSSARY:
            text = mark(text, lambda anchor: linker.to(GLOSSARY, anchor))
        lines = [line.rstrip() for line in text.splitlines()]
        self.add(path, ("\n".join(lines).strip() + "\n").encode())

    def figure(
        self, draw: Callable[..., Drawing], *subjects: Subject, stem: str, linker: Linker
    ) -> FigureView:
        """Keep what `draw` makes of the subjects, and say how a page shows it."""
        return self._figure(self.store.draw(draw, *subjects), stem, linker)

    def drawing(self, drawing: Drawing, stem: str, linker: Linker) -> FigureView:
        """Keep a figure of something that is in no results folder."""
        return self._figure(Drawn.of(drawing), stem, linker)

    def _figure(self, drawn: Drawn, stem: str, linker: Linker) -> FigureView:
        """Keep a figure and its data under `results/figures/`."""
        name = f"{ROOT}/figures/{stem}-{drawn.name}"
        if f"{name}.svg" not in self.files:
            self.add(f"{name}.svg", drawn.svg.encode())
            self.add(f"{name}.csv", drawn.csv.encode())
        return FigureView(
            title=drawn.title,
            alt=drawn.alt,
            caption=drawn.caption,
            src=linker.to(f"{name}.svg"),
            data=linker.to(f"{name}.csv"),
            origins=_origins(drawn.runs, linker),
            width=drawn.width,
            height=drawn.height,
        )

    def broken_links(self, docs: Path) -> tuple[Link, ...]:
        """Links whose target or anchor exists neither here nor among the hand-written pages."""
        return tuple(link for link in self.links if not self._resolves(link, docs))

    def _resolves(self, link: Link, docs: Path) -> bool:
        content = self.files.get(link.target)
        if content is None:
            if link.target.startswith(f"{ROOT}/"):
                return False
            path = docs / link.target
            return path.is_file()
        anchor = link.anchor.encode()
        return not anchor or b'id="%s"' % anchor in content or b"{#%s}" % anchor in content

    def write(self, docs: Path) -> None:
        """Write everything below `docs`, and remove what an earlier build left in `results/`."""
        for path in self.stale(docs):
            path.unlink()
        for name, content in sorted(self.files.items()):
            path = docs / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != content:
                path.write_bytes(content)

    def stale(self, docs: Path) -> tuple[Path, ...]:
        """Files below `docs/results` that this book does not hold."""
        root = docs / ROOT
        found = sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else []
        return tuple(path for path in found if path.relative_to(docs).as_posix() not in self.files)

    def differences(self, docs: Path) -> tuple[str, ...]:
        """What keeps `docs/results` from being what this book would write."""
        lines = [f"{p.relative_to(docs).as_posix()} is left over" for p in self.stale(docs)]
        for name, content in sorted(self.files.items()):
            path = docs / name
            if not path.is_file():
                lines.append(f"{name} is missing")
            elif path.read_bytes() != content:
                lines.append(f"{name} is stale")
        return tuple(lines)


def _origins(runs: tuple[str, ...], linker: Linker) -> tuple[Origin, ...]:
    """The runs that a figure is made of; many are one link to all of them."""
    if len(runs) > MOST_ORIGINS:
        return (Origin(words=f"{len(runs)} runs", href=linker.to(common.RUNS)),)
    return tuple(Origin(words=name, href=common.rerun(name, linker)) for name in runs)


def escape_markdown(text: str) -> Markup:
    """Text as it can stand in a Markdown line, whatever characters it holds."""
    flat = " ".join(text.split())
    return Markup(_SPECIAL.sub(lambda m: _entity(m.group(1)), flat))  # noqa: S704 - escaped here


def code_in_ticks(text: str) -> Markup:
    """Text of a message as HTML: what stands between backticks is code."""
    return Markup(_TICKS.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped here


def _math(tex: str, *, display: bool = False) -> Markup:
    return Markup(to_mathml(tex, display=display))  # noqa: S704 - made here from our own LaTeX


def _entity(char: str) -> str:
    return f"&#{ord(char)};"


def _printable(value: Any) -> Any:
    """Only text and counts are printed: a missing value or a raw float is a mistake."""
    if value is None or isinstance(value, float):
        raise TypeError(f"{value!r} would be printed: format it, or show a hole with its reason")
    return value
