"""The page that reads one speedup: its numbers are the study's, and follow from the rows."""

from __future__ import annotations

import re

from nanoserve_bench.records import NS_PER_S
from nanoserve_report import example, numbers
from nanoserve_report.book import Book
from nanoserve_report.pages import compose
from nanoserve_report.study import Study
from support.report_studies import said

PAGE = "results/reading.md"


def test_it_reads_the_largest_ratio_against_the_headline_baseline(
    one: Study, one_book: Book
) -> None:
    found = example.choose(one)
    assert found is not None
    sweep = one.sections[0].lead
    best = max(sweep.sound_rivals, key=lambda pair: pair.speedup.point)
    assert found.pair is best
    text = said(one_book, PAGE)
    for estimate in (best.speedup, found.batch, found.slot):
        assert numbers.ratio(estimate).words in text
    assert found.alone is not None
    assert found.alone.candidate.slots == 1
    assert numbers.ratio(found.alone.speedup).words in text


def test_the_queue_is_told_with_its_own_value_and_the_documents(one: Study, one_book: Book) -> None:
    text = said(one_book, PAGE)
    cell = next(
        cell
        for cell in one.sections[0].lead.sound_cells
        if (cell.cell.arm, cell.cell.slots) == ("nanoserve", 1)
    )
    assert f"a system occupancy of {numbers.shown(cell.system_occupancy).words} requests" in text
    assert "(8 + 1) / 2 = 4.50" in text
    assert "4.83" in text


def test_the_sums_are_those_of_the_rows(one: Study) -> None:
    found = example.choose(one)
    assert found is not None
    results = found.section.lead.results
    for cell, (_, words, tex) in zip(
        (found.pair.candidate, found.pair.baseline), example.rows(found), strict=True
    ):
        rows = [
            row
            for row in results.requests
            if (row.cell, row.block, row.warmup) == (cell.id, found.block, False)
        ]
        tokens = sum(row.output_tokens for row in rows)
        wall = max(row.finished_ns for row in rows) - min(row.arrival_ns for row in rows)
        assert f"{tokens:,} tokens, {wall:,} ns of wall" in words
        rate, batch, slot = (float(x) for x in re.findall(r"(?:= |\\cdot )([0-9.]+)(?= |$)", tex))
        assert abs(rate - tokens * NS_PER_S / wall) < 1e-4 * rate
        assert abs(rate - batch * slot) < 1e-4 * rate


def test_nothing_of_what_is_refused_is_read(refused: Study, refused_book: Book) -> None:
    found = example.choose(refused)
    assert found is not None
    assert "/2/" not in found.pair.candidate.id
    assert "refused: PAIR005" in refused_book.files[PAGE].decode()


def test_without_a_sound_comparison_it_says_so() -> None:
    text = compose(Study(folders=())).files[PAGE].decode()
    assert "nothing to read here yet" in text
