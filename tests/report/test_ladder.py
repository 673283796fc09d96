"""The ladder of baselines: the best beside the weakest, losses as visible as wins."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.soundness import SoundComparison, judge_path
from nanoserve_report import ladder
from nanoserve_report.book import Book
from nanoserve_report.figures import ladder as figure
from nanoserve_report.figures import speedup
from nanoserve_report.links import Linker
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load
from nanoserve_report.sweeps import Folder
from nanoserve_report.tables import Hole, Num, Table
from nanoserve_report.views import ladder as view
from support import report_studies
from support.rebuild import change


def linker() -> Linker:
    return Linker(page="results/devices/cpu-float32.md")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    root = report_studies.write(tmp_path_factory.mktemp("ladder"), report_studies.ladder())
    return load(root)


@pytest.fixture(scope="module")
def book(study: Study) -> Book:
    return compose(study)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The strongest baseline has other weights at every slot count: its ratios are refused."""
    made = report_studies.ladder()
    assert made.edit(
        "systems",
        lambda row: dataclasses.replace(row, weights="sha256:" + "c" * 64),
        where=lambda row: row.arm == "strong",
    )
    return load(report_studies.write(tmp_path_factory.mktemp("refused-ladder"), made))


def cells(table: Table) -> dict[int, tuple]:
    return {int(row[1].value): row for row in table.rows if row[0].text == "nanoserve"}


def test_the_study_is_sound_and_its_engine_has_three_baselines(study: Study) -> None:
    assert study.ok, [str(finding) for _, finding in study.findings]
    found = ladder.rungs(study.sections[0].lead)
    assert [(rung.candidate.arm, rung.candidate.slots) for rung in found] == [
        ("nanoserve", slots) for slots in (1, 2, 4, 8)
    ]
    for rung in found:
        assert {pair.baseline.arm for pair in rung.pairs} == {"hf-generate", "hf-static", "strong"}
        assert not rung.refused


def test_an_arm_that_repeats_another_doubles_nothing_again() -> None:
    """The committed sweep of the ladder measures two baselines twice; one of them has slots."""
    name = "20261130-cpu-ladder-095b70a"
    path = Path(__file__).parents[2] / "bench/results" / name
    (sweep,) = Folder(name=name, verdict=judge_path(path)).sweeps
    assert {pair.candidate.arm for pair in sweep.selves} == {"hf-generate-again", "hf-static-again"}
    assert {item.lower.arm for item in sweep.marginals} == {
        "hf-static",
        "hf-continuous",
        "nanoserve",
    }


def test_the_best_baseline_is_the_one_with_the_lowest_ratio(study: Study) -> None:
    for rung in ladder.rungs(study.sections[0].lead):
        ratios = [pair.speedup.point for pair in rung.sound]
        assert rung.against_best.speedup.point == min(ratios)
        assert rung.against_weakest.speedup.point == max(ratios)


def test_the_table_names_both_baselines_and_a_loss_stands_like_a_win(study: Study) -> None:
    rows = cells(view.table(study.sections[0].lead, linker()))
    for slots, row in rows.items():
        assert len(row[2:5]) == len(row[5:8])
        assert isinstance(row[3], Num)
        assert isinstance(row[6], Num)
        assert row[3].value <= row[6].value
        assert row[5].text == ("hf-generate, 1 slot" if slots > 1 else row[5].text)
    assert rows[8][2].text == "strong, 8 slots"
    assert rows[8][4].text.endswith("slower")
    assert rows[8][4].tone == "bad"
    assert rows[8][7].text.endswith("faster")
    assert rows[8][3].value < 1 < rows[8][6].value


def test_the_sentence_says_where_it_loses_and_to_whom(study: Study) -> None:
    (line,) = ladder.words(ladder.rungs(study.sections[0].lead))
    assert line.startswith("nanoserve against the best of its baselines, by slots: slower at ")
    assert "8 (strong, 0." in line
    assert "faster at " in line


def test_a_refused_baseline_is_not_counted_and_said_so(refused: Study) -> None:
    sweep = refused.sections[0].lead
    for row in cells(view.table(sweep, linker())).values():
        assert row[2].text.startswith(("hf-static", "hf-generate"))
        assert row[8].text.startswith("strong is refused (PAIR")
    drawing = figure.draw(sweep)
    holes = [row for row in drawing.rows if row[2] == "strong"]
    assert len(holes) == 4
    assert all(row[3] is None and str(row[-3]).startswith("PAIR") for row in holes)
    assert "strong: refused" in drawing.alt


def test_a_candidate_without_a_sound_ratio_is_a_hole(tmp_path: Path) -> None:
    made = report_studies.ladder()
    change(made, "requests", cell="nanoserve/cpu/float32/4/day44", blocks=[2], max_tokens=17)
    sweep = load(report_studies.write(tmp_path / "results", made)).sections[0].lead
    row = cells(view.table(sweep, linker()))[4]
    assert all(isinstance(cell, Hole) for cell in row[2:])
    (line,) = ladder.words(ladder.rungs(sweep))
    assert "a hole at 4" in line


def test_the_figure_draws_every_ratio_with_its_interval(study: Study) -> None:
    sweep = study.sections[0].lead
    drawing = figure.draw(sweep)
    pairs = [pair for pair in sweep.sound_rivals if pair.candidate.arm == "nanoserve"]
    drawn = {(row[1], row[2]): row[3:7] for row in drawing.rows}
    assert drawn == {
        (p.candidate.slots, p.baseline.arm): (
            p.speedup.point, p.speedup.low, p.speedup.high, p.verdict,
        )
        for p in pairs
    }  # fmt: skip
    assert [row[7] for row in drawing.rows].count("yes") == 4
    assert "strong, its best baseline" in drawing.alt


def test_the_speedup_figure_keeps_to_the_baseline_that_it_names(study: Study) -> None:
    rows = speedup.draw(study.sections[0].lead).rows
    assert {row[0] for row in rows} == {"hf-generate"}


def test_the_device_page_has_the_ladder_and_a_plain_study_has_none(
    book: Book, one_book: Book
) -> None:
    page = next(p for p in book.files if p.startswith("results/devices/cpu"))
    text = book.files[page].decode()
    assert "Against every baseline" in text
    assert "slower at" in text
    assert any(name.endswith("ladder.svg") for name in book.files)
    assert "Against every baseline" not in one_book.files[page].decode()
    overview = book.files["results/index.md"].decode()
    assert "nanoserve against the best of its baselines" in overview


def test_ratios_over_one_baseline_make_no_ladder(one: Study) -> None:
    sweep = one.sections[0].lead
    assert ladder.rungs(sweep) == ()
    assert all(isinstance(pair, SoundComparison) for pair in sweep.headline_rivals)
