"""Pages from one folder, three, a refused one, half a one, and none."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nanoserve_bench.plan import SkippedArm
from nanoserve_bench.schema import ROW_TYPES
from nanoserve_bench.soundness import RULES
from nanoserve_bench.soundness.kills import Attack, KillTable, kill_table
from nanoserve_report import numbers, wording
from nanoserve_report.book import Book
from nanoserve_report.pages import compose, parts
from nanoserve_report.pages.kills import lead
from nanoserve_report.setting import slug
from nanoserve_report.study import Study, load
from nanoserve_report.views import folder as folder_tables
from nanoserve_report.views import kills
from support.report_studies import BASELINE_CELL, REFUSED_CELL, ladder, said, sweep, write
from support.sound import DAY44

REPOSITORY = Path(__file__).resolve().parents[2]
ALWAYS = (
    "results/index.md",
    "results/reading.md",
    "results/devices/index.md",
    "results/runs/index.md",
    "results/refusals.md",
    "results/rules/index.md",
    "results/environment.md",
    "results/self.md",
    "results/calibration.md",
    "results/engine.md",
    "results/claims.md",
    "results/what-if.md",
    "results/history.md",
    "results/kill-table.md",
    "results/glossary.md",
)
"""The pages that the navigation names, so they exist whatever was measured."""


page = said


def everything(book: Book) -> str:
    raw = re.compile(r"/data/[^/]+$")
    return "\n".join(
        content.decode() for name, content in sorted(book.files.items()) if not raw.search(name)
    )


class Balanced(HTMLParser):
    """Whether every tag that is opened is closed in order."""

    VOID = frozenset({"img", "br", "hr", "meta", "link", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"{tag} at {self.getpos()}")


@pytest.mark.parametrize("book_name", ["one_book", "three_book", "refused_book"])
def test_pages_are_whole(book_name: str, request: pytest.FixtureRequest) -> None:
    book = request.getfixturevalue(book_name)
    assert set(ALWAYS) <= set(book.files)
    broken = book.broken_links(REPOSITORY / "docs")
    assert broken == ()
    for name, content in book.files.items():
        if name.endswith(".md"):
            parser = Balanced()
            parser.feed(content.decode())
            assert (parser.faults, parser.open) == ([], []), name
            assert content.decode().count("\n---\n") >= 1, name


def test_the_navigation_names_only_pages_that_are_always_written() -> None:
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r": (results/\S+\.md)$", text, re.MULTILINE)) == set(ALWAYS)


def test_the_overview_leads_with_the_shape(one: Study, one_book: Book) -> None:
    text = page(one_book, "results/index.md")
    assert (
        "day44, nanoserve: the last doubling worth it is 2 to 4 slots; 4 to 8 is not worth it<"
        in text
    )
    first = one.sections[0].lead.sound_marginals[0]
    shown = numbers.ratio(first.product)
    assert text.index(f"{shown.point}{shown.unit}") < text.index("The largest ratio to")
    best = max(one.sections[0].lead.sound_rivals, key=lambda pair: pair.speedup.point)
    assert numbers.ratio(best.speedup).words in text


def test_absolutes_stand_beside_the_ratio(one: Study, one_book: Book) -> None:
    cells = {cell.cell.id: cell for cell in one.sections[0].lead.sound_cells}
    text = page(one_book, "results/devices/cpu-float32.md")
    for cell in cells.values():
        shown = numbers.shown(cell.throughput)
        assert f">{shown.point} <small>" in text
        assert f">{shown.interval}</small>" in text
    assert "vs hf-generate" in text


def test_prefill_beyond_one_slot_is_labelled_in_company(one_book: Book) -> None:
    text = page(one_book, "results/devices/cpu-float32.md")
    assert text.count(">in company</td>") == 3
    assert text.count(">alone</td>") == 1


def test_the_occupancy_gotcha_is_told_with_its_own_value(one: Study, one_book: Book) -> None:
    cell = next(
        c
        for c in one.sections[0].lead.sound_cells
        if (c.cell.arm, c.cell.slots) == ("nanoserve", 1)
    )
    value = numbers.significant(cell.system_occupancy.point)
    assert f"reads a system occupancy of {value} requests" in page(one_book, "results/index.md")


def test_a_refused_comparison_has_no_number_on_any_page(
    one: Study, one_book: Book, refused_book: Book
) -> None:
    sound = next(
        pair for pair in one.sections[0].lead.sound_rivals if pair.planned.candidate == REFUSED_CELL
    )
    doubling = next(m for m in one.sections[0].lead.sound_marginals if m.lower.slots == 1)
    before, after = everything(one_book), everything(refused_book)
    for estimate in (sound.speedup, doubling.product):
        shown = numbers.ratio(estimate)
        for text in (f"{shown.point}{shown.unit}", shown.words, repr(estimate.point)):
            assert text in before
            assert text not in after
    assert "refused: PAIR005" in after
    said = "No ratio, speedup or rate of what was refused is stated as a result"
    assert said in page(refused_book, "results/refusals.md")


def test_the_refusals_page_names_rule_arm_cell_request_and_position(refused_book: Book) -> None:
    text = page(refused_book, "results/refusals.md")
    place = "block 3, request r4, position 7; requests.csv, row"
    for part in ("PAIR005", f"{REFUSED_CELL} against {BASELINE_CELL}", place):
        assert part in text


def test_every_folder_has_its_page_evidence_and_raw_files(three: Study, three_book: Book) -> None:
    for folder in three.folders:
        stem = f"results/runs/{folder.name}"
        text = page(three_book, f"{stem}.md")
        for outcome in folder.verdict.outcomes:
            assert f">{outcome.code}</a>" in text
            assert f">{outcome.examined:,}<" in text
        for row_type in ROW_TYPES:
            raw = three_book.files[f"{stem}/data/{row_type.FILE}"]
            assert raw == (folder.verdict.path / row_type.FILE).read_bytes()


def test_every_trial_stands_on_its_page(one: Study, one_book: Book) -> None:
    text = page(one_book, f"results/runs/{one.folders[0].name}.md")
    for cell in one.sections[0].lead.sound_cells:
        for run in cell.runs.values():
            assert f">{float(run.throughput):,.4f}<" in text


def test_the_median_of_all_gaps_stands_beside_each_trial(one: Study, one_book: Book) -> None:
    text = page(one_book, f"results/runs/{one.folders[0].name}.md")
    for cell in one.sections[0].lead.sound_cells:
        for run in cell.runs.values():
            gaps = sorted(
                later - earlier
                for record in run.records
                for earlier, later in zip(record.token_ns, record.token_ns[1:], strict=False)
            )
            middle = len(gaps) // 2
            median = gaps[middle] if len(gaps) % 2 else (gaps[middle - 1] + gaps[middle]) / 2
            assert f">{median / 1e6:,.3f}<" in text


def test_the_device_page_says_where_the_slots_time_went(one_book: Book) -> None:
    text = page(one_book, "results/devices/cpu-float32.md")
    for part in ("ramp", "starvation", "drain", "idle"):
        assert f">{part}<" in text


def test_every_rule_has_a_page(one_book: Book) -> None:
    for rule in RULES:
        assert rule.code in page(one_book, f"results/rules/{rule.code.lower()}.md")


def test_the_kill_table_counts_what_it_shows(one_book: Book) -> None:
    table, text = kill_table(), page(one_book, "results/kill-table.md")
    assert (
        f"{len(table.mutants)} mutants of {len(RULES)} rules: {len(table.mutants)} killed" in text
    )
    assert text.count(">accepted<") == len(table.controls)
    assert "survives" not in text
    for attack in (*table.mutants, *table.controls):
        assert f">{attack.name}</td>" in text or f">{attack.name}</th>" in text


def test_a_rule_shows_its_mutants_and_links_to_all(one_book: Book) -> None:
    text = page(one_book, "results/rules/pair006.md")
    names = {attack.name for attack in kill_table().of("PAIR006")}
    assert len(names) > 3
    assert all(f">{name}</th>" in text for name in names)
    assert "kill-table/#pair" in text


def test_a_survivor_would_be_shown_as_one(one_book: Book) -> None:
    attack = Attack(rule="RUN001", name="a", story="b", refused_by=("RUN002",))
    row = [cell.text for cell in kills.of_rule([attack]).rows[0]]
    assert row == ["a", "b", "not by it: it survives", "RUN002"]
    refused = Attack(rule="", name="c", story="d", refused_by=("RUN002",))
    assert kills.controls([refused]).rows[0][2].text == "refused: RUN002"
    line = lead(KillTable(mutants=(attack,), controls=(refused,)))
    assert line.startswith("1 mutant of 1 rule: 0 killed by the rule meant for them, 0 of these by")
    assert line.endswith("1 clean control: 0 accepted.")


def test_half_a_folder_is_shown_as_such(tmp_path: Path) -> None:
    half = sweep(1)
    root = write(tmp_path, sweep())
    half.write(root / half.plan.run_id, finish=False)
    book = compose(load(root))
    assert "refused as a whole" in page(book, "results/index.md")
    assert half.plan.run_id in page(book, "results/refusals.md")
    assert "refused as a whole" in page(book, f"results/runs/{half.plan.run_id}.md")


def test_an_empty_root_makes_a_site_that_says_so(tmp_path: Path) -> None:
    book = compose(load(tmp_path))
    assert set(ALWAYS) <= set(book.files)
    assert "There is nothing sound to show" in page(book, "results/index.md")
    assert not [name for name in book.files if "/figures/" in name]


def test_a_folder_that_is_a_broken_file_is_shown(tmp_path: Path) -> None:
    (tmp_path / "20260101-cpu").mkdir()
    text = page(compose(load(tmp_path)), "results/refusals.md")
    assert "is an empty folder" in text


def test_names_from_a_folder_cannot_become_markup(tmp_path: Path) -> None:
    (tmp_path / "<img src=x onerror=alert(1)>`$x$`").mkdir()
    book = compose(load(tmp_path))
    assert "<img src=x" not in everything(book)


def test_no_page_knows_where_it_was_built(one_root: Path, one_book: Book) -> None:
    assert str(one_root) not in everything(one_book)


def test_a_hole_is_a_dash_with_its_reason_and_never_a_zero(refused_book: Book) -> None:
    text = page(refused_book, "results/devices/cpu-float32.md")
    holes = re.findall(r'<td class="ns-hole" data-sort=""[^>]*>(.*?)</td>', text)
    assert holes
    for hole in holes:
        assert "&mdash;" in hole
        assert len(re.sub(r"<[^>]+>|&mdash;", "", hole).strip()) > 5


def test_an_arm_that_could_not_run_is_named_with_its_reason(tmp_path: Path) -> None:
    study = sweep()
    everywhere = SkippedArm(
        arm="a-rival", system="vllm", device=None, dtype=None, reason="no wheel for <this> machine"
    )
    here = dataclasses.replace(everywhere, arm="b-rival", device="cuda:0", dtype="bfloat16")
    study.plan = dataclasses.replace(study.plan, skipped_arms=(everywhere, here))
    book = compose(load(write(tmp_path / "results", study)))
    text = page(book, f"results/runs/{study.plan.run_id}.md")
    assert "<strong>a-rival</strong>: no wheel for &lt;this&gt; machine" in text
    assert "<strong>b-rival</strong> on cuda:0, bfloat16: " in text


def test_figures_have_their_data_one_click_away(one_book: Book) -> None:
    figures = [name for name in one_book.files if re.search(r"/figures/.+\.svg$", name)]
    assert len(figures) >= 5
    for name in figures:
        rows = list(csv.reader(io.StringIO(one_book.files[f"{name[:-4]}.csv"].decode())))
        assert len(rows) > 1
    text = page(one_book, "results/devices/cpu-float32.md")
    assert text.count("Data (CSV)") == text.count("<img ")
    assert all(len(alt) > 60 for alt in re.findall(r'<img [^>]*alt="([^"]*)"', text))


@pytest.mark.parametrize("book_name", ["one_book", "three_book", "refused_book"])
def test_every_address_of_a_page_is_there_once(
    book_name: str, request: pytest.FixtureRequest
) -> None:
    """Rows have addresses; two of one name would lead a reader to the wrong number."""
    book = request.getfixturevalue(book_name)
    rows = 0
    for name, content in book.files.items():
        if not name.endswith(".md"):
            continue
        text = content.decode()
        found = re.findall(r' id="([^"]+)"|\{#([^}]+)\}', text)
        names = [first or second for first, second in found]
        assert len(set(names)) == len(names), name
        linked = re.findall(r'<a class="ns-row" href="#([^"]+)"', text)
        assert set(linked) <= set(names), name
        rows += len(linked)
    assert rows > 30


def test_a_row_of_a_run_is_found_by_its_cell(one: Study, one_book: Book) -> None:
    device = one_book.files["results/devices/cpu-float32.md"].decode()
    assert "The name of a row is a link to it." in device
    text = one_book.files[f"results/runs/{slug(one.folders[0].name)}.md"].decode()
    assert "<code>nox -s bench --</code> with the options of that line" in text
    for address in (
        "cpu-float32-day44-throughput-nanoserve-8",
        "cpu-float32-day44-doublings-nanoserve-4-8",
        "cpu-float32-day44-factors-nanoserve-8-slots-hf-generate-1-slot",
    ):
        assert f'<tr id="{address}">' in text


def test_the_versions_stand_where_the_numbers_do(one: Study, one_book: Book) -> None:
    for name in ("results/index.md", "results/devices/cpu-float32.md"):
        text = page(one_book, name)
        assert "Versions: hf-generate 5.24.0, nanoserve 0.1.0" in text
        assert ", measured at revision 0123456." in text


def test_a_sweep_without_doublings_is_headed_by_what_it_found(tmp_path: Path) -> None:
    alone = dataclasses.replace(DAY44, slots=(1,))
    (section,) = load(write(tmp_path, sweep(workload=alone))).sections
    said = parts.headline(section.lead)
    assert said == "day44: at 1 slot nanoserve is faster than hf-generate"
    assert wording.standing(dataclasses.replace(section.lead, planned=())) == ""


def test_a_table_says_how_much_of_it_is_left_out(
    one: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = one.folders
    whole = folder_tables.contention(folder)
    monkeypatch.setattr(folder_tables, "MOST_CONTENTION", 5)
    cut = folder_tables.contention(folder)
    assert whole is not None
    assert cut is not None
    assert cut.rows == whole.rows[:5]
    assert "raw files" not in whole.caption
    assert (
        cut.caption
        == f"{whole.caption}: 5 of {len(whole.rows)}; the others are in the raw files below"
    )


def test_a_device_with_many_cells_has_pages_for_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = sweep(1)
    plain.plan = dataclasses.replace(plain.plan, created_at="2025-02-01T00:00:00+00:00")
    study = load(write(tmp_path, ladder(), plain))
    (device,) = study.devices
    first, second = device.sections
    whole = compose(study).files["results/devices/cpu-float32.md"].decode()
    assert f'id="{second.setting.short}-split-' in whole
    monkeypatch.setattr(parts, "MOST_CELLS", 1)
    book = compose(study)
    assert book.broken_links(REPOSITORY / "docs") == ()
    both = page(book, "results/devices/cpu-float32.md")
    own = page(book, f"results/devices/cpu-float32/{second.slug}.md")
    assert f"results/devices/cpu-float32/{first.slug}.md" not in book.files
    for text, has in ((both, False), (own, True)):
        assert f'id="{second.setting.short}-throughput-nanoserve-8"' in text
        assert (f'id="{second.setting.short}-split-nanoserve-8"' in text) == has
    assert f'id="{first.setting.short}-split-nanoserve-8"' in both
    assert first.setting.short not in own
    assert f'href="{second.slug}/">All numbers and figures of' in both
    assert f"devices/cpu-float32/{second.slug}/#{second.slug}" in page(book, "results/index.md")
