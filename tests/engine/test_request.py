"""Times of a request are derived from its stamps, and a preempted one keeps its tokens."""

from __future__ import annotations

import pytest

from nanoserve import FinishReason, RequestTimings, SamplingParams
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.request import Request, RequestStatus


def timings(**changes: object) -> RequestTimings:
    stamps: dict[str, object] = {
        "arrival_ns": 10,
        "submitted_ns": 12,
        "holds": ((20, 50), (70, 100)),
        "first_token_ns": 80,
        "token_ns": (80, 90, 100),
        "finished_ns": 100,
    }
    return RequestTimings(**{**stamps, **changes})  # type: ignore[arg-type]


def test_served_queued_and_prefill_are_sums_over_holds():
    stamps = timings()
    assert stamps.admitted_ns == 20
    assert stamps.served_ns == 60
    assert stamps.queued_ns == 30
    assert stamps.prefill_ns == 40, "time without a slot is not prefill"
    assert stamps.arrival_ns + stamps.queued_ns + stamps.served_ns == stamps.finished_ns


def test_prefill_ends_with_the_first_token():
    assert timings(first_token_ns=30).prefill_ns == 10
    assert timings(first_token_ns=50).prefill_ns == 30


def test_what_never_happened_has_no_value():
    stamps = timings(holds=(), first_token_ns=None, token_ns=())
    assert stamps.admitted_ns is None
    assert stamps.prefill_ns is None
    assert stamps.served_ns == 0


def make_request(**changes: object) -> Request:
    allocator = BlockAllocator(8, block_size=2)
    values: dict[str, object] = {
        "request_id": "a",
        "prompt": [5, 6, 7],
        "params": SamplingParams(),
        "table": BlockTable(allocator),
        "order": (10, 0),
        "submitted_ns": 12,
        "max_length": 6,
        "stop_ids": frozenset({2}),
        "seed": 1,
    }
    return Request(**{**values, **changes})  # type: ignore[arg-type]


def test_a_released_slot_closes_the_hold_and_keeps_the_tokens():
    request = make_request()
    request.acquire_slot(20)
    request.table.grow_to(3)
    request.num_computed = 3
    request.append(9, 30)
    request.release_slot(40)
    assert (request.table.blocks, request.num_computed) == ([], 0)
    assert (request.prompt_token_ids, request.output_token_ids) == ([5, 6, 7], [9])
    request.acquire_slot(60)
    request.append(8, 70)
    request.finish(FinishReason.LENGTH, 70)
    assert request.status is RequestStatus.FINISHED
    assert request.timings().holds == ((20, 40), (60, 70))
    assert request.timings().token_ns == (30, 70)


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [([4], None), ([4, 2], FinishReason.STOP), ([4, 5, 6], FinishReason.LENGTH)],
)
def test_a_request_ends_at_a_stop_token_or_its_length(
    tokens: list[int], reason: FinishReason | None
):
    request = make_request()
    for token in tokens:
        request.append(token, 1)
    assert request.reason_to_stop() is reason


def test_a_stop_token_at_the_very_end_is_a_stop():
    request = make_request()
    for token in (4, 5, 2):
        request.append(token, 1)
    assert request.reason_to_stop() is FinishReason.STOP


def test_timings_of_an_unfinished_request_do_not_exist():
    with pytest.raises(ValueError, match="'a' has not finished"):
        make_request().timings()
