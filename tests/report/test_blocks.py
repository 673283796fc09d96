"""The figure of blocks: every block a point and a row, at its place, outliers flagged and kept."""

from __future__ import annotations

import csv
import dataclasses
import io
import math

import numpy as np
import pytest

from nanoserve_bench.soundness import SoundComparison
from nanoserve_report.figures import blocks
from nanoserve_report.figures.drawing import Drawing
from nanoserve_report.pages import compose
from nanoserve_report.study import Study
from nanoserve_report.sweeps import Sweep


def rows(drawing: Drawing) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(drawing.to_csv())))


def points(drawing: Drawing, marker: str) -> list[tuple[float, float]]:
    """Where the points of one shape lie, row by row."""
    lines = [line for line in drawing.figure.axes[0].lines if line.get_marker() == marker]
    return [
        (float(x), float(y))
        for line in lines
        for x, y in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
    ]


def sound_pairs(sweep: Sweep) -> list[SoundComparison]:
    pairs = [*sweep.headline_rivals, *sweep.selves]
    return [pair for pair in pairs if isinstance(pair, SoundComparison)]


def test_every_block_of_every_pair_is_a_row_whose_mean_is_the_speedup(one: Study) -> None:
    sweep = one.sections[0].lead
    found, pairs = rows(blocks.draw(sweep)), sound_pairs(sweep)
    cells = {cell.cell.id: cell for cell in sweep.sound_cells}
    expected = []
    for pair in pairs:
        above, below = cells[pair.candidate.id].runs, cells[pair.baseline.id].runs
        for block in sorted(above):
            ratio = above[block].output_tokens * below[block].wall_ns
            ratio /= below[block].output_tokens * above[block].wall_ns
            expected.append((pair.candidate.arm, str(pair.candidate.slots), str(block), ratio))
    assert len(expected) == len(pairs) * sweep.results.manifest.blocks_done > len(pairs)
    told = [(r["candidate"], r["slots"], r["block"], float(r["ratio"])) for r in found]
    assert told == [(*names, pytest.approx(ratio)) for *names, ratio in expected]
    for pair in pairs:
        ratios = [
            float(row["ratio"])
            for row in found
            if (row["baseline"], row["candidate"], row["slots"])
            == (pair.baseline.arm, pair.candidate.arm, str(pair.candidate.slots))
        ]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        assert mean == pytest.approx(pair.speedup.point)


def test_each_is_a_point_against_its_mean_the_first_block_at_the_top(one: Study) -> None:
    sweep = one.sections[0].lead
    drawing = blocks.draw(sweep)
    drawn = iter(points(drawing, "o"))
    assert not points(drawing, "s")
    for place, pair in enumerate(sound_pairs(sweep)):
        own = [next(drawn) for _ in pair.pairs]
        ratios = [float(pair.pairs[block].speedup) for block in sorted(pair.pairs)]
        assert [x for x, _ in own] == pytest.approx([r / pair.speedup.point for r in ratios])
        heights = [y for _, y in own]
        assert heights == sorted(heights)
        assert (heights[0], heights[-1]) == pytest.approx((place - 0.34, place + 0.34))
    assert next(drawn, None) is None


def test_an_outlier_is_hollow_and_flagged_and_left_in(one: Study) -> None:
    folder = one.folders[0]
    pair = sound_pairs(one.sections[0].lead)[0]
    block = sorted(pair.pairs)[1]
    cells = {
        name: dataclasses.replace(cell, outliers=(block,) if name == pair.candidate.id else ())
        for name, cell in folder.verdict.cells.items()
    }
    verdict = dataclasses.replace(folder.verdict, cells=cells)
    study = Study(folders=(dataclasses.replace(folder, verdict=verdict),))
    drawing = blocks.draw(study.sections[0].lead)
    flagged = [row for row in rows(drawing) if row["flag"] == "outlier"]
    assert [(row["candidate"], row["block"]) for row in flagged] == [
        (pair.candidate.arm, str(block))
    ]
    ratio = float(pair.pairs[block].speedup) / pair.speedup.point
    assert [x for x, _ in points(drawing, "s")] == [pytest.approx(ratio)]
    assert len(points(drawing, "o")) == len(rows(drawing)) - 1
    assert drawing.alt.count("1 block flagged") == 1


def test_a_refused_pair_is_a_hole(refused: Study) -> None:
    sweep = refused.sections[0].lead
    drawing = blocks.draw(sweep)
    (hole,) = [row for row in rows(drawing) if row["hole"]]
    assert (hole["slots"], hole["hole"]) == ("2", "PAIR005")
    assert not any(hole[name] for name in ("block", "ratio", "speedup", "blocks"))
    assert "refused (PAIR005), drawn as a hole" in drawing.alt


def test_the_page_of_a_run_shows_it_for_every_setting(one: Study) -> None:
    book = compose(one)
    (folder,) = one.folders
    (page,) = [
        text.decode() if isinstance(text, bytes) else text
        for name, text in book.files.items()
        if name.endswith(".md") and "/runs/" in name and not name.endswith("index.md")
    ]
    assert page.count("Every block as a point") == len(folder.sweeps) > 0
    kept = [name for name in book.files if name.endswith("-blocks.csv")]
    assert len(kept) == len(folder.sweeps)
