"""A published folder that a newer rule refuses: its page stays, stamped, and its numbers go."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from nanoserve_report.book import Book
from nanoserve_report.cli import main, unsound_message
from nanoserve_report.pages import compose
from nanoserve_report.retractions import FILE, RetractionError
from nanoserve_report.study import Study, load
from nanoserve_report.sweeps import Status
from support.report_studies import diverge, sweep, write

RUN = "20260102-cpu-day44-0123456"
LINE = f"{RUN},PAIR005,the rule is newer than the folder\n"
HEAD = "run,rule,reason\n"


def everything(book: Book) -> str:
    return "\n".join(
        content.decode()
        for name, content in sorted(book.files.items())
        if not re.search(r"/data/[^/]+$", name)
    )


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound folder, and one that was sound until somebody looked closer."""
    broken = sweep(1)
    diverge(broken)
    return write(tmp_path_factory.mktemp("before") / "results", sweep(), broken)


@pytest.fixture
def root(tmp_path: Path, before: Path) -> Path:
    shutil.copytree(before, tmp_path / "results")
    return tmp_path / "results"


def test_without_a_retraction_the_study_is_red(before: Path) -> None:
    study = load(before)
    assert not study.ok
    assert "PAIR005" in unsound_message(study)
    text = compose(study).files[f"results/runs/{RUN}.md"].decode()
    assert "<strong>Refused</strong> by <a" in text


def test_a_retracted_folder_keeps_its_page_and_no_number(root: Path, before: Path) -> None:
    (root / FILE).write_text(HEAD + LINE)
    study = load(root)
    assert study.ok
    assert unsound_message(study) == ""
    assert study.folders[1].status is Status.RETRACTED
    book = compose(study)
    text = book.files[f"results/runs/{RUN}.md"].decode()
    assert '<strong>Retracted</strong> by <a href="../../rules/pair005/">PAIR005</a>' in text
    assert "the rule is newer than the folder" in text
    assert f"results/runs/{RUN}/data/requests.csv" in book.files
    assert book.broken_links(Path("docs").resolve()) == ()
    shown, earlier = everything(book), everything(compose(load(before)))
    (broken,) = load(before).folders[1].sweeps
    gone = [repr(pair.speedup.point) for pair in broken.sound_rivals]
    gone += [repr(cell.throughput.point) for cell in broken.sound_cells]
    assert len(gone) > 6
    for number in gone:
        assert number in earlier
        assert number not in shown


def test_a_study_of_which_all_was_retracted_has_nothing_to_show(
    tmp_path: Path, before: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    shutil.copytree(before / RUN, tmp_path / "results" / RUN)
    (tmp_path / "results" / FILE).write_text(HEAD + LINE)
    docs = tmp_path / "docs"
    docs.mkdir()
    monkeypatch.setattr(
        sys, "argv",
        ["nanoserve-report", "build", str(tmp_path / "results"), "--docs", str(docs),
         "--pages-only"],
    )  # fmt: skip
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert "nothing to show: none of 1 results folder(s)" in capsys.readouterr().err
    assert "There is nothing sound to show" in (docs / "results/index.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run,rule\n", "row 1: the columns have to be run, rule, reason"),
        ("", "row 1: the columns have to be run, rule, reason"),
        (f"{HEAD}nowhere,PAIR005,x\n", "row 2: column run: 'nowhere' is no folder here"),
        (f"{HEAD}{RUN},RUN018,x\n", "'RUN018' refuses nothing in"),
        (f"{HEAD}20260101-cpu-day44-0123456,PAIR005,x\n", "(found: nothing)"),
        (f"{HEAD}{RUN},PAIR005, \n", "row 2: column reason: is empty"),
        (f"{HEAD}{LINE}{LINE}", "row 3: column run"),
        (f"{HEAD}{RUN}\n", "row 2: has 1 cells for 3 columns"),
        (f'{HEAD}"a', "is not a CSV file in UTF-8"),
    ],
)
def test_a_line_that_is_not_so_is_an_error(root: Path, text: str, message: str) -> None:
    (root / FILE).write_text(text)
    with pytest.raises(RetractionError, match=re.escape(message)):
        load(root)


def test_an_empty_study_is_bare() -> None:
    assert Study(folders=()).bare
