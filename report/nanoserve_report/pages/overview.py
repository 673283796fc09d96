"""The overview: the shape first, the multiple after, and what was refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

from nanoserve_bench.soundness import RULES
from nanoserve_report import claims, numbers, order, source, spread, wording
from nanoserve_report.book import Book
from nanoserve_report.figures import devices as devices_figure
from nanoserve_report.figures import marginal, reproducibility, speedup
from nanoserve_report.links import Linker
from nanoserve_report.pages import choice, parts
from nanoserve_report.study import DevicePage, Section, Study
from nanoserve_report.views import overview as tables

PAGE = "results/index.md"
MOST_NAMED = 3
"""Places of one rule that the overview names."""


def write(book: Book, study: Study) -> None:
    """Add the overview."""
    linker = book.linker(PAGE)
    judged = claims.judge(study)
    book.page(
        PAGE,
        "overview.md.jinja",
        linker,
        study=study,
        judged=judged_line(study),
        nothing=nothing_line(study),
        devices=[_device(book, page, linker) for page in shown(study)],
        reproducibility=[
            _reproduction(book, page, most_swept(page, section), linker)
            for page in study.devices
            for section in page.sections
            if section.lead.sound_marginals
        ],
        card=bool(shown(study))
        and book.figure(devices_figure.draw, study, stem="study", linker=linker),
        card_words=wording.holes(study.skipped),
        source=source,
        claims=claims.concern(study) and tables.claim_table(judged, linker),
        refused=refused_line(study),
        beside=wording.beside(study),
        untried=wording.untried(study),
        folders=tables.folders(study, linker),
    )


def shown(study: Study) -> list[DevicePage]:
    """The devices that have at least one sound cell."""
    return [
        page for page in study.devices if any(section.lead.sound_cells for section in page.sections)
    ]


def judged_line(study: Study) -> str:
    """How the folders stand."""
    if not study.folders:
        return "No results folder was found."
    counts = Counter(folder.status.value for folder in study.folders)
    words = numbers.enumerate_words([f"{n} {status}" for status, n in sorted(counts.items())])
    return (
        f"{numbers.count(len(study.folders), 'results folder').capitalize()}, judged from the raw "
        f"rows: {words}. Newest: {study.newest.partition('T')[0] or 'unknown'}."
    )


def nothing_line(study: Study) -> str:
    """Why there is nothing to show."""
    if not study.folders:
        return "the results root holds no results folder."
    return f"of {numbers.count(len(study.folders), 'results folder')} none has a sound cell."


def refused_line(study: Study) -> str:
    """How many findings, and by rule what they refuse; empty where there is none."""
    by_rule: dict[str, list[str]] = {}
    for _, finding in study.findings:
        by_rule.setdefault(finding.rule, []).append(tables.whose(finding))
    if not by_rule:
        return ""
    words = [f"{rule} ({_name(rule)}): {_some(by_rule[rule])}" for rule in sorted(by_rule)]
    return f"{numbers.count(len(study.findings), 'finding').capitalize()}. {'; '.join(words)}."


def _name(code: str) -> str:
    return next((rule.name for rule in RULES if rule.code == code), "no rule of this version")


def _some(places: list[str]) -> str:
    """The first few of some places, each once, and how many more there are."""
    named = list(dict.fromkeys(places))
    more = len(named) - MOST_NAMED
    rest = [f"{more} more"] if more > 0 else []
    return numbers.enumerate_words([*named[:MOST_NAMED], *rest])


def _device(book: Book, page: DevicePage, linker: Linker) -> dict[str, Any]:
    doubled = [section for section in page.sections if section.lead.marginals]
    return {
        "title": parts.device_title(page.device, page.dtype),
        "anchor": page.slug,
        "machine": parts.machine_line(page),
        "reach": len(doubled) > 1 and wording.reach(doubled),
        "order": len(page.sections) > 1 and order.WORDS,
        "parts": [
            _part(book, page, section, linker)
            for section in page.sections
            if section.lead.sound_cells and (section.lead.rivals or section.lead.marginals)
        ],
    }


def _part(book: Book, page: DevicePage, section: Section, linker: Linker) -> dict[str, Any]:
    sweep = section.lead
    stem = f"{page.slug}-{section.slug}"
    figures = []
    if sweep.marginals:
        figures.append(book.figure(marginal.draw, sweep, stem=stem, linker=linker))
    if sweep.rivals:
        figures.append(book.figure(speedup.draw, sweep, stem=stem, linker=linker))
    return {
        "anchor": f"{page.slug}-{section.slug}",
        "name": parts.section_name(section, page),
        "headline": parts.headline(sweep),
        "setting": f"{parts.setting_line(sweep)} {parts.ran(sweep, libraries=False)}",
        "choice": choice.of(page, section, linker),
        "tiles": parts.tiles(sweep),
        "sentences": parts.sentences(sweep),
        "figures": figures,
        "href": linker.to(parts.home(page, section), section.slug),
    }


def most_swept(page: DevicePage, section: Section) -> Section:
    """The section to ask whether it reproduces: an earlier version's where this has one sweep."""
    tried = (one for one in (section, *page.replaced[section.setting]) if spread.comparable(one))
    return next(tried, section)


def _reproduction(book: Book, page: DevicePage, section: Section, linker: Linker) -> dict[str, Any]:
    stem = f"{page.slug}-{section.slug}"
    title = parts.device_title(page.device, page.dtype)
    return {
        "name": f"{title}, {parts.section_name(section, page)}",
        "sentence": spread.words(section),
        "figure": (
            book.figure(reproducibility.draw, section, stem=stem, linker=linker)
            if spread.comparable(section)
            else False
        ),
    }
