"""The glossary: every word with its meaning here, and what others mean by the same name."""

from __future__ import annotations

from nanoserve_report.book import GLOSSARY, Book
from nanoserve_report.terms import terms


def write(book: Book) -> None:
    """Add it."""
    book.page(GLOSSARY, "glossary.md.jinja", book.linker(GLOSSARY), terms=terms())
