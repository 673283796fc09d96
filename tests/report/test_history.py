"""The history: what may stand side by side, what a change may be called, and what stays a hole."""

from __future__ import annotations

import csv
import dataclasses
import io

import pytest

from nanoserve_bench.soundness import Finding, RefusedComparison
from nanoserve_bench.statistics import Outcome
from nanoserve_report import history
from nanoserve_report.book import Book
from nanoserve_report.figures import history as figure
from nanoserve_report.history import SPEEDUP, Missing, Quantity, Sound, tracks
from nanoserve_report.links import Linker
from nanoserve_report.pages import history as page
from nanoserve_report.retractions import Retraction
from nanoserve_report.study import Study
from nanoserve_report.sweeps import Folder
from nanoserve_report.tables import Text
from nanoserve_report.views import history as views

FOUR = Quantity(kind=SPEEDUP, arm="nanoserve", slots=4)
A, B, C = ("a" * 40, "b" * 40, "c" * 40)


def at(folder: Folder, revision: str, day: int = 0, machine: str = "") -> Folder:
    """The folder, had it been measured at a revision, on a day, on a machine."""
    results = folder.results
    assert results is not None
    plan = results.plan
    if day:
        plan = dataclasses.replace(plan, created_at=f"2026-02-0{day}T00:00:00+00:00")
    manifest = results.manifest
    if machine:
        manifest = dataclasses.replace(manifest, machine=machine)
    changed = dataclasses.replace(
        results, plan=dataclasses.replace(plan, revision=revision), manifest=manifest
    )
    return dataclasses.replace(folder, verdict=dataclasses.replace(folder.verdict, results=changed))


def versions(three: Study, *revisions: str) -> Study:
    """Its three folders (with a baseline of 62, 70 and 55 ms), one revision each."""
    days = (1, 2, 3)
    return Study(
        folders=tuple(
            at(folder, revision, day)
            for folder, revision, day in zip(three.folders, revisions, days, strict=True)
        )
    )


def test_a_change_is_judged_and_its_point_is_the_ratio_of_the_points(three: Study) -> None:
    (track,) = tracks(versions(three, A, B, C))
    assert [version.label for version in track.versions] == ["aaaaaaa", "bbbbbbb", "ccccccc"]
    found = [version.get(FOUR) for version in track.versions]
    changes = [track.change(FOUR, index) for index in range(3)]
    assert changes[0] is None
    for index, (factor, word) in enumerate([(70 / 62, "faster"), (55 / 70, "slower")], start=1):
        change = changes[index]
        assert change is not None
        below, above = found[index - 1], found[index]
        assert isinstance(below, Sound)
        assert isinstance(above, Sound)
        assert change.ratio.point == pytest.approx(above.value.point / below.value.point)
        assert change.ratio.point == pytest.approx(factor, rel=0.01)
        assert change.verdict == word
    doublings = [q for q in track.quantities if q.kind != SPEEDUP]
    assert len(doublings) == 3, "the baseline is in no doubling, so nothing changed there"
    words = {track.change(q, i).verdict for q in doublings for i in (1, 2)}  # type: ignore[union-attr]
    assert words <= {Outcome.NO_DIFFERENCE, Outcome.UNDECIDED}


def test_what_sweeps_of_one_version_differ_by_is_no_change(three: Study) -> None:
    """Baselines of 70 and 55 ms in one version: one of 62 ms in the next is within that."""
    first, second, third = three.folders
    study = Study(folders=(at(second, A, 1), at(third, A, 2), at(first, B, 3)))
    (track,) = tracks(study)
    change = track.change(FOUR, 1)
    assert change is not None
    assert change.ratio.low > 1.05
    assert change.verdict is Outcome.UNDECIDED


def test_two_machines_are_never_joined(three: Study) -> None:
    first, second, third = three.folders
    study = Study(folders=(at(first, A, 1), at(second, B, 2, "sha256:other"), at(third, C, 3)))
    long, short = tracks(study)
    assert [version.label for version in long.versions] == ["aaaaaaa", "ccccccc"]
    assert [version.label for version in short.versions] == ["bbbbbbb"]
    change = long.change(FOUR, 1)
    assert change is not None
    assert change.ratio.point == pytest.approx(55 / 62, rel=0.01)
    assert short.change(FOUR, 0) is None
    assert "no change to judge" in page.sentence(short)


@pytest.mark.parametrize("library", ["torch=2.99.0;transformers=5.24.0"])
def test_another_library_starts_another_track(three: Study, library: str) -> None:
    study = versions(three, A, B, C)
    folder = study.folders[1]
    results = folder.results
    assert results is not None
    systems = tuple(dataclasses.replace(row, libraries=library) for row in results.systems)
    verdict = dataclasses.replace(
        folder.verdict, results=dataclasses.replace(results, systems=systems)
    )
    changed = dataclasses.replace(folder, verdict=verdict)
    found = tracks(Study(folders=(study.folders[0], changed, study.folders[2])))
    assert sorted(len(track.versions) for track in found) == [1, 2]


