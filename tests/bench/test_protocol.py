"""The lines between sweep and worker."""

from __future__ import annotations

import json

import pytest

from nanoserve_bench import protocol
from nanoserve_bench.protocol import (
    Ceilings,
    Close,
    Description,
    Failure,
    Launch,
    ProtocolError,
    Reading,
    Trial,
    TrialResult,
)
from nanoserve_bench.records import Hold, RunRecord, StepRecord

READING = Reading(
    involuntary_switches=3, cpu_ns=None, steal_ns=0, other_cpu_ns=5, peak_memory_bytes=None
)
RECORD = RunRecord(
    request="0",
    prompt_ids=(1, 2),
    output_ids=(3,),
    max_tokens=1,
    arrival_ns=0,
    submitted_ns=0,
    holds=(Hold(1, 2), Hold(4, 5)),
    first_token_ns=5,
    finished_ns=5,
    token_ns=(5,),
)
MESSAGES = [
    Launch(
        system="s",
        machine="m",
        device="cpu",
        dtype="float32",
        threads=2,
        model_name="a",
        model_path="/b",
        most_slots=8,
        longest=22,
    ),
    Trial(slots=2, prompts=((1, 2), (3,)), max_tokens=(4, 2)),
    TrialResult(records=(RECORD,), steps=(StepRecord(0, 1, 0, 1, 0),), reading=READING),
    TrialResult(records=(), steps=None, reading=READING),
    Ceilings(read_bytes_per_s=1.5, matmul_flop_per_s=2e9),
    Failure(error="two\nlines"),
    Close(),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_its_line(message: protocol.Request | protocol.Reply) -> None:
    line = protocol.dump(message)
    assert "\n" not in line
    assert protocol.parse(line) == message


def test_named_tuples_and_none_come_back_as_they_were() -> None:
    result = protocol.parse(protocol.dump(MESSAGES[2]))
    assert isinstance(result, TrialResult)
    assert isinstance(result.records[0].holds[0], Hold)  # type: ignore[index]
    assert isinstance(result.steps[0], StepRecord)  # type: ignore[index]
    assert result.reading.cpu_ns is None


def _broken() -> list[str]:
    good = json.loads(protocol.dump(MESSAGES[1]))
    return [
        "",
        "rubbish",
        "[]",
        '{"op": "trial"}',
        json.dumps(["Nothing", {}]),
        json.dumps(["Trial", {**good[1], "extra": 1}]),
        json.dumps(["Trial", {"slots": 2}]),
        json.dumps(["Trial", {**good[1], "slots": "2"}]),
        json.dumps(["Trial", {**good[1], "slots": True}]),
        json.dumps(["Trial", {**good[1], "prompts": 3}]),
        json.dumps(["Trial", {**good[1], "prompts": [[1, None]]}]),
    ]


@pytest.mark.parametrize("line", _broken())
def test_whatever_is_no_message_is_refused(line: str) -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        protocol.parse(line)


def test_a_whole_number_may_stand_for_a_float() -> None:
    line = json.dumps(["Ceilings", {"read_bytes_per_s": 2, "matmul_flop_per_s": 3}])
    assert protocol.parse(line) == Ceilings(read_bytes_per_s=2.0, matmul_flop_per_s=3.0)


def test_a_description_gives_the_settings_of_a_comparison() -> None:
    description = Description(
        version="1",
        revision=None,
        shape="serial",
        stamps=("holds",),
        device_name="d",
        dtype="bfloat16",
        matmul_precision="tf32",
        threads=3,
        weights="w",
        weight_bytes_per_step=1,
        tokenizer="t",
        attention=None,
        cache="off",
        decoding="greedy",
        kernel_path=None,
        libraries=(("a", "1"),),
    )
    assert protocol.parse(protocol.dump(description)) == description
    launch = MESSAGES[0]
    assert isinstance(launch, Launch)
    settings = description.settings(launch)
    assert (settings.machine, settings.device, settings.dtype) == ("m", "cpu", "bfloat16")
    assert (settings.threads, settings.matmul_precision, settings.cache) == (3, "tf32", "off")
