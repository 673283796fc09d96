"""What is taken from a trial: full steps, digests, and the gate's findings."""

from __future__ import annotations

import dataclasses

import pytest

from nanoserve_bench.perf.arms import FULL, RIVALS, Arm, arms_of, orders
from nanoserve_bench.perf.measure import Spare, flaws_of, full_steps
from nanoserve_bench.perf.sameness import disagreement, prefix_digests
from nanoserve_bench.records import Hold, RunRecord, Shape, StepRecord, SystemRun
from support.perf_runs import SETTINGS, trial


def record(name: str, token_ns: tuple[int, ...], *, arrival_ns: int = 0) -> RunRecord:
    return RunRecord(
        request=name,
        prompt_ids=(1, int(name)),
        output_ids=tuple(range(len(token_ns))),
        max_tokens=len(token_ns),
        arrival_ns=arrival_ns,
        submitted_ns=arrival_ns,
        holds=(Hold(arrival_ns, token_ns[-1]),),
        first_token_ns=token_ns[0],
        finished_ns=token_ns[-1],
        token_ns=token_ns,
        cached_tokens=0,
    )


def run(shape: Shape, slots: int, **more: object) -> SystemRun:
    records = (record("0", (10, 14, 20)), record("1", (30, 33), arrival_ns=20))
    return SystemRun(
        system="a",
        shape=shape,
        slots=slots,
        records=records,
        settings=SETTINGS,
        **more,  # type: ignore[arg-type]
    )


def test_a_serial_system_s_full_steps_are_the_gaps_between_tokens_of_a_request() -> None:
    assert full_steps(run(Shape.SERIAL, 1)) == (3, 4 + 6 + 3)


def test_without_token_stamps_a_serial_system_has_none() -> None:
    untimed = run(Shape.SERIAL, 1)
    records = tuple(dataclasses.replace(r, token_ns=None) for r in untimed.records)
    assert full_steps(dataclasses.replace(untimed, records=records)) == (None, None)


def test_a_full_step_advances_every_slot_and_computes_no_prompt() -> None:
    steps = (
        StepRecord(0, 2, 0, 2, 0),  # prompts
        StepRecord(10, 0, 2, 2, 0),  # full: 7
        StepRecord(17, 0, 2, 2, 0),  # full: 3
        StepRecord(20, 1, 2, 3, 0),  # with a prompt
        StepRecord(25, 0, 1, 1, 0),  # one slot is empty
        StepRecord(31, 0, 0, 0, 0),
    )
    assert full_steps(run(Shape.CONCURRENT, 2, steps=steps)) == (2, 10)
    assert full_steps(run(Shape.CONCURRENT, 4, steps=steps)) == (None, None)
    assert full_steps(run(Shape.CONCURRENT, 2)) == (None, None)


def test_an_output_of_another_length_than_asked_is_a_flaw() -> None:
    sound = run(Shape.SERIAL, 1)
    assert "length" not in {code for code, _ in flaws_of(sound)}
    short = dataclasses.replace(sound.records[1], max_tokens=5)
    flaws = dict(flaws_of(dataclasses.replace(sound, records=(sound.records[0], short))))
    assert flaws["length"] == "request 1 gave 2 tokens, and 5 were asked for"


def test_trials_of_different_size_are_compared_where_both_have_outputs() -> None:
    outputs = [[1, 2], [3], [4, 5], [6]]
    some, all_of_them = prefix_digests(outputs[:2], (2, 4)), prefix_digests(outputs, (2, 4))
    assert [d.requests for d in some] == [2]
    assert [d.requests for d in all_of_them] == [2, 4]
    one, other = trial("a", outputs=some), trial("b", outputs=all_of_them)
    assert not list(disagreement(one, other))
    changed = trial("b", outputs=prefix_digests([[1, 2], [9], *outputs[2:]], (2, 4)))
    assert "first 2 requests" in next(disagreement(one, changed))
    later = trial("b", outputs=prefix_digests([*outputs[:3], [7]], (2, 4)))
    assert not list(disagreement(one, later))
    assert "first 4 requests" in next(disagreement(trial("a", outputs=all_of_them), later))
    assert "no requests in common" in next(disagreement(one, trial("c", outputs=())))


def test_every_round_runs_every_arm_once_and_the_second_mirrors_the_first() -> None:
    arms = arms_of(FULL, rivals=True)
    first, second, third, fourth = orders(arms, 4, seed=44)
    assert sorted(first) == sorted(arm.name for arm in arms)
    assert second == first[::-1]
    assert fourth == third[::-1]
    assert orders(arms, 4, seed=44)[0] == first
    assert orders(arms, 4, seed=45)[0] != first
    assert {arm.name for arm in arms} - {arm.name for arm in arms_of(FULL, rivals=False)} == set(
        RIVALS
    )


def test_attempts_to_spare_run_out() -> None:
    spare = Spare(left=2)
    assert [spare.take() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("arm", [arm for arm in arms_of(FULL, rivals=True) if arm.system])
def test_only_what_runs_one_after_the_other_runs_fewer_requests(arm: Arm) -> None:
    for cell in arm.cells:
        if cell.workload == "decode" and cell.slots > 1 and arm.name != "hf-static":
            assert cell.requests == 64