def refused(folder: Folder) -> Folder:
    """The folder, had the gate refused its comparison at four slots."""
    finding = Finding(rule="PAIR005", message="another token")
    comparisons = tuple(
        RefusedComparison(
            planned=pair.planned,
            baseline=pair.baseline,
            candidate=pair.candidate,
            findings=(finding,),
        )
        if (pair.candidate.arm, pair.candidate.slots) == ("nanoserve", 4)
        else pair
        for pair in folder.verdict.comparisons
    )
    verdict = dataclasses.replace(folder.verdict, comparisons=comparisons, findings=(finding,))
    return dataclasses.replace(folder, verdict=verdict)


def retracted(folder: Folder) -> Folder:
    return dataclasses.replace(
        folder, retraction=Retraction(run=folder.name, rule="RUN018", reason="too fast")
    )


@pytest.mark.parametrize(
    ("spoil", "reason"), [(refused, "refused: PAIR005"), (retracted, "retracted by RUN018")]
)
def test_a_version_without_a_sound_figure_is_a_hole_that_nothing_crosses(
    three: Study, spoil, reason: str
) -> None:
    study = versions(three, A, B, C)
    first, second, third = study.folders
    study = Study(folders=(first, spoil(second), third))
    (track,) = tracks(study)
    missing = track.versions[1].get(FOUR)
    assert missing == Missing(reason=reason, folder=second.name)
    assert track.change(FOUR, 1) is None
    assert track.change(FOUR, 2) is None, "the version before it has no figure"
    drawing = figure.draw(track, SPEEDUP)
    found = list(csv.DictReader(io.StringIO(drawing.to_csv())))
    rows = {row["version"]: row for row in found if row["slots"] == "4"}
    assert rows["bbbbbbb"]["hole"] == reason
    assert not rows["bbbbbbb"]["value"]
    assert rows["ccccccc"]["value"]
    assert not rows["ccccccc"]["change"]
    assert f"bbbbbbb {reason}, a hole" in drawing.alt
    book = Book()
    page.write(book, study)
    text = book.files["results/history.md"].decode()
    assert f'<a href="../runs/{second.name}/">{reason}</a>' in text


def test_the_page_of_one_version_has_nothing_to_judge(one_book: Book) -> None:
    text = one_book.files["results/history.md"].decode()
    assert "One version has been measured here (0123456), so there is no change to judge." in text
    assert "<img" not in text


def test_the_sentence_is_made_of_the_verdicts(three: Study) -> None:
    (track,) = tracks(versions(three, A, B, C))
    said = page.sentence(track)
    assert said.startswith("3 versions were measured here. What changed from bbbbbbb to ccccccc")
    assert "slower for nanoserve at 1 slot, nanoserve at 2 slots" in said
    assert ". n" not in said


def test_what_other_arms_ran_beside_it_makes_no_other_version(three: Study) -> None:
    first, *_ = tracks(versions(three, A, A, A))[0].versions
    setting = dataclasses.replace(first.setting, versions=first.setting.versions[1:])
    found = [first]
    history._join(found, dataclasses.replace(first, setting=setting))
    assert len(found) == 1
    other = dataclasses.replace(first, setting=dataclasses.replace(setting, code="other"))
    history._join(found, other)
    assert len(found) == 2


def test_two_tracks_of_one_device_and_workload_are_told_apart_in_words(three: Study) -> None:
    first, second, third = three.folders
    study = Study(folders=(at(first, A, 1), at(second, A, 2, "sha256:other"), at(third, A, 3)))
    found = tracks(study)
    names = [page.name_of(track, found) for track in found]
    assert len(set(names)) == len(names) == 2
    assert any("machine other" in name for name in names)


def test_every_change_that_left_the_noise_is_listed_and_nothing_else(three: Study) -> None:
    study = versions(three, A, B, C)
    (track,) = tracks(study)
    table = views.judged([("the track", "here", track)], Linker(page="results/history.md"))
    assert table is not None
    speedups = [q for q in track.quantities if q.kind == SPEEDUP]
    assert [row[-1].text.split("\N{NO-BREAK SPACE}")[-1] for row in table] == (
        ["slower"] * len(speedups) + ["faster"] * len(speedups)
    )
    assert {row[1].href for row in table} == {"#here"}
    assert table.rows[0][2] == Text(text="bbbbbbb")
    assert table.rows[0][3].text == "ccccccc"
    same = tracks(versions(three, A, A, A))
    assert (
        views.judged([("t", "a", one) for one in same], Linker(page="results/history.md")) is None
    )


def test_what_one_version_alone_has_is_in_no_figure(three: Study) -> None:
    (track,) = tracks(versions(three, A, B, C))
    everything = [q for q in track.quantities if q.kind == SPEEDUP]
    assert figure.followed(track, SPEEDUP) == everything
    newest = track.versions[-1]
    alone = dataclasses.replace(everything[0], slots=64)
    newest.figures  # noqa: B018 - computed before it is added to
    newest.__dict__["figures"] = {**newest.figures, alone: newest.figures[everything[0]]}
    track.__dict__.pop("quantities")
    assert alone in track.quantities
    assert alone not in figure.followed(track, SPEEDUP)


def test_a_third_track_does_not_hide_what_tells_the_other_two_apart(three: Study) -> None:
    (track,) = tracks(versions(three, A, A, A))
    library = dataclasses.replace(track, kept=("torch 9",))
    machine = dataclasses.replace(track.setting, machine="sha256:other")
    found = [track, library, dataclasses.replace(track, setting=machine)]
    assert len({page.name_of(one, found) for one in found}) == len(found)
