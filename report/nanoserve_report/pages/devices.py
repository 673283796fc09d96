"""One page per device and dtype, and the page that sets the devices side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nanoserve_report import ladder, noise, order, spread, wording
from nanoserve_report.book import Book
from nanoserve_report.figures import (
    ceiling,
    identity,
    latency,
    marginal,
    occupancy,
    reproducibility,
    speedup,
)
from nanoserve_report.figures import devices as devices_figure
from nanoserve_report.figures import ladder as ladder_figure
from nanoserve_report.figures.drawing import Drawing
from nanoserve_report.links import Linker
from nanoserve_report.pages import choice, parts
from nanoserve_report.study import DevicePage, Section, Study
from nanoserve_report.sweeps import Sweep
from nanoserve_report.views import ladder as ladder_table
from nanoserve_report.views import load as load_tables
from nanoserve_report.views import sweep as tables

INDEX = "results/devices/index.md"
OF_CELLS = (identity.draw, occupancy.draw, ceiling.draw)


def write(book: Book, study: Study) -> None:
    """Add the page of every device, and their index."""
    linker = book.linker(INDEX)
    sound = any(section.lead.sound_cells for section in study.sections)
    book.page(
        INDEX,
        "devices.md.jinja",
        linker,
        cards=[
            book.figure(draw, study, stem="study", linker=linker)
            for draw in (devices_figure.draw, ceiling.draw_devices)
            if sound
        ],
        devices=[
            {
                "title": parts.device_title(page.device, page.dtype),
                "href": linker.to(f"results/devices/{page.slug}.md"),
                "machine": parts.machine_line(page),
            }
            for page in study.devices
        ],
        skipped=study.skipped,
    )
    for page in study.devices:
        _page(book, page)


def _page(book: Book, page: DevicePage) -> None:
    path = f"results/devices/{page.slug}.md"
    linker = book.linker(path)
    book.page(
        path,
        "device.md.jinja",
        linker,
        title=parts.device_title(page.device, page.dtype),
        machine=parts.machine_line(page),
        order=len(page.sections) > 1 and order.WORDS,
        parts_of_page=[_part(book, page, section, linker) for section in page.sections],
    )


def _part(book: Book, page: DevicePage, section: Section, linker: Linker) -> dict[str, Any]:
    sweep = section.lead
    stem = f"{page.slug}-{section.slug}"
    return {
        "name": parts.section_name(section, page),
        "anchor": section.slug,
        "knee": parts.knee_line(sweep),
        "setting": parts.setting_line(sweep),
        "choice": choice.of(section, linker),
        "status": sweep.folder.status.value,
        "blocks": choice.count(sweep),
        "trials": noise.trials(sweep),
        "gotcha": wording.gotcha(sweep),
        "throughput": tables.throughput(sweep, linker),
        "doublings": tables.doublings(sweep, linker),
        "factors": tables.factors(sweep, linker),
        "prefill": tables.prefill(sweep, linker),
        "latencies": tables.latencies(sweep, linker),
        "splits": tables.splits(sweep, linker),
        "figures": [book.figure(draw, sweep, stem=stem, linker=linker) for draw in _drawn(sweep)],
        "ladder": _ladder(book, sweep, stem, linker),
        "load": _load(book, sweep, stem, linker),
        "reproduction": _reproduction(book, section, stem, linker),
    }


def _drawn(sweep: Sweep) -> list[Callable[[Sweep], Drawing]]:
    """The figures of a sweep: none of doublings or ratios where none were planned."""
    return [
        *([marginal.draw] if sweep.marginals else []),
        *([speedup.draw] if sweep.headline_rivals else []),
        *OF_CELLS,
    ]


def _ladder(book: Book, sweep: Sweep, stem: str, linker: Linker) -> dict[str, Any] | None:
    found = ladder.rungs(sweep)
    if not found:
        return None
    return {
        "sentences": ladder.words(found),
        "table": ladder_table.table(sweep, linker),
        "figure": book.figure(ladder_figure.draw, sweep, stem=stem, linker=linker),
    }


def _load(book: Book, sweep: Sweep, stem: str, linker: Linker) -> dict[str, Any] | None:
    if not sweep.loads:
        return None
    arms = dict.fromkeys(cell.cell.arm for cell in sweep.loads)
    return {
        "knees": [f"{latency.knee(sweep, arm)[1]}." for arm in arms],
        "offered": load_tables.offered(sweep, linker),
        "percentiles": load_tables.percentiles(sweep, linker),
        "figure": book.figure(latency.draw, sweep, stem=stem, linker=linker),
    }


def _reproduction(book: Book, section: Section, stem: str, linker: Linker) -> dict[str, Any] | None:
    if not spread.comparable(section):
        return None
    return {
        "sentence": spread.words(section),
        "figure": book.figure(reproducibility.draw, section, stem=stem, linker=linker),
    }
