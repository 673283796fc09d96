"""Calibrations from folders to files: what they are made of, and when they no longer stand."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nanoserve_bench import statistics
from nanoserve_bench.calibration import document, intervals, records, simulate, study
from nanoserve_bench.calibration.noise import sources
from nanoserve_bench.calibration.records import Calibration
from nanoserve_bench.soundness import judge_path
from support import sound


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sound studies with forty A/A pairs between them."""
    root = tmp_path_factory.mktemp("calibration") / "results"
    for index in range(2):
        made = sound.study(run_id=f"2026010{index + 1}-cpu-day44-0123456", seed=index, blocks=20)
        made.write(root / made.plan.run_id)
    return root


@pytest.fixture(scope="module")
def verdicts(folders: Path) -> list:
    return [judge_path(path) for path in sorted(folders.iterdir())]


@pytest.fixture(scope="module")
def record(verdicts: list) -> Calibration:
    order = simulate.Order(name="default", seed=44, studies=20)
    return simulate.calibrate(order, verdicts, tell=lambda _: None)


def test_noise_is_taken_from_sound_pairs_in_the_order_in_which_they_ran(verdicts: list) -> None:
    (found,), left_out = sources(verdicts)
    assert left_out == ()
    facts = found.facts
    assert (facts.system, facts.slots, facts.workload) == ("hf-generate", 1, "day44")
    assert (facts.blocks, facts.contended, facts.pairs) == (40, 0, 40)
    assert [len(stretch) for stretch in found.stretches] == [20, 20]
    verdict = verdicts[0]
    pair = next(p for p in verdict.comparisons if p.planned.kind == "self")
    for block, played in enumerate(found.stretches[0]):
        order = verdict.results.plan.orders[block]
        forward = order.index(pair.baseline.id) < order.index(pair.candidate.id)
        assert played.forward is forward
        assert played.ratio is not None
        ratio = statistics.log_of(pair.pairs[block].speedup)
        assert played.ratio.throughput == pytest.approx(ratio if forward else -ratio)
        assert played.ratio.batch + played.ratio.slot == pytest.approx(played.ratio.throughput)


def test_too_few_pairs_are_named_and_not_played(verdicts: list) -> None:
    order = simulate.Order(name="default", seed=44, studies=20)
    found, (few,) = sources(verdicts[:1])
    assert found == ()
    assert few.pairs == 20
    with pytest.raises(simulate.CalibrationError, match=r"has 20\). Measure one: nanoserve-bench"):
        simulate.calibrate(order, verdicts[:1], tell=lambda _: None)


def test_a_variant_or_another_revision_is_no_noise(verdicts: list) -> None:
    results = verdicts[0].results
    arms = tuple(
        dataclasses.replace(arm, revision="abc") if arm.name == "hf-generate-again" else arm
        for arm in results.plan.arms
    )
    plan = dataclasses.replace(results.plan, arms=arms)
    other = dataclasses.replace(verdicts[0], results=dataclasses.replace(results, plan=plan))
    found, left_out = sources([other])
    assert (found, left_out) == ((), ())


def test_the_same_seed_gives_the_same_bytes(verdicts: list, record: Calibration) -> None:
    again = simulate.calibrate(
        simulate.Order(name="default", seed=44, studies=20), verdicts[::-1], tell=lambda _: None
    )
    assert document.files_of(again) == document.files_of(record)
    other = simulate.calibrate(
        simulate.Order(name="default", seed=45, studies=20), verdicts, tell=lambda _: None
    )
    assert other.outcomes != record.outcomes


def test_a_record_is_written_read_and_stands(
    tmp_path: Path, verdicts: list, record: Calibration
) -> None:
    assert len(document.write(tmp_path, record)) == 3
    assert document.write(tmp_path, record) == []
    found, problems = document.read(tmp_path / "default.json")
    assert (found, problems) == (record, ())
    assert document.stale(record, {v.run_id: v for v in verdicts}) == ()
    (lines, _) = (tmp_path / "default.csv").read_text().splitlines()[:2]
    assert lines.startswith("source,run_length,arms,least,most,target_half_width,effect,studies")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: dataclasses.replace(r, seed=45), "do not come out as they did"),
        (
            lambda r: dataclasses.replace(
                r, inputs=(dataclasses.replace(r.inputs[0], manifest_sha256="0" * 64),)
            ),
            "is another one now",
        ),
        (
            lambda r: dataclasses.replace(
                r, inputs=(dataclasses.replace(r.inputs[0], run_id="gone"),)
            ),
            "gone is not among the readable folders",
        ),
        (
            lambda r: dataclasses.replace(
                r, sources=(dataclasses.replace(r.sources[0], deviation=0.5),)
            ),
            "deviation is 0.5, and its inputs say",
        ),
        (
            lambda r: dataclasses.replace(
                r, sources=(dataclasses.replace(r.sources[0], pairs=100),)
            ),
            "pairs is 100, and its inputs say 40",
        ),
        (lambda r: dataclasses.replace(r, inputs=()), "is not in its inputs"),
    ],
)
def test_what_no_longer_belongs_to_its_inputs_is_stale(
    verdicts: list,
    record: Calibration,
    change: Callable[[Calibration], Calibration],
    message: str,
) -> None:
    found = document.stale(change(record), {v.run_id: v for v in verdicts})
    assert message in "\n".join(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compare_verdict", lambda ratio, _: statistics.compare_verdict(ratio, (1.0, 1.0))),
        ("estimate", lambda values: statistics.estimate(values, confidence=0.5)),
        ("NO_ENVELOPE", (0.99, 1.01)),
    ],
)
def test_code_that_judges_otherwise_takes_the_calibration_with_it(
    verdicts: list,
    record: Calibration,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: object,
) -> None:
    """The first studies of each kind are simulated again, by the code that judges now."""
    monkeypatch.setattr(study, name, value)
    (found,) = document.stale(record, {v.run_id: v for v in verdicts})
    assert re.search(
        r"the first studies of [1-8] of its 8 kinds, of 8 simulated now, do not", found
    )


