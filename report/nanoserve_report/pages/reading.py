"""The page that reads one speedup step by step, on the study's own numbers."""

from __future__ import annotations

from typing import Any

from nanoserve_report import example
from nanoserve_report.book import ROOT, Book
from nanoserve_report.links import Linker
from nanoserve_report.pages import parts
from nanoserve_report.study import Study
from nanoserve_report.views import common, environment
from nanoserve_report.views import sweep as tables

PAGE = f"{ROOT}/reading.md"


def write(book: Book, study: Study) -> None:
    """Add it."""
    linker = book.linker(PAGE)
    found = example.choose(study)
    book.page(
        PAGE, "reading.md.jinja", linker, found=False if found is None else _said(found, linker)
    )


def _said(found: example.Example, linker: Linker) -> dict[str, Any]:
    sweep = found.section.lead
    run = common.run_page(sweep.name)
    return {
        "name": found.name,
        "setting": parts.setting_line(sweep),
        "device": parts.device_title(found.page.device, found.page.dtype),
        "knee": parts.knee_line(sweep),
        "doublings": tables.doublings(sweep, linker),
        "product": example.product(found),
        "second": example.second_factor(found),
        "queue": example.queue(found),
        "interval": example.interval(found),
        "absolutes": example.absolutes(found),
        "block": found.block,
        "rows": example.rows(found),
        "run": sweep.name,
        "run_href": linker.to(run),
        "rows_href": linker.to(f"{run.removesuffix('.md')}/data/requests.csv"),
        "machine_href": linker.to(run, environment.SIDES),
        "device_href": linker.to(parts.home(found.page, found.section), found.section.slug),
        "refusals_href": linker.to(common.REFUSALS),
    }
