"""How a figure is measured again: revision, command and rows, one link away from it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from nanoserve_report.book import MOST_ORIGINS, Book
from nanoserve_report.pages import rerun
from nanoserve_report.study import Study, load
from support.report_studies import said, sweep, write

COMMAND = "nanoserve-bench sweep --arm hf-generate --blocks 8"
CAPTION = re.compile(r"<figcaption>(.*?)</figcaption>", re.DOTALL)


def with_commands(tmp_path: Path, *commands: str) -> Study:
    made = sweep()
    (start,) = made.starts
    made.starts = [
        dataclasses.replace(start, command=command, outcome="running") for command in commands
    ]
    return load(write(tmp_path / "results", made))


def test_a_recorded_command_is_shown_as_it_was_recorded(tmp_path: Path) -> None:
    (folder,) = with_commands(tmp_path, COMMAND).folders
    found = rerun.of(folder)
    assert found is not None
    assert found.commands[-1] == COMMAND
    assert found.commands[0].startswith("git checkout ")
    assert (found.known, found.notes) == (rerun.RECORDED, ())


def test_two_starts_with_other_commands_say_so(tmp_path: Path) -> None:
    (folder,) = with_commands(tmp_path, COMMAND, f"{COMMAND} --run-id x").folders
    found = rerun.of(folder)
    assert found is not None
    assert found.commands[-1] == COMMAND
    assert found.notes == ("its 2 different command lines are in the ledger below",)


def test_a_folder_from_before_shows_the_derived_command_as_derived(
    one: Study, one_book: Book
) -> None:
    found = rerun.of(one.folders[0])
    assert found is not None
    assert found.known == rerun.DERIVED
    assert found.commands[-1].startswith("nanoserve-bench sweep --model smollm2-135m --arm ")
    text = said(one_book, f"results/runs/{one.folders[0].name}.md")
    assert "was not recorded in this folder. This one is derived from its plan" in text
    assert "{#again}" in text
    assert "{#files}" in text
    assert found.commands[-1] in text


def test_every_figure_leads_to_the_revision_and_command_of_its_runs(three_book: Book) -> None:
    captions = [
        caption
        for name, text in three_book.files.items()
        if name.endswith(".md")
        for caption in CAPTION.findall(text.decode())
    ]
    assert len(captions) > 8
    for caption in captions:
        assert "Data (CSV)" in caption
        assert 1 <= caption.count('#again"') <= MOST_ORIGINS
    assert not three_book.broken_links(Path())


def test_a_section_leads_there_too(one_book: Book) -> None:
    for page in ("results/index.md", "results/devices/cpu-float32.md"):
        assert '#again">revision, command, rows</a>' in one_book.files[page].decode()
