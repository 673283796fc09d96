"""The calibration page: numbers from a record that stands, and none from one that does not."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from nanoserve_bench.calibration import document, noise, simulate
from nanoserve_bench.calibration.records import Calibration
from nanoserve_bench.soundness import judge_path
from nanoserve_report import numbers
from nanoserve_report.book import Book
from nanoserve_report.calibrations import RefusedCalibration, SoundCalibration
from nanoserve_report.cli import unsound_message
from nanoserve_report.figures import calibration as figure
from nanoserve_report.figures.svg import render
from nanoserve_report.pages import calibration as pages
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load
from nanoserve_report.views import calibration as tables
from support.report_studies import sweep, write

PAGE = "results/calibration.md"


@pytest.fixture(scope="module", autouse=True)
def _eight_pairs_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "LEAST_PAIRS", 8)
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound sweep of eight blocks, with its calibration beside it."""
    folder = write(
        tmp_path_factory.mktemp("calibrated") / "results",
        sweep(0, step_ms=None),
    )
    verdicts = [judge_path(path) for path in sorted(folder.iterdir())]
    order = simulate.Order(name="default", seed=1, studies=50)
    record = simulate.calibrate(order, verdicts, tell=lambda _: None)
    document.write(folder.parent / "calibration", record)
    return folder


@pytest.fixture(scope="module")
def study(root: Path) -> Study:
    return load(root)


@pytest.fixture(scope="module")
def record(study: Study) -> Calibration:
    (item,) = study.calibrations
    assert isinstance(item, SoundCalibration)
    return item.record


@pytest.fixture(scope="module")
def book(study: Study) -> Book:
    return compose(study)


def text_of(book: Book) -> str:
    return book.files[PAGE].decode()


def test_the_page_shows_every_rate_with_its_error(record: Calibration, book: Book) -> None:
    text = text_of(book)
    for row in record.outcomes:
        for count in (row.faster, row.bare_faster, row.held, row.slot_held):
            shown = numbers.simulated(row.share(count))
            assert f">{shown.point}{numbers.PERCENT} <small>" in text
            assert f">{shown.interval}</small>" in text
    for interval in record.intervals:
        assert interval.method in text
    for item in record.inputs:
        assert item.manifest_sha256 in text
        assert f"bench/results/{item.run_id}" in text
    assert "--studies 50 --seed 1" in text
    assert f">{record.sources[0].pairs}<" in text
    assert pages.target_words() in text


def test_the_files_of_the_record_can_be_downloaded(record: Calibration, book: Book) -> None:
    for name, content in document.files_of(record).items():
        assert book.files[f"results/calibration/{name}"].decode() == content
    assert not [link for link in book.broken_links(Path("docs")) if link.page == PAGE]


def test_the_figure_says_what_it_draws(record: Calibration) -> None:
    drawing = figure.draw(record, record.sources[0])
    rows = list(csv.DictReader(io.StringIO(drawing.to_csv())))
    marks = 3 * sum(r.effect == 1 for r in record.outcomes)
    marks += 2 * sum(r.effect != 1 for r in record.outcomes)
    assert len(rows) == marks
    called = [float(r["share"]) for r in rows if r["quantity"] == figure.CALLED]
    assert called
    for row in rows:
        assert float(row["low"]) <= float(row["share"]) <= float(row["high"])
    assert "Interval held the truth:" in drawing.alt
    assert b"<svg" in render(drawing.figure)


def test_a_source_that_was_always_refused_is_a_hole(record: Calibration) -> None:
    nothing = {
        field.name: 0
        for field in dataclasses.fields(record.outcomes[0])
        if field.name in {"faster", "slower", "no_difference", "undecided", "bare_faster",
                          "bare_slower", "held", "batch_held", "slot_held", "system_held",
                          "request_held"}
    }  # fmt: skip
    refused = tuple(
        dataclasses.replace(
            row, refused=row.studies, mean_blocks=None, mean_half_width=None, **nothing
        )
        for row in record.outcomes
    )
    changed = dataclasses.replace(record, outcomes=refused)
    drawing = figure.draw(changed, changed.sources[0])
    assert "Every study was refused" in drawing.alt
    hole, run, _ = drawing.rows[0][-3:]
    assert hole == "every study was refused"
    assert str(run).split() == list(changed.sources[0].run_ids)
    book = Book()
    item = SoundCalibration(name="default", folder=Path(), record=changed)
    pages.write(book, Study(folders=(), calibrations=(item,)))
    assert "every study was refused for contention" in text_of(book)


