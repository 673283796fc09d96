"""The tables of one sweep: what stands against what, and what the slots' time was spent on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.statistics import Estimate
from nanoserve_report import claims, wording
from nanoserve_report.links import Linker
from nanoserve_report.pages import parts
from nanoserve_report.study import Study, load
from nanoserve_report.sweeps import Sweep
from nanoserve_report.tables import Hole, Num
from nanoserve_report.views import common
from nanoserve_report.views import sweep as tables
from support.report_studies import sweep, write

PREFILL = Estimate(point=0.0123, low=0.0120, high=0.0126, n=8)


def linker() -> Linker:
    return Linker(page="results/devices/cpu-float32.md")


def queueing(study: Study) -> Study:
    """The same study, had its baseline been a system with a queue and a prefill of its own."""
    folder = study.folders[0]
    verdict, results = folder.verdict, folder.results
    assert results is not None
    systems = tuple(
        dataclasses.replace(row, shape="concurrent") if row.arm == "hf-generate" else row
        for row in results.systems
    )
    cells = {
        name: dataclasses.replace(cell, prefill=PREFILL) if cell.cell.arm == "hf-generate" else cell
        for name, cell in verdict.cells.items()
    }
    changed = dataclasses.replace(
        verdict, results=dataclasses.replace(results, systems=systems), cells=cells
    )
    return Study(folders=(dataclasses.replace(folder, verdict=changed),))


def baseline(sweep: Sweep):
    return next(cell for cell in sweep.sound_cells if cell.cell.arm == "hf-generate")


def test_a_serial_baselines_ttft_stands_against_the_prefill(one: Study) -> None:
    sweep = one.sections[0].lead
    for row in tables.prefill(sweep, linker()):
        assert row[3].text == "hf-generate, 1 slot: its TTFT"
        assert row[4].value == pytest.approx(1000 * baseline(sweep).ttft.point)


def test_a_queueing_baselines_prefill_stands_against_the_prefill(one: Study) -> None:
    sweep = queueing(one).sections[0].lead
    assert baseline(sweep).ttft.point > 2 * PREFILL.point
    for row in tables.prefill(sweep, linker()):
        assert row[3].text == "hf-generate, 1 slot: its prefill"
        assert row[4].value == pytest.approx(1000 * PREFILL.point)


def test_the_claim_names_what_it_set_the_prefill_against(one: Study) -> None:
    found = [
        next(claim for claim in claims.judge(study) if claim.name == "Company costs the prefill")
        for study in (one, queueing(one))
    ]
    assert found[0].finding.startswith("The baseline's TTFT over the engine's prefill")
    assert found[1].finding.startswith("The baseline's prefill over the engine's prefill")


def test_a_refused_pair_keeps_its_place_in_the_prefill_table(refused: Study) -> None:
    rows = tables.prefill(refused.sections[0].lead, linker()).rows
    assert [isinstance(row[5], Hole) for row in rows] == [False, True, False, False]


def test_latency_ratios_are_holes_where_arrivals_differ(one: Study) -> None:
    sweep = one.sections[0].lead
    rows = {row[0].text: row for row in tables.latency_ratios(sweep, linker())}
    ours = rows["nanoserve, 4 slots"]
    assert ours[2] == ours[4] == Hole(reason=common.OTHER_ARRIVALS)
    pair = next(p for p in sweep.sound_rivals if p.candidate.slots == 4)
    assert ours[3].value == pytest.approx(pair.tpot_ratio.point)
    again = rows["hf-generate-again, 1 slot"]
    assert all(isinstance(cell, Num) for cell in again[2:])


def test_latency_ratios_of_a_refused_pair_are_holes(refused: Study) -> None:
    rows = tables.latency_ratios(refused.sections[0].lead, linker())
    (row,) = [row for row in rows if row[0].text == "nanoserve, 2 slots"]
    assert all(isinstance(cell, Hole) and "PAIR005" in cell.reason for cell in row[2:])


def test_the_parts_of_the_slots_time_add_up_to_the_slots(one: Study) -> None:
    sweep = one.sections[0].lead
    rows = tables.splits(sweep, linker()).rows
    assert len(rows) == len(sweep.cells)
    for cell, row in zip(sweep.sound_cells, rows, strict=True):
        parts = [part.value for part in row[2:]]
        assert sum(parts) == pytest.approx(cell.cell.slots)
        assert parts[0] == pytest.approx(cell.batch_occupancy.point, rel=1e-3)


def test_slots_that_are_not_told_leave_holes_in_the_split(one: Study) -> None:
    folder = one.folders[0]
    cells = {
        name: dataclasses.replace(cell, splits=None) for name, cell in folder.verdict.cells.items()
    }
    verdict = dataclasses.replace(folder.verdict, cells=cells)
    study = Study(folders=(dataclasses.replace(folder, verdict=verdict),))
    for row in tables.splits(study.sections[0].lead, linker()):
        assert set(row[2:]) == {Hole(reason=common.NO_HOLDS)}


def rival(tmp_path: Path, **values: str) -> Sweep:
    """A sweep whose engine reports other things about itself."""
    changed = sweep()
    changed.edit(
        "systems",
        lambda row: dataclasses.replace(row, **values),
        where=lambda row: row.system == "nanoserve",
    )
    return load(write(tmp_path, changed)).sections[0].lead


def test_weights_that_are_declared_are_said_to_be_on_every_comparison(
    one: Study, tmp_path: Path
) -> None:
    declared = rival(tmp_path, weights="declared:F32 GGUF of the same")
    for lead, expected in ((one.sections[0].lead, common.PROVEN), (declared, common.DECLARED)):
        said = {row[0].text: row[-1].text for row in tables.factors(lead, linker())}
        assert said.pop("hf-generate-again, 1 slot") == common.PROVEN
        assert set(said.values()) == {expected}
    assert wording.unproven(one.sections[0].lead) == ""
    sentence = wording.unproven(declared)
    assert sentence.startswith("The weights of nanoserve are declared, not proven:")
    assert sentence in parts.sentences(declared)


def test_slots_that_are_no_rows_leave_holes_where_rows_are_counted(tmp_path: Path) -> None:
    stamps = "holds=connection first_token tokens steps"
    lead = rival(tmp_path, stamps=stamps)
    hole = Hole(reason="its slot is a connection, and no row of the batch")
    for row in tables.throughput(lead, linker()):
        assert (row[4] == row[5] == hole) == (row[0].text == "nanoserve")
    for row in tables.factors(lead, linker()):
        own = row[0].text.startswith("nanoserve")
        assert (row[3] == row[4] == Hole(reason=common.OTHER_SLOTS)) == own
    for row in tables.prefill(lead, linker()):
        assert row[5] == Hole(reason=common.OTHER_SLOTS)
    doublings = [cell for row in tables.doublings(lead, linker()) for cell in row[2:5]]
    assert doublings
    assert all(isinstance(cell, Num) for cell in doublings)
