"""Style sheets and scripts of the pages: written with them, so that they are of one version.

A site names them in its `mkdocs.yml` as `results/assets/...`, whatever repository it is in.
"""

from __future__ import annotations

from importlib.resources import files

from nanoserve_report.book import ROOT, Book


def write(book: Book) -> None:
    """Add them."""
    folder = files("nanoserve_report") / "assets"
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        book.add(f"{ROOT}/assets/{item.name}", item.read_bytes())
