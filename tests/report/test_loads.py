"""Open loops on the pages: rates, percentiles, saturation, and the curve with its knee."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.statistics import Worth
from nanoserve_report import loads as loading
from nanoserve_report.book import Book
from nanoserve_report.figures import latency
from nanoserve_report.links import Linker
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load
from nanoserve_report.sweeps import Sweep
from nanoserve_report.tables import Hole
from nanoserve_report.views import load as view
from support import load_studies, report_studies
from support.rebuild import change

SHARES = (0.5, 1.5)


def linker() -> Linker:
    return Linker(page="results/devices/cpu-float32.md")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    made = load_studies.study(
        *SHARES, blocks=5, objective_ttft_ms=150.0, step_ms=report_studies.step_ms(62.0)
    )
    return load(report_studies.write(tmp_path_factory.mktemp("load"), made))


@pytest.fixture(scope="module")
def book(study: Study) -> Book:
    return compose(study)


def lead(study: Study) -> Sweep:
    return study.sections[0].lead


def test_open_loops_belong_to_the_workload_that_they_offer(study: Study) -> None:
    assert study.ok, [str(finding) for _, finding in study.findings]
    (section,) = study.sections
    assert section.setting.workload == "day44"
    found = loading.loads(section.lead)
    names = [each.name for each in load_studies.loads(*SHARES)]
    assert [one.workload.name for one in found] == names
    assert not {cell.cell.id for cell in section.lead.loads} & {
        cell.cell.id for cell in section.lead.cells
    }


def test_a_share_is_of_the_capacity_that_this_study_measured(study: Study) -> None:
    sweep = lead(study)
    (eight,) = [c for c in sweep.sound_cells if (c.cell.arm, c.cell.slots) == ("nanoserve", 8)]
    tokens = 16
    for one in loading.loads(sweep):
        assert one.share == pytest.approx(
            one.rate_per_s / (eight.throughput.point / tokens), rel=1e-3
        )


def test_a_loop_beyond_its_capacity_is_named_saturated(study: Study) -> None:
    half, beyond = loading.loads(lead(study))
    assert half.state.startswith("steady")
    assert beyond.state.startswith("saturated: the queue still grew")
    rows = list(view.offered(lead(study), linker()))
    assert rows[1][-1].tone == "bad"
    assert rows[0][8].value > rows[1][8].value  # fewer meet the objective


def test_percentiles_stand_with_their_n_and_few_values_are_a_hole(study: Study) -> None:
    rows = list(view.percentiles(lead(study), linker()))
    assert [row[3].text for row in rows[:4]] == ["TTFT", "TPOT", "ITL", "E2EL"]
    assert [row[4].value for row in rows[:4]] == [160, 160, 160 * 15, 160]
    for row in rows:
        assert row[5].value <= row[6].value <= row[7].value
    fewer = dataclasses.replace(loading.loads(lead(study))[0].figures.ttft, n=99, p99=None)
    cells = view._percentiles(fewer)
    assert isinstance(cells[3], Hole)
    assert cells[3].reason == "99 values are too few for it"


def test_the_knee_is_before_the_first_doubling_that_is_not_worth_it(study: Study) -> None:
    sweep = lead(study)
    verdicts = {item.lower.slots: item.verdict for item in sweep.sound_marginals}
    assert verdicts[4] is Worth.NOT_WORTH_IT
    slots, words = latency.knee(sweep, "nanoserve")
    assert slots == 4
    assert words.startswith("nanoserve: the knee is at 4 slots: 4 to 8 slots is not worth it (0.")


def without(sweep: Sweep, keep) -> Sweep:
    """A sweep of which only some doublings are known."""
    verdict = sweep.folder.verdict
    kept = tuple(item for item in verdict.marginals if keep(item))
    folder = dataclasses.replace(sweep.folder, verdict=dataclasses.replace(verdict, marginals=kept))
    return dataclasses.replace(sweep, folder=folder)


def test_a_knee_that_was_not_reached_is_named_so(study: Study) -> None:
    paying = without(lead(study), lambda item: item.lower.slots < 4)
    slots, words = latency.knee(paying, "nanoserve")
    assert slots is None
    assert words == "nanoserve: the knee lies beyond what was measured, which ends at 4 slots"
    none = without(lead(study), lambda _: False)
    assert latency.knee(none, "nanoserve")[1].endswith("the knee is not known")


def test_an_undecided_doubling_before_it_leaves_the_knee_open(study: Study) -> None:
    sweep = lead(study)
    verdict = sweep.folder.verdict
    blurred = tuple(
        dataclasses.replace(item, verdict=Worth.UNDECIDED) if item.lower.slots == 2 else item
        for item in verdict.marginals
    )
    folder = dataclasses.replace(
        sweep.folder, verdict=dataclasses.replace(verdict, marginals=blurred)
    )
    slots, words = latency.knee(dataclasses.replace(sweep, folder=folder), "nanoserve")
    assert slots is None
    assert "before 8 slots, and where is not known: 2 to 4 slots is undecided" in words


def test_the_curve_has_both_sweeps_and_marks_the_knee(study: Study) -> None:
    drawing = latency.draw(lead(study))
    kinds = [(row[0], row[2], row[11]) for row in drawing.rows]
    assert kinds == [
        ("slots", 1, "no"), ("slots", 2, "no"), ("slots", 4, "yes"), ("slots", 8, "no"),
        ("rates", 8, "no"), ("rates", 8, "no"),
    ]  # fmt: skip
    assert "the knee is at 4 slots" in drawing.alt
    assert "saturated" in drawing.alt


def test_a_refused_loop_is_a_hole_in_tables_and_curve(tmp_path: Path) -> None:
    made = load_studies.study(*SHARES, blocks=5)
    name = load_studies.cell(load_studies.loads(*SHARES)[0])
    late = lambda row: row.arrival_ns + 5000  # noqa: E731
    change(
        made, "requests", cell=name, request="r9", blocks=[1], arrival_ns=late, submitted_ns=late
    )
    sweep = lead(load(report_studies.write(tmp_path / "results", made)))
    row = next(iter(view.offered(sweep, linker())))
    assert all(isinstance(cell, Hole) for cell in row[4:])
    assert "RUN023" in row[4].reason
    drawing = latency.draw(sweep)
    (hole,) = [row for row in drawing.rows if row[-3]]
    assert hole[4:10] == (None,) * 6


def test_the_device_page_has_the_load_and_a_plain_study_has_none(
    book: Book, one_book: Book
) -> None:
    page = next(p for p in book.files if p.startswith("results/devices/cpu"))
    text = book.files[page].decode()
    assert "Under load" in text
    assert "the knee is at 4 slots" in text
    assert any(name.endswith("latency.svg") for name in book.files)
    assert "Under load" not in one_book.files[page].decode()
