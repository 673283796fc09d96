"""Servers that fail, hang or lie: no request of theirs counts, and the gate refuses them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence

import pytest

from nanoserve_bench import RunUnsound, UnfairComparison, compare
from nanoserve_bench.protocol import Failure, Launch
from nanoserve_bench.records import RunRecord, Settings
from nanoserve_bench.systems.openai import endpoint_of
from nanoserve_bench.systems.outstanding import run_outstanding
from nanoserve_bench.worker import Session
from support.completions_server import Answer, CompletionsServer, Reply, dripping, until
from support.served import BAD, PROMPTS, TOKENS, breaks_off, measured, options_of, run_of


def _drop(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.token(ids[0])
    reply.drop()


def _refuse(reply: Reply, _ids: Sequence[int], _: int) -> None:
    reply.head(500, "application/json")
    reply.raw(b'{"error": "overloaded"}')
    reply.end()


def _whole(reply: Reply, _ids: Sequence[int], _: int) -> None:
    reply.head(200, "application/json")
    reply.raw(b'{"choices": []}')
    reply.end()


def _not_json(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.token(ids[0])
    reply.raw(b"data: {token: 7}\n\n")
    reply.end()


def _more(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.token(*ids, 7, finish_reason="length")
    reply.usage(len(ids) + 1)
    reply.done()


def _counts_more(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.token(*ids[:-1], finish_reason="length")
    reply.usage(len(ids))
    reply.done()


def _no_ids(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    for _token in ids:
        reply.event({"choices": [{"index": 0, "text": "x", "finish_reason": None}]})
    reply.event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
    reply.usage(len(ids))
    reply.done()


def _adds_bos(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.token(*ids, finish_reason="length")
    reply.usage(len(ids), prompt=len(PROMPTS[1]) + 1)
    reply.done()


def _goes_on(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.token(*ids, finish_reason="length")
    reply.raw(b"data: [DONE]\n\ndata: {}\n\n")
    reply.end()


def _endless_line(reply: Reply, _ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.raw(b"data: " + b"x" * 2**21)
    reply.end()


def _nothing(reply: Reply, _ids: Sequence[int], _: int) -> None:
    reply.drop()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (breaks_off, "failed in mid-stream.*the engine died"),
        (_drop, "ended before it was done, after 1 tokens"),
        (_refuse, 'HTTP 500: {"error": "overloaded"}'),
        (_whole, "sent application/json and no stream"),
        (_not_json, "not JSON: {token: 7}"),
        (_more, "5 tokens came, and 4 were asked for"),
        (_counts_more, "counts 4 completion tokens, and ids of 3"),
        (_no_ids, "text without token ids"),
        (_adds_bos, "counts 4 prompt tokens, and it was sent 3"),
        (_goes_on, "went on after"),
        (_endless_line, "a line of the stream is longer"),
        (_nothing, "the connection failed"),
    ],
)
def test_a_bad_answer_fails_its_request_and_takes_no_other_with_it(
    server: CompletionsServer, launch: Callable[..., Launch], answer: Answer, reason: str
) -> None:
    server.answers[BAD] = answer
    _, result = measured(launch())
    _one_failed(result.records, reason)


@pytest.mark.parametrize("make", [until, dripping])
def test_a_server_that_hangs_or_drips_is_given_up(
    server: CompletionsServer, make: Callable[[threading.Event], Answer]
) -> None:
    released = threading.Event()
    server.answers[BAD] = make(released)
    endpoint = endpoint_of(options_of(server, silence_s="0.3" if make is until else "30"))
    try:
        records = run_outstanding(endpoint, PROMPTS, max_tokens=TOKENS, slots=3, limit_s=1.5)
    finally:
        released.set()
    reason = "said nothing for 0.3 s" if make is until else "the connection failed|ended before"
    _one_failed(records, reason)


def test_requests_that_were_never_sent_are_recorded_as_failed(server: CompletionsServer) -> None:
    released = threading.Event()
    server.answers[PROMPTS[0][0]] = until(released)
    try:
        records = run_outstanding(
            endpoint_of(options_of(server)), PROMPTS, max_tokens=TOKENS, slots=1, limit_s=0.3
        )
    finally:
        released.set()
    assert [r.finish_reason for r in records] == ["error"] * 3
    assert "the time for the trial was over" in records[2].error


def _one_failed(records: Sequence[RunRecord], reason: str) -> None:
    """The bad request is there with its reason, the others are whole, and the gate refuses all."""
    first, bad, last = records
    assert re.search(reason, bad.error), bad.error
    assert bad.finish_reason == "error"
    assert bad.finished_ns is None
    for good in (first, last):
        assert (good.error, len(good.output_ids)) == ("", TOKENS)
        assert good.finished_ns is not None
    settings = Settings(**dict.fromkeys(Settings.__dataclass_fields__))  # type: ignore[arg-type]
    with pytest.raises(RunUnsound, match="RUN002"):
        compare(run_of(records, settings), run_of(records, settings))


def _lies(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.token(*ids[:-1], ids[-1] + 1, finish_reason="length")
    reply.usage(len(ids))
    reply.done()


def _is_lazy(reply: Reply, ids: Sequence[int], _: int) -> None:
    reply.head()
    reply.token(*ids[:-1], finish_reason="length")
    reply.usage(len(ids) - 1)
    reply.done()


@pytest.mark.parametrize(("answer", "code"), [(_lies, "PAIR005"), (_is_lazy, "RUN008")])
def test_a_server_that_lies_consistently_is_refused_by_the_gate(
    server: CompletionsServer, launch: Callable[..., Launch], answer: Answer, code: str
) -> None:
    """What a response alone cannot show: made-up ids, and a smaller count everywhere."""
    description, right = measured(launch())
    server.answers[BAD] = answer
    _, lying = measured(launch())
    settings = description.settings(launch())
    with pytest.raises((UnfairComparison, RunUnsound), match=code):
        compare(run_of(right.records, settings), run_of(lying.records, settings))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_no_ids, "without token ids"),
        (_refuse, "500.*asks for ignore_eos, return_token_ids: tokens without ids cannot"),
        (_is_lazy, "asked for 2 tokens through any EOS, and gave 1"),
    ],
)
def test_a_server_that_cannot_be_measured_is_found_out_at_its_launch(
    server: CompletionsServer, launch: Callable[..., Launch], answer: Answer, reason: str
) -> None:
    server.answers[1] = answer  # what the probe's prompt begins with
    failure = Session().answer(launch())
    assert isinstance(failure, Failure)
    assert failure.error.startswith(f"{server.url} cannot be measured: ")
    assert re.search(reason, failure.error)


def test_a_server_that_is_not_there_says_so(launch: Callable[..., Launch]) -> None:
    failure = Session().answer(launch(url="http://127.0.0.1:1/v1"))
    assert isinstance(failure, Failure)
    assert "listens on port 1" in failure.error
