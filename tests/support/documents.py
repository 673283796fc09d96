"""What an HTML document says of itself and how it is laid out, read without a browser.

The checks are those of Lighthouse's that a document alone decides: what a search engine, a screen
reader and a browser that has not yet loaded anything else need to find in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

HEADINGS = {f"h{level}": level for level in range(1, 7)}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
EMPTY_WORDS = {"click here", "click this", "go", "here", "this", "start", "right here", "more",
               "learn more", "link"}  # fmt: skip
"""Texts of links that say nothing of where they lead."""


@dataclass(kw_only=True)
class Node:
    """An element that is looked at: a heading, a link or an image."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Document(HTMLParser):
    """A parsed document: its head, and what is looked at of its body, in order."""

    source: str
    metas: Counter[str] = field(default_factory=Counter)
    named: dict[str, str] = field(default_factory=dict)
    links: dict[str, list[str]] = field(default_factory=dict)
    remote: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    ids: Counter[str] = field(default_factory=Counter)
    lang: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Node] = []
        self._inside: list[str] = []
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self._inside.append(tag)
        if "id" in found:
            self.ids[found["id"]] += 1
        self._of_the_head(tag, found)
        if tag == "img":
            self.nodes.append(Node(tag=tag, attributes=found))
            for node in self._open:
                node.text += found.get("alt", "")
        if tag in HEADINGS or tag == "a":
            node = Node(tag=tag, attributes=found)
            self.nodes.append(node)
            self._open.append(node)

    def _of_the_head(self, tag: str, found: dict[str, str]) -> None:
        if tag == "html":
            self.lang = found.get("lang", "")
        if tag == "meta" and "name" in found:
            self.metas[found["name"]] += 1
            self.named[found["name"]] = found.get("content", "")
        if tag == "link":
            self.links.setdefault(found.get("rel", ""), []).append(found.get("href", ""))
        loaded = found.get("src", "")
        if found.get("rel") == "stylesheet":
            loaded = found.get("href", "")
        if loaded.startswith(("http:", "https:", "//")):
            self.remote.append(loaded)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass
        if self._open and self._open[-1].tag == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] == "title" and "svg" not in self._inside:
            self.title += data
        for node in self._open:
            node.text += data


def faults(document: Document) -> Iterator[str]:
    """What is wrong with a document, in words."""
    yield from _head(document)
    yield from _headings(document)
    for node in document.nodes:
        if node.tag == "img":
            yield from _image(node)
        if node.tag == "a":
            yield from _link(node)
    for name, times in document.ids.items():
        if times > 1:
            yield f"the id {name!r} stands {times} times"


def _head(document: Document) -> Iterator[str]:
    if not document.source.lstrip().lower().startswith("<!doctype html>"):
        yield "no doctype"
    if not document.lang:
        yield "no lang"
    if len(document.title.strip()) < 4:
        yield f"title {document.title.strip()!r}"
    if not 10 <= len(document.named.get("description", "")) <= 200:
        yield f"description {document.named.get('description', '')!r}"
    viewport = document.named.get("viewport", "")
    if "width=device-width" not in viewport or re.search("user-scalable|maximum-scale", viewport):
        yield f"viewport {viewport!r}"
    if len(document.links.get("canonical", ())) != 1:
        yield f"canonical {document.links.get('canonical')}"
    if document.remote:
        yield f"loads from elsewhere: {document.remote}"
    for name in ("description", "viewport"):
        if document.metas[name] != 1:
            yield f"{document.metas[name]} of meta {name}"


def _headings(document: Document) -> Iterator[str]:
    found = [node for node in document.nodes if node.tag in HEADINGS]
    levels = [HEADINGS[node.tag] for node in found]
    if levels.count(1) != 1 or levels[0] != 1:
        yield f"headings begin with h{levels[0] if levels else '?'}, {levels.count(1)} h1"
    for (above, below), node in zip(pairwise(levels), found[1:], strict=True):
        if below > above + 1:
            yield f"h{below} after h{above}: {node.text!r}"
    for node in found:
        if not node.text.replace("\N{PILCROW SIGN}", "").strip():
            yield f"an empty {node.tag}"


def _image(node: Node) -> Iterator[str]:
    if not node.attributes.get("alt"):
        yield f"image without alt: {node.attributes.get('src')}"
    if not all(node.attributes.get(side, "").isdigit() for side in ("width", "height")):
        yield f"image without width and height: {node.attributes.get('src')}"


def _link(node: Node) -> Iterator[str]:
    words = " ".join((node.text or "").split()) or node.attributes.get("aria-label", "")
    words = words or node.attributes.get("title", "")
    if not words or words.lower() in EMPTY_WORDS:
        yield f"link with text {words!r}: {node.attributes.get('href')}"
    if node.attributes.get("href", "").startswith("javascript:"):
        yield f"link to a script: {words!r}"


def pages(tree: Path) -> Iterator[tuple[str, Document]]:
    """Every page of a site, with its name."""
    for path in sorted(tree.rglob("*.html")):
        yield path.relative_to(tree).as_posix(), Document(path.read_text("utf-8"))
