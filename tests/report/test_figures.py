"""Figures: pure, reproducible to the byte, with data, with words, and with holes that say why."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from nanoserve_bench.plan import SkippedDevice
from nanoserve_bench.soundness import Finding, RefusedCell
from nanoserve_report.book import Book
from nanoserve_report.figures import (
    blocks,
    ceiling,
    devices,
    identity,
    marginal,
    occupancy,
    reproducibility,
    speedup,
    style,
)
from nanoserve_report.figures.drawing import Drawing
from nanoserve_report.figures.svg import render
from nanoserve_report.study import Study
from nanoserve_report.views.common import NO_HOLDS
from support.report_studies import BASELINE_CELL

OF_A_SWEEP = [blocks, ceiling, identity, marginal, occupancy, speedup]
HERE = Path(__file__).resolve()


def all_drawings(study: Study) -> list[Drawing]:
    section = study.sections[0]
    drawings = [module.draw(section.lead) for module in OF_A_SWEEP]
    of_study = [devices.draw(study), ceiling.draw_devices(study)]
    return [*drawings, reproducibility.draw(section), *of_study]


def rows(drawing: Drawing) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(drawing.to_csv())))


def test_bytes_are_the_same_in_two_processes(three_root: Path) -> None:
    code = (
        "import hashlib, pathlib, sys\n"
        "from nanoserve_report.study import load\n"
        "from nanoserve_report.pages import compose\n"
        "book = compose(load(pathlib.Path(sys.argv[1])))\n"
        "for name in sorted(book.files):\n"
        "    print(name, hashlib.sha256(book.files[name]).hexdigest())\n"
    )
    outputs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code, str(three_root)],
            env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        outputs.append(done.stdout)
    assert outputs[0].count(".svg") >= 6
    assert outputs[0] == outputs[1]


def test_drawing_leaves_matplotlibs_settings_alone(three: Study) -> None:
    before = dict(mpl.rcParams)
    all_drawings(three)
    assert dict(mpl.rcParams) == before


def test_an_svg_holds_only_the_colours_of_the_palette(three: Study) -> None:
    for drawing in all_drawings(three):
        text = render(drawing.figure).decode()
        body = text.split("</style>", 1)[1]
        assert not re.findall(r"(?:fill|stroke): ?#", body), drawing.name
        assert "prefers-color-scheme: dark" in text
        for role in style.ROLES:
            if f"var(--{role.name})" in body:
                assert f"--{role.name}:{role.dark}" in text


def test_a_colour_outside_the_palette_fails(one: Study) -> None:
    drawing = marginal.draw(one.sections[0].lead)
    drawing.figure.axes[0].plot([1, 2], [0, 1], color="#ff0000")
    with pytest.raises(ValueError, match="#ff0000"):
        render(drawing.figure)


def test_an_svg_makes_no_request_and_carries_no_date(three: Study) -> None:
    for drawing in all_drawings(three):
        text = render(drawing.figure).decode()
        assert "dc:date" not in text
        assert not re.findall(r'(?:href|src)="(?!#)', text)


def test_every_figure_has_its_finding_in_words_and_its_data(three: Study) -> None:
    for drawing in all_drawings(three):
        assert len(drawing.alt) > 60
        assert rows(drawing)


def test_the_words_come_from_the_data(one: Study) -> None:
    sweep = one.sections[0].lead
    (first, *_) = sweep.sound_marginals
    assert f"{first.product.point:.2f}" in marginal.draw(sweep).alt
    assert first.verdict in marginal.draw(sweep).alt


def test_the_identity_figures_data_closes(one: Study) -> None:
    for row in rows(identity.draw(one.sections[0].lead)):
        throughput = float(row["throughput_tok_per_s"])
        slots = float(row["batch_occupancy_rows"]) * float(row["tokens_per_slot_second"])
        caller = float(row["system_occupancy_requests"]) * float(row["tokens_per_request_second"])
        assert slots == pytest.approx(throughput, rel=1e-12)
        assert caller == pytest.approx(throughput, rel=1e-12)


def test_the_speedups_factors_multiply_to_it(one: Study) -> None:
    for row in rows(speedup.draw(one.sections[0].lead)):
        product = float(row["batch_factor"]) * float(row["slot_factor"])
        assert product == pytest.approx(float(row["speedup"]), rel=1e-12)


def test_one_slot_shows_the_occupancy_gotcha(one: Study) -> None:
    row = next(
        r
        for r in rows(occupancy.draw(one.sections[0].lead))
        if (r["arm"], r["slots"]) == ("nanoserve", "1")
    )
    assert float(row["batch_occupancy_rows"]) == pytest.approx(1.0, rel=1e-2)
    assert float(row["system_occupancy_requests"]) > 4


def test_a_refused_pair_is_a_hole_in_drawing_and_data(refused: Study) -> None:
    sweep = refused.sections[0].lead
    row = next(r for r in rows(speedup.draw(sweep)) if r["slots"] == "2")
    assert row["hole"] == "PAIR005"
    assert not any(row[name] for name in row if name.startswith(("speedup", "batch", "slot_")))
    assert "refused (PAIR005), drawn as a hole" in speedup.draw(sweep).alt
    assert "hatch" in render(speedup.draw(sweep).figure).decode().lower() or b"<pattern" in render(
        speedup.draw(sweep).figure
    )
    holes = [r for r in rows(marginal.draw(sweep)) if r["hole"]]
    assert [(r["slots_from"], r["product"]) for r in holes] == [("1", ""), ("2", "")]


def altered(study: Study, **changes: object) -> Study:
    """The study with parts of its one verdict replaced."""
    folder = study.folders[0]
    verdict = dataclasses.replace(folder.verdict, **changes)
    return Study(folders=(dataclasses.replace(folder, verdict=verdict),))


def test_slots_that_are_not_told_are_a_hole_and_no_bar(one: Study) -> None:
    cells = {
        name: dataclasses.replace(cell, batch_occupancy=None)
        if cell.cell.arm == "nanoserve"
        else cell
        for name, cell in one.folders[0].verdict.cells.items()
    }
    drawing = occupancy.draw(altered(one, cells=cells).sections[0].lead)
    words = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert words.count(NO_HOLDS) == 4
    assert len([text for text in words if "in the system" in text]) == 2
    found = {row["cell"]: row for row in rows(drawing)}
    for name, row in found.items():
        untold = name.startswith("nanoserve/")
        assert (row["batch_occupancy_rows"] == "", row["hole"] == NO_HOLDS) == (untold, untold)


def test_doublings_of_two_arms_carry_the_arm(one: Study) -> None:
    marginals = one.folders[0].verdict.marginals
    others = tuple(
        dataclasses.replace(
            item,
            arm="other",
            lower=dataclasses.replace(item.lower, arm="other"),
            upper=dataclasses.replace(item.upper, arm="other"),
        )
        for item in marginals
    )
    drawing = devices.draw(altered(one, marginals=(*marginals, *others)))
    labels = [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()]
    assert len(set(labels)) == len(labels) == 6
    assert "other\n1 \N{RIGHTWARDS ARROW} 2" in labels
    assert "other, 1 to 2 slots" in drawing.alt
    labels = [text.get_text() for text in devices.draw(one).figure.axes[0].get_yticklabels()]
    assert labels[0] == "1 \N{RIGHTWARDS ARROW} 2", "one arm needs no name"


def test_a_hole_in_the_data_turns_no_count_into_a_float(one: Study) -> None:
    drawing = dataclasses.replace(
        marginal.draw(one.sections[0].lead),
        columns=("arm", "slots", "product", "hole", "run", "blocks"),
        rows=(('a, "b"', 4, 0.1 + 0.2, None, "r", 8), ("c", None, None, "refused", "r", None)),
    )
    assert drawing.to_csv() == (
        'arm,slots,product,hole,run,blocks\n"a, ""b""",4,0.30000000000000004,,r,8\nc,,,refused,r,\n'
    )