def test_another_interval_or_kind_of_study_is_not_the_recorded_one(
    verdicts: list, record: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {v.run_id: v for v in verdicts}
    with monkeypatch.context() as patch:
        patch.setattr(intervals, "RESAMPLES", 99)
        (found,) = document.stale(record, known)
        assert "the other intervals do not come out" in found
    monkeypatch.setattr(simulate, "EFFECTS", (1.0,))
    (found,) = document.stale(record, known)
    assert "4 of its 8 kinds, of 4 simulated now" in found


def test_an_input_that_is_refused_now_takes_the_calibration_with_it(
    verdicts: list, record: Calibration
) -> None:
    retracted = {v.run_id: dataclasses.replace(v, comparisons=()) for v in verdicts}
    assert "is not in its inputs" in "\n".join(document.stale(record, retracted))


def edited(path: Path, change: Callable[[dict], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.unlink(), "cannot be read"),
        (lambda p: p.write_bytes(b"\xff"), "cannot be read"),
        (lambda p: p.write_text("{"), "has the schema None"),
        (lambda p: edited(p, lambda v: v.update(schema=2)), "has the schema 2, and 1 is known"),
        (lambda p: edited(p, lambda v: v.update(extra=1)), "is an unknown key"),
        (lambda p: edited(p, lambda v: v.update(name="other")), "calls itself 'other'"),
        (lambda p: edited(p, lambda v: v["outcomes"][0].update(faster=21)), "verdicts and"),
        (lambda p: edited(p, lambda v: v["outcomes"][0].update(held=-1)), "not among 0 to"),
        (lambda p: edited(p, lambda v: v["outcomes"][0].update(source="x")), "no source declared"),
        (lambda p: edited(p, lambda v: v["intervals"][0].update(held=21)), "row of intervals"),
        (lambda p: edited(p, lambda v: v.update(outcomes=[])), "nothing was simulated"),
        (lambda p: edited(p, lambda v: v["outcomes"][0].update(held=1)), "not what follows"),
        (lambda p: p.with_suffix(".csv").unlink(), "default.csv is missing"),
        (lambda p: p.with_suffix(".csv").write_text("x"), "default.csv is not what follows"),
    ],
)
def test_a_damaged_record_is_refused_with_its_reason(
    tmp_path: Path, record: Calibration, damage: Callable[[Path], None], message: str
) -> None:
    document.write(tmp_path, record)
    damage(tmp_path / "default.json")
    _, problems = document.read(tmp_path / "default.json")
    assert message in "\n".join(problems)


def test_targets_are_put_only_to_sources_with_enough_pairs(record: Calibration) -> None:
    assert record.judged == ()
    facts = dataclasses.replace(record.sources[0], pairs=records.JUDGED_PAIRS)
    judged = dataclasses.replace(record, sources=(facts,))
    assert judged.judged == record.outcomes


@pytest.mark.parametrize(
    ("changes", "meets"),
    [
        ({"held": 950}, True),
        ({"held": 930, "faster": 32, "slower": 32}, True),
        ({"held": 930, "faster": 33, "slower": 32}, False),
        ({"held": 929}, False),
        ({"held": 980}, True),
        ({"held": 981}, False),
        ({"held": 950, "faster": 900, "effect": 1.05}, True),
    ],
)
def test_targets(record: Calibration, changes: dict, meets: bool) -> None:
    row = dataclasses.replace(
        record.outcomes[0],
        **{"studies": 1000, "refused": 0, "faster": 0, "slower": 0, **changes},
    )
    assert row.meets is meets
