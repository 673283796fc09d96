"""Real rivals, where their environments are: the same tokens as `generate` on the real weights.

CI has none of them: there each test is skipped, and says how to get what it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from nanoserve_bench import check_concurrent, compare
from nanoserve_bench.launcher import Worker
from nanoserve_bench.models import ModelFolder, materialise
from nanoserve_bench.protocol import Description, Launch, Trial, TrialResult
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.systems import find_all

PROMPTS = ((504, 3575, 282, 4649, 314), (1, 2, 3), (504, 3575), (2000, 3000, 4000, 5000), (42, 43))
MAX_TOKENS = (12, 12, 5, 12, 1)
PROVEN = ("llamacpp", "onnxruntime", "openvino", "vllm")


def run_one(launch: Launch, *slot_counts: int) -> tuple[Description, list[SystemRun]]:
    worker = Worker(launch, arm=launch.system)
    try:
        description = worker.describe()
        runs = []
        for slots in slot_counts:
            trial = Trial(slots=slots, prompts=PROMPTS, max_tokens=MAX_TOKENS)
            result = worker.ask(trial, TrialResult, timeout_s=300)
            runs.append(
                SystemRun(
                    system=launch.system,
                    shape=Shape(description.shape),
                    slots=slots,
                    records=result.records,
                    settings=description.settings(launch),
                )
            )
        worker.close()
    finally:
        worker.kill()
    return description, runs


@pytest.fixture(scope="module")
def model() -> ModelFolder:
    return materialise("smollm2-135m")


@pytest.mark.weights
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["llamacpp", "onnxruntime", "openvino", "vllm"])
def test_a_rival_says_what_the_baseline_says(
    name: str, model: ModelFolder, make_launch: Callable[..., Launch]
) -> None:
    problem = find_all()[name].problem
    if problem:
        pytest.skip(f"{name} cannot run: {problem}")
    _, (baseline,) = run_one(make_launch("hf-generate", model=model), 1)
    launch = make_launch(name, model=model, most_slots=4)
    description, runs = run_one(launch, 1, 2, 4)
    assert description.version == find_all()[name].version
    if name in PROVEN:
        assert description.weights == baseline.settings.weights
    for made in runs:
        assert [r.output_ids for r in made.records] == [r.output_ids for r in baseline.records]
        compare(baseline, made)
        if made.slots > 1:
            check_concurrent(made)
    with pytest.raises(Exception, match="bfloat16"):
        run_one(dataclasses.replace(launch, dtype="bfloat16"))
