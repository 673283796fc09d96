"""One wrong token of one rival, in published rows: what a reader is shown, and what is a hole."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest

from nanoserve_report.book import Book
from nanoserve_report.figures import speedup
from nanoserve_report.pages import evidence, overview
from nanoserve_report.study import Study, load
from support.refusing import POSITION, REFUSED_CELL, RUN_ID, one_token_off
from support.report_studies import said

RESULTS = Path(__file__).parents[2] / "bench" / "results"
RIVALS, MAIN = "20261130-cpu-rivals-582a871", "20261130-cpu-day44-1044770"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    root = tmp_path_factory.mktemp("rival") / "results"
    shutil.copytree(RESULTS / MAIN, root / MAIN)
    one_token_off(RESULTS / RIVALS, root)
    return load(root)


@pytest.fixture(scope="module")
def book(study: Study) -> Book:
    book = Book()
    overview.write(book, study)
    evidence.write(book, study)
    return book


def test_only_that_pair_is_refused_and_all_else_stands(study: Study) -> None:
    ((folder, finding),) = study.findings
    assert (folder.name, finding.rule, finding.cell) == (RUN_ID, "PAIR005", REFUSED_CELL)
    rows = list(csv.DictReader(io.StringIO(speedup.draw(folder.sweeps[0]).to_csv())))
    holes = [(row["candidate"], row["slots"]) for row in rows if row["hole"]]
    assert holes == [("openvino", "8")]
    assert not any(row["speedup"] for row in rows if row["hole"])
    assert all(row["speedup"] for row in rows if not row["hole"])


def test_the_overview_says_who_was_refused_by_what_and_in_the_section_too(book: Book) -> None:
    text = said(book, overview.PAGE)
    assert (
        f"1 finding. PAIR005 (same-output-tokens): {REFUSED_CELL} against "
        "hf-generate/cpu/float32/1/day44." in text
    )
    assert "Refused, and without a ratio: openvino at 8 slots over hf-generate (PAIR005)." in text
    assert "ns-banner-bad" in text


def test_the_refusals_page_shows_the_first_divergence_with_both_tokens(book: Book) -> None:
    text = said(book, "results/refusals.md")
    assert f"block 2, request 3, position {POSITION}; requests.csv, row 311" in text
    assert "token 34 instead of token 33" in text
    assert "triage: near-tie" in text
    for word in ("First divergences", "near-tie", "blue", "red", "0.0003", "0.0011"):
        assert word in text