def test_a_device_that_was_not_measured_is_a_hole_with_its_reason(one: Study) -> None:
    drawing = devices.draw(one)
    (hole,) = [row for row in rows(drawing) if row["device"] == "cuda"]
    assert hole["hole"] == "not measured: no CUDA device is visible"
    assert not hole["slot_ratio"]
    assert "cuda: not measured: no CUDA device is visible" in drawing.alt


def test_a_card_that_nobody_looked_for_is_a_hole_too() -> None:
    assert devices.panels(Study(folders=()))[1] == (
        SkippedDevice(device="cuda", reason="no sweep has looked for one"),
    )


def test_a_figure_without_data_or_words_cannot_be_made(one: Study) -> None:
    drawing = marginal.draw(one.sections[0].lead)
    for change in ({"rows": ()}, {"alt": "  "}):
        with pytest.raises(ValueError, match="no data or no alternative text"):
            Drawing(
                **{
                    **{name: getattr(drawing, name) for name in Drawing.__dataclass_fields__},
                    **change,
                }
            )


def test_every_row_of_a_figures_data_names_its_run_and_its_blocks(
    three: Study, refused: Study
) -> None:
    for study in (three, refused):
        known = {folder.name for folder in study.folders}
        for drawing in all_drawings(study):
            assert drawing.columns[-2:] == ("run", "blocks")
            assert set(drawing.runs) <= known
            for row in rows(drawing):
                if not row["hole"]:
                    assert row["run"] in known, drawing.name
                    assert int(row["blocks"]) == 8, drawing.name