def test_targets_met_and_missed_are_told_apart(record: Calibration) -> None:
    assert "No source has enough pairs" in pages.standing(record)
    facts = dataclasses.replace(record.sources[0], pairs=100)
    good = tuple(
        dataclasses.replace(row, refused=0, faster=0, slower=0, held=47) for row in record.outcomes
    )
    met = dataclasses.replace(record, sources=(facts,), outcomes=good)
    lead = pages.standing(met)
    assert "The targets are met by all 8 kinds of study that they are put to" in lead
    assert "no target is put" not in lead
    one = dataclasses.replace(good[0], held=45)
    missed = dataclasses.replace(met, outcomes=(one, *good[1:]))
    words = pages.standing(missed)
    assert words.startswith(
        "1 of the 8 kinds of study that the targets are put to miss one: 8 blocks, drawn one by one"
    )
    assert "held 90.0\N{NO-BREAK SPACE}%" in words


def test_the_lead_names_what_is_not_judged_and_how_little_is_found(record: Calibration) -> None:
    """Beside a target that is met: the noise it was not put to, and the power."""
    base = [
        dataclasses.replace(row, refused=0, faster=0, slower=0, bare_faster=40, held=47)
        for row in record.outcomes
    ]
    gains = [index for index, row in enumerate(base) if row.effect != 1]
    base[gains[0]] = dataclasses.replace(base[gains[0]], faster=1, bare_faster=21)
    facts = dataclasses.replace(record.sources[0], pairs=100)
    few = dataclasses.replace(facts, name="other", system="slow", pairs=99)
    others = [dataclasses.replace(row, source="other") for row in base]
    others[gains[1]] = dataclasses.replace(others[gains[1]], held=43, faster=7)
    both = dataclasses.replace(record, sources=(facts, few), outcomes=(*base, *others))
    lead = pages.standing(both)
    assert "met by all 8 kinds of study that they are put to" in lead
    assert (
        "To 8 more kinds no target is put, for want of pairs: those of the noise of slow, " in lead
    )
    least = numbers.simulated(others[gains[1]].share(43)).words
    assert f"held the truth in as little as {least} of studies, and 1 of the 8" in lead
    for index in gains[:2]:
        rule = tables.rule_words(base[index])
        rows = [
            row for row in (*base, *others) if row.effect != 1 and tables.rule_words(row) == rule
        ]
        low, high = (pick(rows, key=lambda row: row.faster) for pick in (min, max))
        least, most = (pick(rows, key=lambda row: row.bare_faster) for pick in (min, max))
        assert (
            f"under {rule} in {numbers.simulated(low.share(low.faster)).words} to "
            f"{numbers.simulated(high.share(high.faster)).words} of studies with the envelope, and "
            f"in {numbers.simulated(least.share(least.bare_faster)).words} to "
            f"{numbers.simulated(most.share(most.bare_faster)).words} without it"
        ) in lead
    refused = [dataclasses.replace(row, refused=row.studies) for row in others]
    holes = dataclasses.replace(both, outcomes=(*base, *refused))
    assert "every one of those studies was refused" in pages.standing(holes)


def test_no_calibration_is_a_hole_with_what_to_do(one_book: Book) -> None:
    assert "no calibration was made" in text_of(one_book)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda f: (f / "default.csv").write_text("source\n"), "is not what follows"),
        (lambda f: (f / "default.json").write_text("{}"), "has the schema None"),
        (lambda f: (f / "other.csv").write_text("a\n"), "other.csv belongs to no calibration"),
    ],
)
def test_a_refused_calibration_has_no_number_and_turns_the_light_red(
    root: Path, record: Calibration, damage, reason: str
) -> None:
    folder = root.parent / "calibration"
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    try:
        damage(folder)
        study = load(root)
    finally:
        for path in folder.iterdir():
            path.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
    refused = [item for item in study.calibrations if isinstance(item, RefusedCalibration)]
    assert reason in refused[0].problems[0]
    assert not study.ok
    assert reason in unsound_message(study)
    book = Book()
    pages.write(book, study)
    text = text_of(book)
    assert "is refused, and none of its numbers is shown" in text
    if len(study.calibrations) == 1:
        assert record.inputs[0].manifest_sha256 not in text


def test_a_changed_input_makes_it_stale(root: Path, record: Calibration, tmp_path: Path) -> None:
    """The same calibration beside other folders of the same names."""
    other = write(tmp_path / "results", sweep(0, step_ms=None, spread=0.02))
    document.write(tmp_path / "calibration", record)
    found = load(other)
    (item,) = found.calibrations
    assert isinstance(item, RefusedCalibration)
    assert "is another one now" in item.problems[0]
    assert not found.ok


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "hf-generate/cpu/float32/1/day44x32@462b9f3a",
            "hf-generate, 1 slot, day44x32, cpu float32",
        ),
        ("nanoserve/cpu/float32/8/day44@0", "nanoserve, 8 slots, day44, cpu float32"),
        ("something else", "something else"),
        ("a/b/c/d/e", "a/b/c/d/e"),
    ],
)
def test_what_was_left_out_is_named_like_the_rest(name: str, words: str) -> None:
    assert tables.left_words(name) == words
