"""The files of the speed table: what is written is read, and what was changed is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from nanoserve_bench.errors import PlanError
from nanoserve_bench.perf.figures import figure_rows
from nanoserve_bench.perf.files import (
    DOCUMENT,
    read_perf,
    read_profile,
    read_run,
    write_profile,
    write_run,
)
from nanoserve_bench.perf.profile import SCHEMA_VERSION, Profile, ProfileRow, joined
from nanoserve_bench.record_files import RecordError
from support.perf_runs import perf_run


def profile() -> Profile:
    row = ProfileRow(
        variant="one way",
        rows=8,
        context=48,
        phase="step",
        seconds=0.02,
        low=0.019,
        high=0.021,
        repetitions=60,
        how="a stopwatch",
    )
    missing = dataclasses.replace(row, seconds=None, low=None, high=None, how="no compiler")
    return Profile(
        schema=SCHEMA_VERSION,
        run_id="20260101-abc",
        created_at="2026-01-01T00:00:00+00:00",
        revision=None,
        dirty=None,
        sources="def",
        model="a model",
        machine="this",
        threads=2,
        facts=(),
        disturbed=(),
        rows=(row, missing),
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    run = perf_run()
    write_run(tmp_path, run)
    perf = read_perf(tmp_path)
    assert perf.run == run
    assert perf.figures == figure_rows(run)
    assert perf.profile is None
    write_profile(tmp_path, profile())
    assert read_perf(tmp_path).profile == read_profile(tmp_path) == profile()


def test_a_table_that_disagrees_with_what_was_measured_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, perf_run())
    table = tmp_path / "perf.csv"
    text = table.read_text()
    line = next(line for line in text.splitlines() if line.startswith("speedup-8,"))
    table.write_text(text.replace(line, line.replace("20.0", "2.0", 1)))
    with pytest.raises(RecordError, match=r"perf\.csv: row 3, column goal: says 2\.0"):
        read_perf(tmp_path)
    table.write_text("\n".join(text.splitlines()[:-1]) + "\n")
    with pytest.raises(RecordError, match="has 19 rows, and what was measured gives 20"):
        read_perf(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d | {"schema": 2}, "has schema 2, and this reader knows 1"),
        (lambda d: d | {"extra": 1}, "extra: is an unknown key"),
        (lambda d: {k: v for k, v in d.items() if k != "seed"}, "seed: is missing"),
        (lambda d: d | {"threads": "two"}, "threads: is not int"),
    ],
)
def test_a_damaged_document_is_refused_with_the_place(
    tmp_path: Path, change: object, message: str
) -> None:
    write_run(tmp_path, perf_run())
    path = tmp_path / DOCUMENT
    path.write_text(json.dumps(change(json.loads(path.read_text()))))  # type: ignore[operator]
    with pytest.raises(RecordError, match=message):
        read_run(tmp_path)


def test_all_bad_cells_are_named_at_once(tmp_path: Path) -> None:
    write_run(tmp_path, perf_run())
    table = tmp_path / "perf.csv"
    header, first, *_ = table.read_text().splitlines()
    bad = first.replace("2.8", "NaN", 1).replace(",0,", ",yes,", 1)
    table.write_text(f"{header}\n{bad}\ntoo,few\n")
    with pytest.raises(RecordError) as caught:
        read_perf(tmp_path)
    text = str(caught.value)
    assert "3 fault(s)" in text
    assert "row 2, column goal: 'NaN' is not a finite number" in text
    assert "row 3: has 2 cells" in text


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"perf\.json cannot be read"):
        read_run(tmp_path)
    write_run(tmp_path, perf_run())
    (tmp_path / "perf.csv").write_text("a,b\n")
    with pytest.raises(RecordError, match="row 1: the columns are not figure, title"):
        read_perf(tmp_path)


def test_a_profile_whose_table_was_changed_is_refused(tmp_path: Path) -> None:
    write_profile(tmp_path, profile())
    table = tmp_path / "profile.csv"
    table.write_text(table.read_text().replace("0.02", "0.03", 1))
    with pytest.raises(RecordError, match="says something else than"):
        read_profile(tmp_path)


def test_variants_may_be_taken_one_after_the_other() -> None:
    first = dataclasses.replace(profile(), disturbed=("one way: a neighbour", "b: another"))
    other = dataclasses.replace(first.rows[0], variant="b")
    first = dataclasses.replace(first, rows=(*first.rows, other))
    again = dataclasses.replace(profile(), rows=(dataclasses.replace(profile().rows[0], rows=9),))
    both = joined(first, again)
    assert [(row.variant, row.rows) for row in both.rows] == [("b", 8), ("one way", 9)]
    assert both.disturbed == ("b: another",)
    with pytest.raises(PlanError, match="profile with other sources"):
        joined(first, dataclasses.replace(again, sources="others"))
