"""The words that need an explanation, and their first use on a page as the way to it.

A word in running text becomes a link to its entry in the glossary; in the head of a table, which is
a button once the table can be sorted, it carries its definition as a title.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from nanoserve_report.setting import slug

_TAG = re.compile(r"(<!--.*?-->|<[^>]*>)", re.DOTALL)
_NAME = re.compile(r"</?([a-z0-9]+)")
_TEXT = frozenset({"p", "li"})
"""Only in these is a word of running text marked: a heading is an anchor, a cell a value."""
_NOT_IN = frozenset({"a", "abbr", "caption", "code", "math", "q", "strong", "summary"})
_LABEL = '<span class="ns-label">'


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """A word and what it means.

    Attributes:
        name: As the glossary has it.
        text: Its definition, Markdown with formulas.
        words: What it looks like on a page, in the singular.
    """

    name: str
    text: str
    words: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Of its entry in the glossary."""
        return slug(self.name)

    @property
    def plain(self) -> str:
        """The definition without marks, as a title can hold it."""
        return re.sub(r"[$`]", "", self.text)


@cache
def terms() -> tuple[Term, ...]:
    """All of them, in the order of the glossary."""
    text = files("nanoserve_report").joinpath("terms.toml").read_text(encoding="utf-8")
    return tuple(
        Term(name=entry["name"], text=entry["text"], words=tuple(entry["words"]))
        for entry in tomllib.loads(text)["term"]
    )


def mark(text: str, href: Callable[[str], str]) -> str:
    """A page with the first use of each term marked.

    Args:
        text: The page, Markdown whose running text is HTML.
        href: The address of the entry with an anchor.
    """
    waiting = {word.lower(): term for term in terms() for word in term.words}
    open_tags: list[str] = []
    pieces = _TAG.split(text)
    label = False
    for index, piece in enumerate(pieces):
        if index % 2:
            _follow(open_tags, piece)
            label = piece == _LABEL
        elif waiting and label:
            pieces[index] = _marked(piece, waiting, _abbreviation)
        elif waiting and _TEXT & set(open_tags) and not _NOT_IN & set(open_tags):
            pieces[index] = _marked(piece, waiting, lambda term, word: _link(term, word, href))
    return "".join(pieces)


def _follow(open_tags: list[str], tag: str) -> None:
    """Keep the list of open elements through a tag."""
    found = _NAME.match(tag)
    if found is None or tag.endswith("/>"):
        return
    name = found.group(1)
    if not tag.startswith("</"):
        open_tags.append(name)
    elif name in open_tags:
        while open_tags.pop() != name:
            pass


def _marked(text: str, waiting: dict[str, Term], wrap: Callable[[Term, str], str]) -> str:
    """The text with the terms that wait marked; a term waits no longer once it is."""

    def found(match: re.Match[str]) -> str:
        term = waiting.get(match.group(1).lower())
        if term is None:
            return match.group()
        for word in term.words:
            del waiting[word.lower()]
        return wrap(term, match.group())

    return _pattern().sub(found, text)


@cache
def _pattern() -> re.Pattern[str]:
    """Any word of any term, the longer first, with the ending of a plural."""
    words = sorted((word for term in terms() for word in term.words), key=len, reverse=True)
    return re.compile(
        rf"(?<![\w/&#.-])({'|'.join(map(re.escape, words))})(?:s|es)?(?![\w/-])", re.IGNORECASE
    )


def _link(term: Term, word: str, href: Callable[[str], str]) -> str:
    title = escape(term.plain)
    return f'<a class="ns-term" href="{href(term.anchor)}" title="{title}">{word}</a>'


def _abbreviation(term: Term, word: str) -> str:
    return f'<abbr title="{escape(term.plain)}">{word}</abbr>'
