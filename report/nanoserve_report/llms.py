"""`llms.txt`: what a site is and where everything in it lies, for programs that read.

A plain Markdown list (llmstxt.org) of all pages, of the raw rows of every run and of every
figure's data, with relative addresses, so that it holds wherever the site is served.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from nanoserve_bench.schema import ROW_TYPES
from nanoserve_report import badge
from nanoserve_report.book import ROOT, Book
from nanoserve_report.links import url_of
from nanoserve_report.site import Site
from nanoserve_report.study import Study
from nanoserve_report.views import common

NAME = "llms.txt"
PROMISE = (
    "Every number on this site is computed from the raw rows below, each time it is built. A "
    "number stands only where a gate of rules found the measurement sound; what was refused is a "
    "hole with its reason. Ratios have 95 % intervals, and absolute figures beside them."
)
_FRONT = re.compile(r"\A---\n(.*?)^---\n", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^# (.+?)(?: \{.*\})?$", re.MULTILINE)
_ROWS = {row_type.FILE: (row_type.__doc__ or "").partition("\n")[0] for row_type in ROW_TYPES}


def text(book: Book, study: Study, docs: Path, site: Site) -> str:
    """The file.

    Args:
        book: The generated pages.
        study: What they were made from.
        docs: The folder of the hand-written pages.
        site: Name and description.
    """
    lines = [f"# {site.name}", ""]
    if site.description:
        lines += [f"> {site.description}", ""]
    lines += [
        PROMISE,
        "",
        f"Verdict on the results folders: {badge.verdict(study)} ({ROOT}/verdict.json).",
    ]
    for title, entries in (
        ("Pages", _written(docs)),
        ("Results", _generated(book)),
        ("Raw rows", _raw(book, study)),
        ("Data of the figures", _figures(book)),
    ):
        lines += ["", f"## {title}", "", *entries]
    return "\n".join(lines) + "\n"


def _written(docs: Path) -> Iterator[str]:
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).as_posix()
        if not name.startswith(f"{ROOT}/"):
            yield _page(name, path.read_text(encoding="utf-8"))


def _generated(book: Book) -> Iterator[str]:
    for name, content in sorted(book.files.items()):
        if name.endswith(".md"):
            yield _page(name, content.decode())


def _page(name: str, content: str) -> str:
    front = _FRONT.match(content)
    said = front.group(1) if front else ""
    heading = _HEADING.search(content)
    title = _value(said, "title") or (heading.group(1) if heading else name)
    description = _value(said, "description")
    return f"- [{title}]({url_of(name) or './'}){f': {description}' if description else ''}"


def _value(front: str, key: str) -> str:
    """A value of the front matter, which is plain or a JSON string."""
    match = re.search(rf"^{key}: (.+)$", front, re.MULTILINE)
    if match is None:
        return ""
    value = match.group(1).strip()
    return str(json.loads(value)) if value.startswith('"') else value


def _raw(book: Book, study: Study) -> Iterator[str]:
    for folder in study.folders[::-1]:
        own = f"{common.run_page(folder.name).removesuffix('.md')}/data"
        for name in sorted(book.files):
            stem, _, file = name.rpartition("/")
            if stem == own:
                what = "all of these, packed" if file.endswith(".zip") else "the plan or manifest"
                yield f"- [{folder.name}/{file}]({name}): {_ROWS.get(file, what)}"


def _figures(book: Book) -> Iterator[str]:
    for name in sorted(book.files):
        if name.endswith(".svg") and name.removesuffix(".svg") + ".csv" in book.files:
            data = name.removesuffix(".svg") + ".csv"
            yield f"- [{data.rpartition('/')[2]}]({data})"
