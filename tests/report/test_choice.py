"""Which sweep is shown: the rule stands beside it, and so do all the others."""

from __future__ import annotations

from nanoserve_report import spread
from nanoserve_report.book import Book
from nanoserve_report.pages import choice
from nanoserve_report.study import Study


def test_the_rule_and_every_other_sweep_stand_in_the_same_sentence(
    three: Study, three_book: Book
) -> None:
    oldest, middle, newest = (folder.name for folder in three.folders)
    found = choice.of(three.devices[0], three.sections[0], three_book.linker("results/index.md"))
    assert found["shown"]["name"] == newest
    assert [other["name"] for other in found["others"]] == [middle, oldest]
    for page in ("results/index.md", "results/devices/cpu-float32.md"):
        text = three_book.files[page].decode()
        line = next(line for line in text.splitlines() if "Shown is the sweep" in line)
        assert "the newest of 3 of this setting by the time of its plan" in line
        assert all(f">{name}</a>" in line for name in (oldest, middle, newest))
        assert spread.ranges(three.sections[0]) in line


def test_the_range_runs_from_the_lowest_to_the_highest_sweep(three: Study) -> None:
    section = three.sections[0]
    said = spread.ranges(section)
    for line in spread.headline(section):
        points = [estimate.point for estimate in line.by_run.values()]
        assert len(points) == 3
        assert f"{min(points):.2f} to {max(points):.2f}\N{MULTIPLICATION SIGN}" in said


def test_one_sweep_has_no_range_and_no_others(one: Study, one_book: Book) -> None:
    found = choice.of(one.devices[0], one.sections[0], one_book.linker("results/index.md"))
    assert found["rule"] == "the only one of this setting"
    assert not found["others"]
    assert not found["ranges"]
