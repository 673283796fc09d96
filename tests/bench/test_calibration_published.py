"""The published calibration belongs to the published folders, and is what they give."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanoserve_bench.calibration import document, simulate
from nanoserve_bench.calibration.noise import Source, sources
from nanoserve_bench.calibration.records import JUDGED_PAIRS, Calibration
from nanoserve_bench.soundness import Verdict, judge_path

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def record() -> Calibration:
    found, problems = document.read(BENCH / "calibration" / "default.json")
    assert problems == ()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def verdicts(record: Calibration) -> dict[str, Verdict]:
    return {i.run_id: judge_path(BENCH / "results" / i.run_id) for i in record.inputs}


@pytest.fixture(scope="module")
def judged(record: Calibration, verdicts: dict[str, Verdict]) -> Source:
    found, _ = sources(verdicts.values())
    return next(source for source in found if source.facts.judged)


def test_it_stands_for_the_folders_it_names(
    record: Calibration, verdicts: dict[str, Verdict]
) -> None:
    """Where this fails after a change of what judges: `nox -s calibrate`."""
    assert document.stale(record, verdicts) == ()


def test_it_counts_as_much_as_was_asked(record: Calibration, judged: Source) -> None:
    assert record.studies >= 1000
    assert judged.facts.pairs >= JUDGED_PAIRS
    kinds = {(row.target_half_width is None, row.effect) for row in record.judged}
    assert kinds == {(True, 1.0), (True, 1.05), (False, 1.0), (False, 1.05)}


def test_a_few_studies_simulated_now_agree_with_it(record: Calibration, judged: Source) -> None:
    """With another seed: each share within what 150 studies leave open (5 standard errors)."""
    order = simulate.Order(name="again", seed=7, studies=150)
    for setup in simulate.setups(judged):
        if setup.rule.target_half_width is not None or setup.run_length != 1:
            continue
        (stored,) = (
            row
            for row in record.judged
            if (row.run_length, row.arms, row.effect) == (1, setup.arms, setup.effect)
            and row.target_half_width is None
        )
        found = simulate.count(setup, order)
        for count in ("held", "undecided", "bare_faster", "bare_slower"):
            share = stored.share(getattr(stored, count)).point
            error = (max(share * (1 - share), 0.01) / found.stated) ** 0.5
            here = found.share(getattr(found, count)).point
            assert here == pytest.approx(share, abs=5 * error), (stored, count)
