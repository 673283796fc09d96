"""Killed at any moment, a results folder loses at most the block in flight."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nanoserve_bench.columns import columns_of
from nanoserve_bench.errors import PlanError
from nanoserve_bench.results import read
from nanoserve_bench.schema import TrialRow
from nanoserve_bench.writer import ResultsWriter
from support.sound import MACHINE, study


def start(path: Path, blocks: int) -> ResultsWriter:
    laid = study(blocks=3)
    writer = ResultsWriter.create(path, laid.plan, machine=MACHINE, facts=laid.facts)
    writer.record_start(laid.starts[0])
    for rows in laid.blocks[:blocks]:
        writer.write_block(rows)
    return writer


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("survives", range(13))
def test_a_kill_between_any_two_writes_costs_only_the_block_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    path = tmp_path / "run"
    writer = start(path, blocks=1)
    before = read(path, require_complete=False)
    calls = 0
    real = os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal calls
        if calls >= survives:
            raise _Killed
        calls += 1
        real(descriptor)

    blocks = study(blocks=3).blocks
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        try:
            writer.write_block(blocks[1])
            finished = True
        except _Killed:
            finished = False
    resumed = ResultsWriter.resume(path)
    after = read(path, require_complete=False)
    assert after.manifest.blocks_done == (2 if finished else 1)
    if not finished:
        assert (after.trials, after.requests) == (before.trials, before.requests)
        resumed.write_block(blocks[1])
    resumed.write_block(blocks[2])
    whole = read(path, require_complete=False)
    expected = read(_whole(tmp_path / "whole"), require_complete=False)
    assert whole.requests == expected.requests
    assert whole.outputs == expected.outputs
    assert {file.name: file.sha256 for file in whole.manifest.files} == {
        file.name: file.sha256 for file in expected.manifest.files
    }


def _whole(path: Path) -> Path:
    start(path, blocks=3)
    return path


def test_half_a_line_behind_the_last_block_is_cut_away(tmp_path: Path) -> None:
    path = tmp_path / "run"
    start(path, blocks=1)
    intact = (path / "requests.csv").read_bytes()
    (path / "requests.csv").write_bytes(intact + b"1,nanoserve/cp")
    ResultsWriter.resume(path)
    assert (path / "requests.csv").read_bytes() == intact


def test_a_folder_whose_past_was_changed_does_not_go_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    start(path, blocks=1)
    content = (path / "trials.csv").read_text()
    (path / "trials.csv").write_text(content.replace("cpu", "gpu"))
    with pytest.raises(PlanError, match=r"trials\.csv is not what the sweep wrote"):
        ResultsWriter.resume(path)


def test_a_folder_with_something_in_it_is_not_written_over(tmp_path: Path) -> None:
    start(tmp_path / "run", blocks=0)
    laid = study(blocks=1)
    with pytest.raises(PlanError, match="choose another run id"):
        ResultsWriter.create(tmp_path / "run", laid.plan, machine=MACHINE, facts=())


def test_a_start_found_running_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "run"
    start(path, blocks=1)
    resumed = ResultsWriter.resume(path)
    resumed.record_start(study(blocks=1).starts[0])
    assert [entry.outcome for entry in resumed.manifest.ledger] == ["interrupted", "running"]


def test_an_entry_in_the_ledger_leaves_a_finished_study_finished(tmp_path: Path) -> None:
    laid = study(blocks=1)
    writer = ResultsWriter.resume(laid.write(tmp_path / "run"))
    writer.record_outcome("completed")
    assert writer.manifest.complete
    assert read(tmp_path / "run").manifest.complete


def test_a_missing_value_is_an_empty_cell_and_a_required_one_is_demanded() -> None:
    columns = {column.name: column for column in columns_of(TrialRow)}
    assert columns["replaces"].write(None) == ""
    assert columns["replaces"].read("") is None
    assert columns["replaces"].write(0) == "0"
    with pytest.raises(ValueError, match="wall_ns may not be empty"):
        columns["wall_ns"].write(None)
    with pytest.raises(ValueError, match="cannot be written"):
        columns["load_before"].write(float("nan"))


def test_text_from_outside_is_written_so_that_it_can_be_read() -> None:
    cell = {column.name: column for column in columns_of(TrialRow)}["cell"]
    assert cell.read(cell.write("=1+1\nnext")) == "'=1+1 next"
