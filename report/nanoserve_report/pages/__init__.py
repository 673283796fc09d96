"""The pages: a judged study in, a `Book` of Markdown pages, figures and data out."""

from __future__ import annotations

from pathlib import Path

from nanoserve_report.book import Book
from nanoserve_report.figures.store import Store
from nanoserve_report.pages import (
    assets,
    calibration,
    devices,
    evidence,
    glossary,
    history,
    kills,
    machines,
    overview,
    own,
    reading,
    runs,
    whatif,
)
from nanoserve_report.study import Study


def compose(study: Study, drawings: Path | None = None) -> Book:
    """Every page of the site that is made from results.

    Args:
        study: The judged folders.
        drawings: A folder in which figures are kept between builds; None draws every one.

    Raises:
        jinja2.UndefinedError: A template reaches for something that does not exist, such as a
            number of a refused comparison.
        BookError: Two things would be published under one name.
    """
    book = Book(store=Store(folder=drawings))
    assets.write(book)
    overview.write(book, study)
    reading.write(book, study)
    devices.write(book, study)
    runs.write(book, study)
    whatif.write(book, study)
    history.write(book, study)
    evidence.write(book, study)
    calibration.write(book, study)
    own.write(book, study)
    machines.write(book, study)
    kills.write(book)
    glossary.write(book)
    book.store.prune()
    return book
