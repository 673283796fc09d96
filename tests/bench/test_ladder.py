"""The ladder of baselines: the same tokens as `generate`, one request at a time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import pytest

from nanoserve_bench import check_concurrent, compare
from nanoserve_bench.launcher import Worker
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.protocol import Description, Launch, Trial, TrialResult
from nanoserve_bench.records import RunRecord, Shape, SystemRun
from nanoserve_bench.soundness.rules.run_steps import STEP_LOG
from nanoserve_bench.systems import find
from nanoserve_bench.systems.hf_continuous import PAGE_TOKENS, named

MakeLaunch = Callable[..., Launch]
WANTED = (7, 3, 7, 5, 7, 1, 6)
DUE = tuple(20_000_000 * index for index in range(len(WANTED)))
RAGGED = ((5, 6, 7, 8, 9), (10,), (11, 12, 13), (14, 15), (16, 17, 18, 19), (20, 21), (22,))


def trial_of(slots: int) -> Trial:
    """Prompts and outputs of unequal lengths, and slots that they do not fill evenly."""
    return Trial(slots=slots, prompts=RAGGED, max_tokens=WANTED)


@pytest.fixture(scope="module")
def baseline(tiny: ModelFolder) -> SystemRun:
    launch = Launch(
        system="hf-generate",
        machine="a machine",
        device="cpu",
        dtype="float32",
        threads=1,
        model_name=tiny.name,
        model_path=str(tiny.path),
        most_slots=1,
        longest=32,
    )
    return find("hf-generate")(launch).run(trial_of(1))


def agrees(baseline: SystemRun, made: SystemRun, description: Description) -> None:
    """It said the same, with every stamp, and batched where it could."""
    assert description.cache == "off"
    assert {"holds", "first_token", "tokens"} <= set(description.stamps)
    assert [r.output_ids for r in made.records] == [r.output_ids for r in baseline.records]
    comparison = compare(baseline, made)  # raises where anything is unsound
    assert comparison.batch_factor is not None
    static = made.system.startswith("hf-static")
    assert any(r.discarded_tokens for r in made.records) == (static and made.slots > 1)
    if made.slots > 1:
        check_concurrent(made)
        assert made.batch_occupancy is not None
        assert made.batch_occupancy > 1.5


@pytest.mark.parametrize("name", ["hf-static", "hf-static-sorted", "nanoserve-torch"])
def test_the_ladder_says_what_the_baseline_says(
    name: str, tiny: ModelFolder, make_launch: MakeLaunch, baseline: SystemRun
) -> None:
    system = find(name)(make_launch(name, model=tiny, most_slots=4))
    for slots in (1, 3, 4):
        agrees(baseline, system.run(trial_of(slots)), system.describe())


def test_the_engine_takes_each_request_when_it_is_due(
    tiny: ModelFolder, make_launch: MakeLaunch, baseline: SystemRun
) -> None:
    system = find("nanoserve-torch")(make_launch("nanoserve-torch", model=tiny, most_slots=3))
    made = system.run(dataclasses.replace(trial_of(3), due_ns=DUE))
    came_when_due(baseline, made.records)
    assert list(STEP_LOG.check(made)) == []


def test_generate_in_an_open_loop_takes_one_after_the_other_from_a_queue(
    tiny: ModelFolder, make_launch: MakeLaunch, baseline: SystemRun
) -> None:
    system = find("hf-generate")(make_launch("hf-generate", model=tiny))
    made = system.run(dataclasses.replace(trial_of(1), due_ns=(0,) * len(RAGGED)))
    came_when_due(baseline, made.records, (0,) * len(RAGGED))
    assert (made.shape, made.slots) == (Shape.CONCURRENT, 1)
    holds = [hold for record in made.records for hold in record.holds or ()]
    assert all(one.released_ns <= other.acquired_ns for one, other in itertools.pairwise(holds))
    assert (made.records[-1].queued_ns or 0) > (made.records[-1].served_ns or 0)


def came_when_due(
    baseline: SystemRun, records: Sequence[RunRecord], due_ns: Sequence[int] = DUE
) -> None:
    """Arrivals are those that were offered, and what came out is what the baseline says."""
    first = records[0].arrival_ns
    assert [r.arrival_ns - first for r in records] == list(due_ns)
    assert all(r.submitted_ns >= r.arrival_ns for r in records)
    assert [r.output_ids for r in records] == [r.output_ids for r in baseline.records]


def test_the_torch_twin_says_that_it_is_one(tiny: ModelFolder, make_launch: MakeLaunch) -> None:
    twin = find("nanoserve-torch")(make_launch("nanoserve-torch", model=tiny, most_slots=1))
    path = twin.describe().kernel_path
    assert path is not None
    assert "torch" in path
    assert "avx" not in path


def test_continuous_batching_says_what_the_baseline_says(
    tiny: ModelFolder, make_launch: MakeLaunch, baseline: SystemRun
) -> None:
    """In a worker of its own, which ends although the library's threads never do."""
    worker = Worker(make_launch("hf-continuous", model=tiny, most_slots=4), arm="hf-continuous")
    try:
        description = worker.describe()
        for slots in (1, 3, 4):
            result = worker.ask(trial_of(slots), TrialResult, timeout_s=240)
            made = SystemRun(
                system="hf-continuous",
                shape=Shape(description.shape),
                slots=slots,
                records=result.records,
                settings=description.settings(worker.launch),
                steps=result.steps,
            )
            agrees(baseline, made, description)
        offered = dataclasses.replace(trial_of(3), due_ns=DUE)
        came_when_due(baseline, worker.ask(offered, TrialResult, timeout_s=240).records)
        worker.close()
        assert worker._process.returncode == 0
    finally:
        worker.kill()


def test_continuous_batching_is_set_up_by_the_names_that_the_library_knows() -> None:
    """transformers 5.17, the oldest that is supported, and the one that is pinned."""
    assert named({"block_size", "num_blocks"}) == {"block_size": PAGE_TOKENS}
    assert named({"page_size", "num_blocks", "auto_switch_to_flash"}) == {
        "page_size": PAGE_TOKENS,
        "auto_switch_to_flash": False,
    }


def test_continuous_batching_that_fails_is_told_and_does_not_hang(
    tiny: ModelFolder, make_launch: MakeLaunch
) -> None:
    """A token id outside of the vocabulary ends the library's thread, which only logs it."""
    system = find("hf-continuous")(make_launch("hf-continuous", model=tiny))
    with pytest.raises(RuntimeError, match="failed"):
        system.run(Trial(slots=2, prompts=((5, 6), (10**7, 5)), max_tokens=(3, 3)))
