"""Which soak goes on: the same code, machine and prompts, and nothing done that is not wanted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nanoserve_bench.plan import Fact
from nanoserve_bench.soak.cases import QUICK, Request, draw
from nanoserve_bench.soak.records import (
    SCHEMA_VERSION,
    AnswerRow,
    CaseRow,
    Finding,
    Soak,
    write_answers,
    write_soak,
)
from nanoserve_bench.soak.resume import Begun, answer_row, begin
from nanoserve_bench.workload import Vocabulary

VOCABULARY = Vocabulary(size=200, special=frozenset({0, 1}))
REQUESTS = draw(QUICK, VOCABULARY, 44)
ANSWERS = tuple(answer_row(index, each, [7, 8]) for index, each in enumerate(REQUESTS))
CASES = {"slots-1", "slots-3"}
PLANNED = Soak(
    schema=SCHEMA_VERSION,
    run_id="20260102-abc",
    created_at="2026-01-02T00:00:00+00:00",
    revision="abc",
    dirty=False,
    sources="def",
    model="a-model",
    model_source="sha256:0",
    machine="this",
    threads=1,
    seed=44,
    facts=(Fact(name="memory", value=5),),
    reference="",
    requests=0,
    complete=False,
    cases=(),
    differences=(),
)
ROW = CaseRow(
    case="slots-1",
    settings="1 slot",
    kernel_path="a kernel",
    requests=len(REQUESTS),
    tokens=2 * len(REQUESTS),
    identical=len(REQUESTS),
    near_ties=0,
    bugs=0,
    preemptions=0,
    chunks=0,
    cached_tokens=0,
    most_rows=1,
    finding=Finding.IDENTICAL,
    note=None,
)


def stored(out: Path, answers: tuple[AnswerRow, ...] = ANSWERS, **changes: Any) -> Soak:
    """One case has been run, the day before."""
    fields: dict[str, Any] = {
        "run_id": "20260101-abc",
        "created_at": "2026-01-01T00:00:00+00:00",
        "reference": "a reference",
        "requests": len(REQUESTS),
        "cases": (ROW,),
        **changes,
    }
    soak = dataclasses.replace(PLANNED, **fields)
    write_soak(out / soak.run_id, soak)
    write_answers(out / soak.run_id, answers)
    return soak


def begun(out: Path, cases: set[str] = CASES, requests: tuple[Request, ...] = REQUESTS) -> Begun:
    return begin(out, PLANNED, requests=requests, cases=cases)


def test_without_any_other_it_is_the_planned_one_under_a_name_that_is_free(tmp_path: Path) -> None:
    assert begun(tmp_path / "nothing") == Begun(soak=PLANNED)
    (tmp_path / PLANNED.run_id).mkdir()
    assert begun(tmp_path).soak.run_id == "20260102-abc-2"


def test_an_unfinished_one_goes_on_whatever_the_day(tmp_path: Path) -> None:
    soak = stored(tmp_path)
    assert begun(tmp_path) == Begun(soak=soak, answers=ANSWERS)


def test_one_that_was_killed_between_its_files_goes_on_by_the_document(tmp_path: Path) -> None:
    soak = stored(tmp_path)
    (tmp_path / soak.run_id / CaseRow.FILE).write_text("half a ta")
    assert begun(tmp_path).soak == soak


@pytest.mark.parametrize("count", [0, 5])
def test_one_whose_reference_was_interrupted_goes_on(tmp_path: Path, count: int) -> None:
    soak = stored(tmp_path, ANSWERS[:count], reference="", requests=0, cases=())
    assert begun(tmp_path) == Begun(soak=soak, answers=ANSWERS[:count])


@pytest.mark.parametrize(
    "changes",
    [
        {"complete": True},
        {"revision": "other"},
        {"dirty": True},
        {"sources": "other"},
        {"model_source": "sha256:1"},
        {"machine": "that"},
        {"threads": 2},
        {"seed": 45},
        {"facts": (Fact(name="memory", value=6),)},
        {"requests": 23},
        {"answers": ANSWERS[:23]},
        {"answers": (*ANSWERS[:3], dataclasses.replace(ANSWERS[3], max_tokens=99), *ANSWERS[4:])},
        {"answers": (dataclasses.replace(ANSWERS[0], prompt_sha256="0"), *ANSWERS[1:])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_kind_does_not_go_on(tmp_path: Path, changes: dict[str, Any]) -> None:
    stored(tmp_path, **changes)
    assert begun(tmp_path) == Begun(soak=PLANNED)


def test_what_was_done_must_be_part_of_what_is_to_be_done(tmp_path: Path) -> None:
    stored(tmp_path)
    assert begun(tmp_path, cases={"slots-3"}) == Begun(soak=PLANNED)
    assert begun(tmp_path, requests=REQUESTS[:20]) == Begun(soak=PLANNED)


@pytest.mark.parametrize("name", ["soak.json", "answers.csv"])
def test_a_damaged_one_does_not_go_on(tmp_path: Path, name: str) -> None:
    soak = stored(tmp_path)
    (tmp_path / soak.run_id / name).write_text("{")
    assert begun(tmp_path) == Begun(soak=PLANNED)
