"""The summary is the geometric mean of the blocks, and a hole where a block has one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.figures import Figures
from nanoserve_bench.plan import Cell
from nanoserve_bench.results import read
from nanoserve_bench.runs import TrialKey, assemble, measured_blocks
from nanoserve_bench.summary import summarise, summarise_figures
from support.mutants.base import replaced
from support.rebuild import BASE, change, engine
from support.ruler import concurrent, edited, serial
from support.sound import study

CELL = Cell(
    id="a/cpu/float32/2/w",
    arm="a",
    system="s",
    device="cpu",
    dtype="float32",
    slots=2,
    workload="w",
    model="m",
)


def test_every_cell_of_the_plan_has_a_row_in_its_order(tmp_path: Path) -> None:
    results = read(study(blocks=2).write(tmp_path / "run"))
    rows = summarise(results)
    assert [row.cell for row in rows] == [cell.id for cell in results.plan.cells]
    assert rows == results.sweep
    assert {(row.blocks, row.requests, row.output_tokens) for row in rows} == {(2, 16, 256)}


def test_figures_are_geometric_means_over_the_blocks(tmp_path: Path) -> None:
    results = read(study(blocks=3).write(tmp_path / "run"))
    runs = assemble(results)
    row = next(row for row in summarise(results) if row.cell == engine(4))
    product = 1.0
    for block in range(3):
        product *= float(runs[TrialKey(block, engine(4), warmup=False)].throughput)
    assert row.throughput_tok_per_s == pytest.approx(product ** (1 / 3))
    assert row.batch_occupancy_rows is not None
    assert row.tokens_per_slot_second is not None
    assert row.batch_occupancy_rows * row.tokens_per_slot_second == pytest.approx(
        row.throughput_tok_per_s
    )


def test_warm_ups_and_replaced_blocks_are_left_out(tmp_path: Path) -> None:
    results = read(replaced(disturbed=True).write(tmp_path / "run"))
    assert measured_blocks(results) == tuple(range(1, 9))
    row = summarise(results)[0]
    assert (row.cell, row.blocks, row.requests) == (BASE, 8, 64)


def test_a_share_of_zero_has_a_mean() -> None:
    (row,) = summarise_figures([CELL], {CELL.id: [Figures.of(serial())] * 2})
    assert row.queue_share == 0.0
    (row,) = summarise_figures([CELL], {CELL.id: [Figures.of(concurrent(8, slots=1))] * 2})
    assert row.queue_share == pytest.approx(7 / 9)


def test_one_block_that_tells_nothing_makes_the_mean_a_hole() -> None:
    whole = concurrent()
    untold = edited(whole, 0, first_token_ns=None, holds=None)
    (row,) = summarise_figures([CELL], {CELL.id: [Figures.of(whole), Figures.of(untold)]})
    assert row.ttft_s is None
    assert row.batch_occupancy_rows is None
    assert row.queue_share is None
    assert row.throughput_tok_per_s == pytest.approx(80)


def test_a_run_without_figures_leaves_no_rate_to_flatter() -> None:
    (row,) = summarise_figures([CELL], {CELL.id: [Figures.of(concurrent()), None]})
    assert row.blocks == 2
    assert row.requests == 4
    values = dataclasses.asdict(row)
    assert {values[name] for name in values if name.endswith("_s") or "_per_" in name} == {None}


def test_a_cell_that_never_ran_is_a_row_of_holes() -> None:
    (row,) = summarise_figures([CELL], {})
    assert (row.blocks, row.requests, row.throughput_tok_per_s) == (0, 0, None)


def test_unfinished_requests_do_not_break_the_summary(tmp_path: Path) -> None:
    broken = change(study(blocks=2), "requests", cell=BASE, request="r0", finished_ns=None)
    rows = summarise(read(broken.write(tmp_path / "run")))
    assert rows[0].throughput_tok_per_s is None
    assert rows[1].throughput_tok_per_s is not None
