"""The judged study: every folder stands in it, sound or not, and nothing is believed unjudged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.plan import Fact, SkippedDevice
from nanoserve_bench.soundness import judge_path
from nanoserve_report.pages import compose, overview, parts
from nanoserve_report.setting import slug
from nanoserve_report.study import Study, StudyError, load
from nanoserve_report.sweeps import Folder, Status
from support import sound
from support.report_studies import (
    BASELINES_MS,
    REFUSED_CELL,
    diverge,
    ladder,
    said,
    step_ms,
    sweep,
    write,
)


def test_a_sound_folder_is_sound(one: Study) -> None:
    assert [folder.status for folder in one.folders] == [Status.SOUND]
    assert one.ok
    sweep_ = one.sections[0].lead
    assert [cell.cell.arm for cell in sweep_.cells][:2] == ["hf-generate", "hf-generate-again"]
    assert len(sweep_.sound_rivals) == 4
    assert len(sweep_.selves) == 1
    assert len(sweep_.sound_marginals) == 3


def test_three_folders_of_one_setting_make_one_section(three: Study) -> None:
    (section,) = three.sections
    assert [s.name for s in section.sweeps] == [folder.name for folder in three.folders]
    assert section.lead.name == three.folders[-1].name


def test_a_refusal_is_a_hole_and_the_rest_stands(refused: Study) -> None:
    assert not refused.ok
    assert refused.folders[0].status is Status.REFUSED
    pairs = refused.sections[0].lead.comparisons
    holes = [pair for pair in pairs if not hasattr(pair, "speedup")]
    assert [pair.planned.candidate for pair in holes] == [REFUSED_CELL]


def test_an_acknowledged_refusal_keeps_the_light_green(acknowledged_root: Path) -> None:
    study = load(acknowledged_root)
    assert study.ok
    assert study.folders[0].status is Status.ACKNOWLEDGED
    assert study.findings


def test_a_half_written_folder_is_shown_with_its_findings(tmp_path: Path) -> None:
    half = sweep()
    half.write(tmp_path / half.plan.run_id, finish=False)
    study = load(tmp_path)
    assert study.folders[0].status is Status.UNREADABLE
    assert study.findings
    assert not study.sections


@pytest.mark.parametrize("name", ["requests.csv", "plan.json", "manifest.json", "outputs.csv"])
def test_a_missing_file_refuses_the_whole_folder(tmp_path: Path, name: str) -> None:
    root = write(tmp_path, sweep())
    (next(root.iterdir()) / name).unlink()
    study = load(root)
    assert study.folders[0].status is Status.UNREADABLE
    assert any(finding.file == name for _, finding in study.findings)


def test_a_root_that_is_no_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not a folder"):
        load(tmp_path / "missing")


def test_an_empty_root_is_not_ok(tmp_path: Path) -> None:
    assert not load(tmp_path).ok


def test_hidden_entries_and_loose_files_are_not_folders(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("x\n")
    assert load(tmp_path).folders == ()


def test_a_slug_can_stand_in_a_path() -> None:
    assert slug("../CUDA:0 <b>/") == "..-cuda-0-b"
    assert slug("///") == "unnamed"


def test_the_newest_sweep_leads_whatever_it_says(tmp_path: Path) -> None:
    """Slower, and with holes: what was measured has no part in the choice."""
    newer = sweep(1, step_ms=step_ms(BASELINES_MS[2] / 2))
    diverge(newer)
    study = load(write(tmp_path, sweep(0), newer))
    section = study.sections[0]
    assert section.lead.name == study.folders[-1].name == newer.plan.run_id
    assert len(section.lead.sound_rivals) < len(section.lead.rivals)


def libraries(study):
    study.edit("systems", lambda row: dataclasses.replace(row, libraries="torch=2.14.0"))


def threads(study):
    study.edit("systems", lambda row: dataclasses.replace(row, threads=4))


def revision(study):
    study.plan = dataclasses.replace(study.plan, revision="f" * 40)


def version(study):
    arms = tuple(
        dataclasses.replace(arm, version="5.25.0") if arm.system == "hf-generate" else arm
        for arm in study.plan.arms
    )
    study.plan = dataclasses.replace(study.plan, arms=arms)


def sources(study):
    study.facts = (*study.facts, Fact(name="sources", value="e" * 64))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (libraries, "torch 2.14.0"),
        (threads, "4 threads"),
        (revision, "revision fffffff"),
        (version, "hf-generate 5.25.0"),
        (sources, "sources eeeeeee"),
    ],
)
def test_what_ran_otherwise_is_another_setting(tmp_path: Path, change, words: str) -> None:
    other = sweep(1)
    other.plan = dataclasses.replace(other.plan, created_at="2026-02-01T00:00:00+00:00")
    change(other)
    study = load(write(tmp_path, sweep(0), other))
    newer, older = study.sections
    assert newer.lead.name == other.plan.run_id, "the newest first"
    assert newer.slug != older.slug
    page = dataclasses.replace(study.devices[0], sections=study.sections)
    names = [parts.section_name(section, page) for section in page.sections]
    assert words in names[0]
    assert names[0] != names[1]


def test_a_rival_tells_a_section_apart_without_all_that_it_brings_along(tmp_path: Path) -> None:
    """Its libraries would make a heading of several lines."""
    plain = sweep(1)
    plain.plan = dataclasses.replace(plain.plan, created_at="2025-02-01T00:00:00+00:00")
    study = load(write(tmp_path, ladder(), plain))
    (page,) = study.devices
    names = [parts.section_name(section, page) for section in page.sections]
    assert sorted(names) == ["day44", "day44, hf-static, strong"]


@pytest.mark.parametrize(
    ("change", "slots", "shown"),
    [
        (revision, (1, 2, 4, 8), 1),
        (sources, (1, 2, 4, 8), 1),
        (revision, (1, 2), 2),
        (libraries, (1, 2, 4, 8), 2),
        (threads, (1, 2, 4, 8), 2),
        (version, (1, 2, 4, 8), 2),
    ],
)
def test_newer_code_takes_the_place_of_older_where_all_its_cells_were_planned_again(
    tmp_path: Path, change, slots: tuple[int, ...], shown: int
) -> None:
    """A page with every version that there ever was would say the same thing over and over."""
    other = sweep(1, workload=dataclasses.replace(sound.DAY44, slots=slots))
    other.plan = dataclasses.replace(other.plan, created_at="2026-02-01T00:00:00+00:00")
    change(other)
    study = load(write(tmp_path, sweep(0), other))
    (page,) = study.devices
    assert len(study.sections) == 2
    newer, older = study.sections
    assert len(page.sections) == shown
    assert page.replaced[newer.setting] == ((older,) if shown == 1 else ())
    if shown == 1:
        assert page.sections == (newer,)
        text = compose(study).files["results/devices/cpu-float32.md"].decode()
        assert "measured with 1 earlier version: <a href" in text
        assert older.slug not in text


def test_an_earlier_version_still_says_whether_it_reproduced(tmp_path: Path) -> None:
    other = sweep(2)
    other.plan = dataclasses.replace(other.plan, created_at="2026-02-01T00:00:00+00:00")
    revision(other)
    study = load(write(tmp_path, sweep(0), sweep(1), other))
    (page,) = study.devices
    (newest,) = page.sections
    assert [sweep_.name for sweep_ in newest.sweeps] == [other.plan.run_id]
    tried = overview.most_swept(page, newest)
    assert tried is page.replaced[newest.setting][0]
    assert parts.section_name(tried, page) == "day44, revision 0123456"


def test_two_commits_of_the_same_sources_are_one_setting(tmp_path: Path) -> None:
    studies = [sweep(0), sweep(1)]
    for study in studies:
        sources(study)
    revision(studies[1])
    assert len(load(write(tmp_path, *studies)).sections) == 1


@pytest.mark.parametrize(
    ("skipped", "shown"),
    [("cuda:1", True), ("cuda:0", False), ("cuda", False), ("mps", True)],
)
def test_a_card_is_settled_by_itself_and_a_kind_by_any_card_of_it(
    tmp_path: Path, skipped: str, shown: bool
) -> None:
    study = sweep(device="cuda:0")
    hole = SkippedDevice(device=skipped, reason="it is broken")
    study.plan = dataclasses.replace(study.plan, skipped_devices=(hole,))
    assert load(write(tmp_path, study)).skipped == ((hole,) if shown else ())


def test_a_newer_study_without_doublings_does_not_lead(tmp_path: Path) -> None:
    alone = sweep(1)
    variant = {"hf-generate": "hf-generate", "hf-generate-again": "hf-generate-untimed"}
    cells = tuple(
        dataclasses.replace(cell, system=variant[cell.arm])
        for cell in alone.plan.cells
        if cell.arm in variant
    )
    names = {cell.id for cell in cells}
    alone.plan = dataclasses.replace(
        alone.plan,
        created_at="2026-01-01T00:00:01+00:00",
        arms=tuple(
            dataclasses.replace(arm, system=variant[arm.name])
            for arm in alone.plan.arms
            if arm.name in variant
        ),
        cells=cells,
        comparisons=tuple(p for p in alone.plan.comparisons if p.candidate in names),
        orders=tuple(tuple(c for c in order if c in names) for order in alone.plan.orders),
    )
    for table in ("trials", "requests", "steps"):
        alone.edit(table, lambda row: None, where=lambda row: row.cell not in names)
    alone.edit("systems", lambda row: None, where=lambda row: row.arm not in variant)
    alone.edit("systems", lambda row: dataclasses.replace(row, system=variant[row.arm]))
    for index, block in enumerate(alone.blocks):
        trials = tuple(dataclasses.replace(t, order=n) for n, t in enumerate(block.trials))
        alone.blocks[index] = dataclasses.replace(block, trials=trials)
    study = load(write(tmp_path, sweep(0), alone))
    first, second = study.sections
    assert (first.lead.name, second.lead.name) == ("20260101-cpu-day44-0123456", alone.plan.run_id)
    assert second.lead.sound_cells, second.lead.folder.verdict.findings
    book = compose(study)
    words = "No doubling of the slots was planned here"
    assert words not in said(book, "results/index.md")
    assert said(book, "results/devices/cpu-float32.md").count(words) == 1


def test_what_doubles_from_one_slot_leads_a_newer_study_that_doubles_from_more() -> None:
    """The ladder is the newest plan and begins at four slots; the stamps' cost doubles nothing."""
    results = Path(__file__).parents[2] / "bench" / "results"
    names = ("cpu-timing-1044770", "cpu-day44-1044770", "cpu-full-1044770", "cpu-ladder-095b70a")
    folders = [Folder(name=n, verdict=judge_path(results / f"20261130-{n}")) for n in names]
    folders.sort(key=lambda folder: folder.created_at)
    assert folders[-1].name == "cpu-ladder-095b70a"
    shown = [
        (section.lead.name, section.setting.workload)
        for section in Study(folders=tuple(folders)).sections
    ]
    assert shown == [
        ("cpu-full-1044770", "day44"),
        ("cpu-full-1044770", "day44x32"),
        ("cpu-ladder-095b70a", "day44"),
        ("cpu-timing-1044770", "day44"),
    ]


def test_noise_recorded_for_its_own_sake_has_no_section_beside_others() -> None:
    """The A/A study of the calibration leads nowhere and renames nothing; alone it is shown."""
    results = Path(__file__).parents[2] / "bench" / "results"
    noise, timing = (
        Folder(name=name, verdict=judge_path(results / name))
        for name in ("20261130-cpu-self-76c9dd8", "20261130-cpu-timing-1044770")
    )
    assert [sweep.only_noise for sweep in (*noise.sweeps, *timing.sweeps)] == [True, False]
    both = Study(folders=(timing, noise))
    assert both.sections == Study(folders=(timing,)).sections
    assert len(both.sections) == 1
    (alone,) = Study(folders=(noise,)).sections
    assert alone.sweeps == noise.sweeps
