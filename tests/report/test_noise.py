"""Which half is the noisy one: from the blocks, whichever way it comes out."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import pytest

from nanoserve_report import claims, noise, spread
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load
from support.report_studies import STEP_MS, sweep, write

NAME = "The baseline is the noisy half"


def moody(engine: float, baseline: float, seed: int = 1) -> Study:
    """A sweep whose sides' steps stray by so much from trial to trial."""
    rng = random.Random(seed)
    steps: dict[str, list[float]] = {"engine": [], "baseline": []}

    def step_ms(system: str, rows: int) -> float:
        # A mood lasts about as long as a trial, so that it does not average out inside of one.
        side, share = ("engine", engine) if system == "nanoserve" else ("baseline", baseline)
        moods = steps[side]
        if len(moods) % 120 == 0:
            moods.append(1 + share * rng.uniform(-1, 1))
        else:
            moods.append(moods[-1])
        return moods[-1] * (STEP_MS.get(rows, 60.0) if side == "engine" else 62.0)

    return sweep(step_ms=step_ms)


def judged(path: Path, study) -> tuple[claims.Claim, Study]:
    loaded = load(write(path, study))
    return next(c for c in claims.judge(loaded) if c.name == NAME), loaded


def test_an_engine_with_moods_is_the_noisy_half(tmp_path: Path) -> None:
    claim, study = judged(tmp_path, moody(0.08, 0.0))
    assert claim.word == "refuted"
    assert "nanoserve is the noisy half, hf-generate the steady one" in claim.finding
    assert " % for hf-generate (up to a factor of " in claim.finding
    assert "The document's three sweeps put the baseline at 2.82, 2.44 and 1.92" in claim.finding
    book = compose(study)
    for name in ("results/index.md", "results/claims.md"):
        assert "nanoserve is the noisy half" in book.files[name].decode()


def test_a_baseline_with_moods_is_the_noisy_half(tmp_path: Path) -> None:
    claim, _ = judged(tmp_path, moody(0.0, 0.08))
    assert claim.word == "reproduced"
    assert "hf-generate is the noisy half, nanoserve the steady one" in claim.finding


def test_two_alike_are_not_told_apart() -> None:
    one = noise.Scatter(arm="a", deviation=0.010, widest=1.03)
    other = noise.Scatter(arm="b", deviation=0.014, widest=1.04)
    assert noise.noisier(one, other) is None
    third = noise.Scatter(arm="c", deviation=0.016, widest=1.04)
    assert noise.noisier(one, third) is third
    assert noise.noisier(third, one) is third


def test_the_scatter_is_pooled_inside_cells_and_sweeps(three: Study) -> None:
    """The three baselines differ by far more than their blocks do: that is not scatter."""
    (section,) = three.sections
    found = noise.scatters(section)["hf-generate"]
    logs = [
        [math.log(float(run.throughput)) for run in cell.runs.values()]
        for lead in section.sweeps
        for cell in lead.sound_cells
        if cell.cell.arm == "hf-generate"
    ]
    assert len(logs) == 3
    pooled = statistics.fmean(statistics.variance(values) for values in logs)
    assert found.deviation == pytest.approx(math.sqrt(pooled))
    assert found.widest == pytest.approx(max(math.exp(max(v) - min(v)) for v in logs))
    assert found.widest < 1.05


def test_the_memorys_own_range_is_stated(three: Study) -> None:
    rates = [row.read_bytes_per_s for f in three.folders for row in f.results.ceilings]
    words = spread.words(three.sections[0])
    assert f"ranged from {min(rates) / 1e9:.1f} to {max(rates) / 1e9:.1f} GB/s" in words


def test_cells_whose_trials_lie_far_apart_are_named_beside_the_memory(tmp_path: Path) -> None:
    (section,) = load(write(tmp_path, moody(0.3, 0.0))).sections
    said = noise.trials(section.lead)
    named = 0
    for cell in section.lead.sound_cells:
        rates = [float(run.throughput) for run in cell.runs.values()]
        words = f"({max(rates) / min(rates):.2f}\N{MULTIPLICATION SIGN})"
        far = max(rates) > noise.APART * min(rates)
        assert (words in said) is far
        named += far
    assert named
    assert "no typical trial" in said
    assert "read bandwidth" in said


def test_steady_trials_are_said_to_be_steady(one: Study) -> None:
    said = noise.trials(one.sections[0].lead)
    assert said.startswith("In no cell was the fastest trial more than 1.3 times")
