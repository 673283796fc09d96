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
    path, apart = f"results/devices/{page.slug}.md", parts.apart(page)
    linker = book.linker(path)
    title = parts.device_title(page.device, page.dtype)
    shown = []
    for section in page.sections:
        if section.setting not in apart:
            shown.append(_part(book, page, section, linker))
            continue
        shown.append({**_head(page, section, linker), "more": linker.to(parts.home(page, section))})
        own = book.linker(parts.home(page, section))
        book.page(
            own.page,
            "device.md.jinja",
            own,
            title=f"{title}: {parts.section_name(section, page)}",
            above=[(title, own.to(path))],
            machine=parts.machine_line(page),
            order=False,
            parts_of_page=[_part(book, page, section, own)],
        )
    book.page(
        path,
        "device.md.jinja",
        linker,
        title=title,
        above=[],
        machine=parts.machine_line(page),
        order=len(page.sections) > 1 and order.WORDS,
        parts_of_page=shown,
    )


def _head(page: DevicePage, section: Section, linker: Linker) -> dict[str, Any]:
    """What is said of a section wherever it stands: what was found, of what, and the rates."""
    sweep, short = section.lead, section.setting.short
    return {
        "name": parts.section_name(section, page),
        "anchor": section.slug,
        "knee": parts.knee_line(sweep),
        "setting": f"{parts.setting_line(sweep)} {parts.ran(sweep, libraries=True)}",
        "choice": choice.of(page, section, linker),
        "status": sweep.folder.status.value,
        "blocks": choice.count(sweep),
        "trials": noise.trials(sweep),
        "gotcha": wording.gotcha(sweep),
        "throughput": tables.throughput(sweep, linker).at(f"{short}-throughput"),
        "more": "",
    }


def _part(book: Book, page: DevicePage, section: Section, linker: Linker) -> dict[str, Any]:
    sweep, short = section.lead, section.setting.short
    stem = f"{page.slug}-{section.slug}"
    return {
        **_head(page, section, linker),
        "doublings": tables.doublings(sweep, linker).at(f"{short}-doublings"),
        "factors": tables.factors(sweep, linker).at(f"{short}-factors"),
        "prefill": tables.prefill(sweep, linker).at(f"{short}-prefill"),
        "latencies": tables.latencies(sweep, linker).at(f"{short}-latency"),
        "splits": tables.splits(sweep, linker).at(f"{short}-split"),
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
        "table": ladder_table.table(sweep, linker).at(f"{sweep.setting.short}-ladder"),
        "figure": book.figure(ladder_figure.draw, sweep, stem=stem, linker=linker),
    }


def _load(book: Book, sweep: Sweep, stem: str, linker: Linker) -> dict[str, Any] | None:
    if not sweep.loads:
        return None
    arms = dict.fromkeys(cell.cell.arm for cell in sweep.loads)
    return {
        "knees": [f"{latency.knee(sweep, arm)[1]}." for arm in arms],
        "offered": load_tables.offered(sweep, linker).at(f"{sweep.setting.short}-load"),
        "percentiles": load_tables.percentiles(sweep, linker).at(
            f"{sweep.setting.short}-percentiles"
        ),
        "figure": book.figure(latency.draw, sweep, stem=stem, linker=linker),
    }


def _reproduction(book: Book, section: Section, stem: str, linker: Linker) -> dict[str, Any] | None:
    if not spread.comparable(section):
        return None
    return {
        "sentence": spread.words(section),
        "figure": book.figure(reproducibility.draw, section, stem=stem, linker=linker),
    }
