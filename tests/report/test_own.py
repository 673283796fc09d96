"""The page of the engine itself: numbers from folders that stand, and from no other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.perf.files import write_profile, write_run
from nanoserve_bench.perf.profile import SCHEMA_VERSION, Profile, ProfileRow
from nanoserve_bench.perf.records import Hole, PrefixDigest
from nanoserve_bench.soak.cases import Case
from nanoserve_bench.soak.records import CaseRow, Soak, write_soak
from nanoserve_report.book import Book
from nanoserve_report.own import read
from nanoserve_report.pages import own as pages
from nanoserve_report.study import Study
from support.perf_runs import perf_run, with_trials

PHASES = {"step": 50.0, "model": 48.0, "linears": 30.0, "sampler": 0.5, "one read": 20.0}


def page(folder: Path) -> str:
    book = Book()
    pages.write(book, Study(folders=(), own=read(folder)))
    return book.files[pages.PAGE].decode()


def phases(variant: str, factor: float, *, rows: int = 8) -> list[ProfileRow]:
    return [
        ProfileRow(
            variant=variant,
            rows=rows,
            context=48,
            phase=phase,
            seconds=factor * ms / 1e3,
            low=None,
            high=None,
            repetitions=60,
            how="a stopwatch",
        )
        for phase, ms in PHASES.items()
    ]


def profile() -> Profile:
    slow = phases("torch.compile, plain products", 1.6)
    slow.append(dataclasses.replace(slow[1], phase="model, not compiled", seconds=0.09216))
    failed = dataclasses.replace(
        slow[1], rows=32, seconds=None, repetitions=0, how="there is no compiler"
    )
    return Profile(
        schema=SCHEMA_VERSION,
        run_id="20260102-abc",
        created_at="2026-01-02T00:00:00+00:00",
        revision="abcdef0123",
        dirty=False,
        sources="def",
        model="a model",
        machine="this",
        threads=2,
        facts=(),
        disturbed=("compiled kernels: a neighbour",),
        rows=(
            *phases("torch, plain products", 2.0),
            *slow,
            failed,
            *phases("compiled kernels", 0.5),
        ),
    )


def soak(*, finding: str, bugs: int) -> Soak:
    case = CaseRow(
        case="tiny-cache",
        settings="8 slots",
        kernel_path="cpp",
        requests=200,
        tokens=2500,
        identical=200 - bugs,
        near_ties=0,
        bugs=bugs,
        preemptions=7,
        chunks=0,
        cached_tokens=0,
        most_rows=8,
        finding=finding,
        note=None,
    )
    return Soak(
        schema=1,
        run_id="20260103-abc",
        created_at="2026-01-03T00:00:00+00:00",
        revision=None,
        dirty=None,
        sources="def",
        model="a model",
        model_source="sha256:0",
        machine="this",
        threads=2,
        seed=44,
        facts=(),
        reference="transformers 5",
        requests=200,
        complete=True,
        cases=(case,),
        differences=(),
    )


def test_every_goal_stands_with_its_verdict_and_both_sides(tmp_path: Path) -> None:
    write_run(tmp_path / "perf" / "a", perf_run())
    text = page(tmp_path)
    assert "Of 20 figures: 18 met and 2 missed." in text
    assert "8 slots against hf-generate" in text
    assert "24.0\N{MULTIPLICATION SIGN}" in text  # 240 over 10 tok/s
    assert "25.0\N{NO-BREAK SPACE}GB/s" in text  # the read bandwidth
    assert "ns-banner-bad" in text


def test_a_short_run_shows_its_rounds_and_says_once_why_it_decides_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "perf" / "a", perf_run(3))
    text = page(tmp_path)
    assert "Of 20 figures: 20 undecided." in text
    assert text.count("3 rounds; a verdict needs 5") == 2  # and once with the absent rivals
    assert '<a href="#speed-note-1">undecided, note 1</a>' in text
    assert '<li id="speed-note-1">Note 1 (' in text
    assert "6 readings of this run lie between 24.0 and 25.0 GB/s" in text
    assert "allows 1.5 times the highest reading" in text


def test_pieces_that_do_not_add_up_are_explained(tmp_path: Path) -> None:
    taken = profile()
    rest = dataclasses.replace(
        taken.rows[-1], phase="rest of the model", seconds=-0.00086, how="the difference"
    )
    write_profile(tmp_path / "perf" / "a", dataclasses.replace(taken, rows=(*taken.rows, rest)))
    text = page(tmp_path)
    assert "starts a parallel region of its own" in text
    assert "as here with -0.86 ms at 8 rows" in text


def test_a_refused_figure_and_a_hole_have_their_reason_and_no_number(tmp_path: Path) -> None:
    other = (PrefixDigest(requests=6, sha256="another"),)
    run = with_trials(
        perf_run(),
        lambda t: (
            None
            if t.arm in {"vllm", "openvino"}
            else dataclasses.replace(t, outputs=other)
            if (t.arm, t.slots) == ("nanoserve", 8)
            else t
        ),
    )
    holes = tuple(
        Hole(round=None, arm=arm, reason="no environment")
        for arm in ("vllm", "openvino", "onnxruntime", "llamacpp")
    )
    write_run(tmp_path / "perf" / "a", dataclasses.replace(run, holes=holes))
    text = page(tmp_path)
    assert "the tokens of nanoserve (8 slots) differ" in text
    assert "vllm: no environment" in text
    assert "24.0\N{MULTIPLICATION SIGN}" not in text


def test_the_newest_table_is_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "perf" / "b", perf_run())
    later = dataclasses.replace(
        perf_run(factors=(2,) * 5), created_at="2026-02-01T00:00:00+00:00", run_id="newer"
    )
    write_run(tmp_path / "perf" / "a", later)
    text = page(tmp_path)
    assert "48.0\N{MULTIPLICATION SIGN}" in text
    assert "24.0\N{MULTIPLICATION SIGN}" not in text


def test_the_profile_says_what_each_change_was_worth(tmp_path: Path) -> None:
    write_profile(tmp_path / "perf" / "a", profile())
    text = page(tmp_path)
    # Another interpreter: against the same pass in the same process.
    assert "from 92.16 ms to 76.80 ms." in text
    assert "from 96.00 ms to 24.00 ms; disturbed: no ratio." in text  # the kernels
    assert "compiled kernels, disturbed" in text
    assert "\N{MULTIPLICATION SIGN}" not in text
    assert "starts a parallel region of its own" not in text  # nothing was taken apart
    assert (
        "the compiled forward pass takes 24.00 ms, and one read of as many bytes as the weights "
        "have, after each step, 10.00 ms; disturbed." in text
    )
    assert "there is no compiler" in text
    assert "Disturbed: compiled kernels: a neighbour" in text


@pytest.mark.parametrize(
    ("finding", "bugs", "tone"),
    [("identical", 0, "good"), ("bug", 3, "bad"), ("unproven", 0, "bad")],
)
def test_a_soak_is_good_only_where_every_case_is(
    tmp_path: Path, finding: str, bugs: int, tone: str
) -> None:
    write_soak(tmp_path / "soak" / "a", soak(finding=finding, bugs=bugs))
    text = page(tmp_path)
    assert f"{200 - bugs} of 200 outputs are token for token those of transformers 5" in text
    assert f'ns-banner-{tone}">{200 - bugs}' in text
    assert ("1 case did not do what it is there for" in text) == (finding == "unproven")


def test_a_folder_that_was_changed_has_no_numbers(tmp_path: Path) -> None:
    write_run(tmp_path / "perf" / "a", perf_run())
    table = tmp_path / "perf" / "a" / "perf.csv"
    table.write_text(table.read_text().replace("20.0", "2.0", 1))
    text = page(tmp_path)
    assert "perf/a is refused" in text
    assert "hf-generate" not in text


def test_without_records_the_page_says_how_to_get_them(tmp_path: Path) -> None:
    text = page(tmp_path)
    for command in ("nanoserve-bench perf", "perf --profile", "nanoserve-bench soak"):
        assert command in text
    assert "Nothing of the engine itself was measured here so far." in text
    write_soak(tmp_path / "soak" / "a", soak(finding="identical", bugs=0))
    assert "Whether the tokens stay the reference&#39;s under hostile settings." in page(tmp_path)


def test_one_slot_is_no_slots_in_records_of_any_age(tmp_path: Path) -> None:
    record = soak(finding="identical", bugs=0)
    (case,) = record.cases
    cases = tuple(
        dataclasses.replace(case, case=f"slots-{n}", settings=f"{n} slots, kernel auto")
        for n in (1, 11)
    )
    write_soak(tmp_path / "soak" / "a", dataclasses.replace(record, cases=cases))
    text = page(tmp_path)
    assert ">1 slot, kernel auto<" in text
    assert ">11 slots, kernel auto<" in text
    assert Case(name="one", slots=1).settings().startswith("1 slot, ")
    assert Case(name="two", slots=2).settings().startswith("2 slots, ")
