"""REP014: numbers are counted, and one that stands in a refused row fails the build."""

from __future__ import annotations

import pytest

from nanoserve_report import backing
from nanoserve_report.book import Book, BookError
from nanoserve_report.pages import compose
from nanoserve_report.study import Study
from support.mutants.pages import PAGE_MUTANTS, PageMutant


def examined(study: Study) -> int:
    (found,) = [o for o in backing.outcomes(study.folders[0]) if o.code == "REP014"]
    return found.examined


def test_the_numbers_of_a_sound_folder_are_counted(one: Study, one_book: Book) -> None:
    count = examined(one)
    assert count > 100
    text = one_book.files["results/rules/rep014.md"].decode()
    assert f">{count:,}<" in text
    assert ">passed<" in text
    assert "the report applies it" not in "".join(
        content.decode() for name, content in one_book.files.items() if name.endswith(".md")
    )


def test_a_refused_row_has_no_number_to_count(one: Study, refused: Study) -> None:
    # A pair's five ratios, its TPOT ratio, its speedup beside the throughput, two doublings.
    assert examined(one) - examined(refused) == 3 + 1 + 1 + 2 * 3


@pytest.mark.parametrize("mutant", PAGE_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_number_in_a_refused_row_fails_the_build(refused: Study, mutant: PageMutant) -> None:
    with (
        mutant.applied(),
        pytest.raises(BookError, match=r"prints 1\.00 in the row nanoserve.*REP014"),
    ):
        compose(refused)
