"""Sentences follow from verdicts, refused doublings included."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.plan import SkippedArm, SkippedDevice
from nanoserve_report import numbers, wording
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load
from support.report_studies import said, sweep, write


def test_the_knee_is_the_last_doubling_worth_it(one: Study) -> None:
    assert wording.knee(one.sections[0].lead, "nanoserve") == (
        "The last doubling worth it is 2 to 4 slots; 4 to 8 is not worth it."
    )


def test_refused_doublings_are_said_to_be_refused(refused: Study) -> None:
    assert wording.knee(refused.sections[0].lead, "nanoserve") == (
        "No doubling was shown to be worth it; 1 to 2 and 2 to 4 are refused; "
        "4 to 8 is not worth it."
    )


def test_an_arm_without_doublings_says_so(one: Study) -> None:
    assert "has a sound measurement" in wording.knee(one.sections[0].lead, "hf-generate")


@pytest.mark.parametrize(
    ("engine_ms", "words"),
    [
        (
            lambda rows: 40.0,
            "Every doubling measured was worth it, up to 8 slots; the knee lies beyond.",
        ),
        (
            lambda rows: 40.0 * rows * 1.1 ** (rows > 1),
            (
                "No doubling was shown to be worth it; 1 to 2 is not worth it; "
                "2 to 4 and 4 to 8 are undecided."
            ),
        ),
    ],
)
def test_the_knee_of_other_shapes(tmp_path: Path, engine_ms, words: str) -> None:
    study = sweep(
        step_ms=lambda system, rows: 62.0 if system != "nanoserve" else engine_ms(rows), spread=0.05
    )
    found = wording.knee(load(write(tmp_path, study)).sections[0].lead, "nanoserve")
    assert found == words


def test_one_slot_states_absolutes_beside_the_ratio(one: Study) -> None:
    sweep_ = one.sections[0].lead
    pair = next(pair for pair in sweep_.sound_rivals if pair.candidate.slots == 1)
    text = wording.one_slot(sweep_, pair)
    assert "is faster than hf-generate" in text
    assert " against " in text
    assert "tok/s" in text


def test_what_timing_costs_is_said_only_where_it_was_measured(one: Study) -> None:
    assert wording.timing_costs(one) == []


def test_the_untimed_system_over_the_timed_one_is_what_timing_costs(one: Study) -> None:
    folder = one.folders[0]
    pairs = tuple(
        dataclasses.replace(
            pair,
            candidate=dataclasses.replace(
                pair.candidate, arm="hf-generate-untimed", system="hf-generate-untimed"
            ),
        )
        if pair.planned.kind == "self"
        else pair
        for pair in folder.verdict.comparisons
    )
    verdict = dataclasses.replace(folder.verdict, comparisons=pairs)
    study = Study(folders=(dataclasses.replace(folder, verdict=verdict),))
    (sentence,) = wording.timing_costs(study)
    ratio = numbers.ratio(study.folders[0].sweeps[0].selves[0].speedup)
    assert f"hf-generate-untimed over hf-generate is {ratio.words}: no difference" in sentence
    page = compose(study).files["results/self.md"].decode()
    assert "hf-generate-untimed over hf-generate" in page
    assert "no study here compares a thing with itself" in page


def test_devices_that_were_not_measured_for_one_reason_are_told_together() -> None:
    skipped = [
        SkippedDevice(device="cuda", reason="no driver"),
        SkippedDevice(device="mps", reason="another system"),
        SkippedDevice(device="xpu", reason="no driver"),
    ]
    assert wording.holes(skipped) == (
        "cuda and xpu were not measured: no driver. mps was not measured: another system."
    )
    assert wording.holes([]) == ""


def test_one_reason_of_several_devices_is_put_in_the_plural() -> None:
    reason = "this build of torch does not support it"
    skipped = [SkippedDevice(device=name, reason=reason) for name in ("cuda", "mps")]
    assert wording.holes(skipped) == (
        "cuda and mps were not measured: this build of torch does not support them."
    )
    assert wording.holes(skipped[:1]) == f"cuda was not measured: {reason}."


def test_arms_that_could_not_run_are_holes_with_their_reason(one: Study) -> None:
    (folder,) = one.folders
    results = folder.results
    assert results is not None
    hole = SkippedArm(
        arm="rival", system="rival", device=None, dtype=None, reason="its library is missing"
    )
    plan = dataclasses.replace(results.plan, skipped_arms=(hole,))
    results = dataclasses.replace(results, plan=plan)
    verdict = dataclasses.replace(folder.verdict, results=results)
    book = compose(Study(folders=(dataclasses.replace(folder, verdict=verdict),)))
    for name in ("results/index.md", "results/refusals.md"):
        text = said(book, name)
        assert "rival: its library is missing" in text
        assert "1 arm that" in text
        assert "Run again for contention: no blocks." in text
        assert "kill-table" in text


def test_one_sentence_says_how_far_doublings_paid_on_each_workload(one: Study) -> None:
    (section,) = one.sections
    assert wording.reach([section]) == (
        "Doublings worth it: up to 4 slots on day44 (8 requests) for nanoserve."
    )