def test_data_that_names_no_run_cannot_be_drawn(one: Study) -> None:
    drawing = marginal.draw(one.sections[0].lead)
    fields = {name: getattr(drawing, name) for name in Drawing.__dataclass_fields__}
    short = {"columns": drawing.columns[:-2], "rows": tuple(row[:-2] for row in drawing.rows)}
    with pytest.raises(ValueError, match="the last columns of its data are not"):
        Drawing(**{**fields, **short})
    nameless = tuple((*row[:-2], None, row[-1]) for row in drawing.rows)
    with pytest.raises(ValueError, match="a number of its data names no run"):
        Drawing(**{**fields, "rows": nameless})


def undrawn(figure: Figure) -> list[str]:
    """What a legend names although no axis holds its marker, or nothing has its colour."""
    found = []
    for legend in figure.legends:
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            marker, colour = handle.get_marker(), handle.get_color()
            lines = [line for axes in figure.axes for line in axes.lines if len(line.get_xdata())]
            if marker not in {"None", None}:
                there = any(line.get_marker() == marker for line in lines)
            else:
                bars = [p for axes in figure.axes for p in axes.patches if p.get_width() > 0]
                drawn = {to_hex(line.get_color()) for line in lines}
                drawn |= {to_hex(bar.get_facecolor()) for bar in bars}
                there = to_hex(colour) in drawn
            found += [] if there else [text.get_text()]
    return found


def test_a_legend_names_only_what_is_drawn(
    one: Study, three: Study, refused: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = altered(
        one,
        cells={
            name: RefusedCell(cell=cell.cell, findings=(Finding(rule="RUN018", message="fast"),))
            for name, cell in one.folders[0].verdict.cells.items()
        },
    )
    for study in (one, three, refused, nothing):
        for drawing in all_drawings(study):
            assert undrawn(drawing.figure) == [], drawing.name
    assert not identity.draw(nothing.sections[0].lead).figure.legends
    assert identity.draw(one.sections[0].lead).figure.legends
    monkeypatch.setattr(style, "is_drawn", lambda *_: True)
    left = undrawn(identity.draw(nothing.sections[0].lead).figure)
    assert "throughput" in left, "without the rule the legend would name what is not there"


def test_reproducibility_has_every_sweep_of_every_quantity(three: Study) -> None:
    found = rows(reproducibility.draw(three.sections[0]))
    runs = {folder.name for folder in three.folders}
    for quantity, slots in [("speedup", "8"), ("doubling", "4")]:
        assert {r["run"] for r in found if (r["quantity"], r["slots"]) == (quantity, slots)} == runs


def test_clip_paths_are_named_by_their_order_and_not_by_their_last_bit(one_book: Book) -> None:
    drawn = [text for name, text in one_book.files.items() if name.endswith(".svg")]
    clips = [re.findall(rb'<clipPath id="(\w+)">', text) for text in drawn]
    assert any(clips)
    for text, names in zip(drawn, clips, strict=True):
        assert sorted(names) == sorted(b"clip%d" % (i + 1) for i in range(len(names)))
        assert set(re.findall(rb"url\(#(clip\w*)\)", text)) <= set(names)


def test_shares_of_the_ceiling_are_rates_over_the_highest_one_measured(one: Study) -> None:
    """Recomputed from the rows: bytes and multiplications per second over the best of the sweep."""
    sweep = one.sections[0].lead
    ceilings = sweep.results.ceilings
    best_read = max(row.read_bytes_per_s for row in ceilings)
    best_matrix = max(row.matmul_flop_per_s for row in ceilings)
    found = {row["arm"] + row["slots"]: row for row in rows(ceiling.draw(sweep))}
    for cell in sweep.sound_cells:
        read, matrix = [], []
        for run in cell.runs.values():
            seconds = run.wall_ns / 1e9
            steps = (
                sum(1 for step in run.steps if step.prefill_rows or step.decode_rows)
                if run.steps is not None
                else run.output_tokens
            )
            read.append(steps * 538_000_000 / seconds / best_read)
            matrix.append(2 * 538_000_000 / 4 * run.output_tokens / seconds / best_matrix)
        row = found[cell.cell.arm + str(cell.cell.slots)]
        assert float(row["read_share"]) == pytest.approx(statistics.geometric_mean(read))
        assert float(row["matrix_share"]) == pytest.approx(statistics.geometric_mean(matrix))


def test_a_refused_cell_and_a_missing_card_are_holes_in_the_shares(one: Study) -> None:
    cells = dict(one.folders[0].verdict.cells)
    cells[BASELINE_CELL] = RefusedCell(
        cell=cells[BASELINE_CELL].cell, findings=(Finding(rule="RUN018", message="too fast"),)
    )
    drawing = ceiling.draw_devices(altered(one, cells=cells))
    (baseline,) = [row for row in rows(drawing) if row["arm"] == "hf-generate"]
    assert baseline["hole"] == "RUN018"
    assert not any(baseline[name] for name in baseline if "share" in name)
    (card,) = [row for row in rows(drawing) if row["device"] == "cuda"]
    assert card["hole"] == "not measured: no CUDA device is visible"
    for words in ("refused (RUN018), drawn as a hole", "cuda: not measured"):
        assert words in drawing.alt
