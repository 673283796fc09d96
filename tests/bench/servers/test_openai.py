"""A server of this engine, measured as anybody's is."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from safetensors.torch import load_file

from nanoserve_bench import RunUnsound, UnfairComparison, check_offered_load, compare, worker
from nanoserve_bench.errors import PlanError
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import Option
from nanoserve_bench.protocol import (
    Description,
    Failure,
    Launch,
    Settle,
    Settled,
    Trial,
    TrialResult,
)
from nanoserve_bench.records import Settings
from nanoserve_bench.systems import listeners
from nanoserve_bench.systems.openai import OpenAi, endpoint_of
from nanoserve_bench.systems.outstanding import patience_s, run_outstanding
from nanoserve_bench.timeouts import trial_s
from nanoserve_bench.worker import Session
from support.completions_server import CompletionsServer, Reply, honest, serving
from support.served import BAD, PROMPTS, TOKENS, breaks_off, measured, options_of, run_of


@pytest.mark.parametrize("ids", ["token_ids", "logprobs"])
def test_a_server_is_measured_by_the_ids_it_gives(
    server: CompletionsServer, launch: Callable[..., Launch], ids: str
) -> None:
    barrier = threading.Barrier(2)

    def together(reply: Reply, token_ids: Sequence[int], max_tokens: int) -> None:
        barrier.wait(30)  # until two requests are out
        honest(reply, token_ids, max_tokens)

    server.answers |= {PROMPTS[0][0]: together, PROMPTS[1][0]: together}
    description, result = measured(launch(ids=ids, **{"body.seed": "1"}))
    assert [r.prompt_ids for r in result.records] == list(PROMPTS)
    for record in result.records:
        assert record.output_ids == tuple(server.generate(record.prompt_ids, TOKENS))
        assert record.holds is None
        assert record.token_ns is not None
        assert len(record.token_ns) == TOKENS
        assert record.arrival_ns <= record.submitted_ns < record.token_ns[0]
        assert record.finished_ns is not None
        assert record.token_ns[-1] <= record.finished_ns
        assert (record.finish_reason, record.error) == ("length", "")
    assert server.most_at_once == 2
    asked = server.requests[-1]
    assert (asked["_path"], asked["model"], asked["ignore_eos"]) == (
        "/v1/completions",
        "tiny",
        True,
    )
    assert (asked["temperature"], asked["stream"], asked["seed"]) == (0, True, 1)
    run = run_of(result.records, description.settings(launch()))
    assert run.batch_occupancy is None  # slot factors are holes
    assert run.throughput > 0  # and the throughput stands


class Ticks:
    """A clock that every look moves by a microsecond, and a test by as much as it likes."""

    def __init__(self) -> None:
        self.now_ns = 10**9
        self.lock = threading.Lock()

    def clock(self) -> int:
        return self.pass_by(1e-6)

    def pass_by(self, seconds: float) -> int:
        with self.lock:
            self.now_ns += round(seconds * 1e9)
            return self.now_ns


def test_in_an_open_loop_a_request_is_sent_when_it_is_due_whatever_the_server_does(
    server: CompletionsServer, launch: Callable[..., Launch]
) -> None:
    """No answer begins before all three are out, for one slot."""
    barrier = threading.Barrier(len(PROMPTS))

    def together(reply: Reply, token_ids: Sequence[int], max_tokens: int) -> None:
        barrier.wait(30)
        honest(reply, token_ids, max_tokens)

    server.answers |= dict.fromkeys((prompt[0] for prompt in PROMPTS), together)
    due, ticks = (0, 200_000_000, 200_000_000), Ticks()

    def sleep(seconds: float) -> None:
        while not server.requests:  # until the first has been sent
            time.sleep(0.001)
        ticks.pass_by(seconds)

    records = run_outstanding(
        endpoint_of(options_of(server)),
        PROMPTS,
        max_tokens=TOKENS,
        slots=1,
        due_ns=due,
        clock=ticks.clock,
        sleep=sleep,
    )
    assert server.most_at_once == len(PROMPTS)
    assert all(r.submitted_ns >= r.arrival_ns for r in records)
    for record in records:
        assert record.output_ids == tuple(server.generate(record.prompt_ids, TOKENS))
    settings = Settings(**dict.fromkeys(Settings.__dataclass_fields__))  # type: ignore[arg-type]
    run = dataclasses.replace(run_of(records, settings), slots=1)
    check_offered_load(run, due)
    with pytest.raises(RunUnsound, match="RUN023"):
        check_offered_load(run, (0, 200_000_000, 300_000_000))


def test_a_trial_with_due_times_reaches_the_server_as_an_open_loop(
    server: CompletionsServer, launch: Callable[..., Launch]
) -> None:
    server.answers[PROMPTS[2][0]] = breaks_off
    session = Session()
    assert isinstance(session.answer(launch()), Description)
    due = (0, 1_000_000, 2_000_000)
    trial = Trial(slots=1, prompts=PROMPTS, max_tokens=(TOKENS,) * 3, due_ns=due)
    result = session.answer(trial)
    assert isinstance(result, TrialResult), result
    first = result.records[0].arrival_ns
    assert tuple(r.arrival_ns - first for r in result.records) == due
    assert [r.finish_reason for r in result.records] == ["length", "length", "error"]


def test_what_cannot_be_asked_is_shown_as_declared(
    launch: Callable[..., Launch], tiny: ModelFolder
) -> None:
    description, _ = measured(launch(server="made-up;1"))
    assert description.cache == "declared:off"
    assert description.weights == f"declared:{tiny.name}"
    assert description.matmul_precision == "declared:ieee"
    assert description.tokenizer == f"declared:{tiny.tokenizer}"
    assert description.threads == 1
    assert description.libraries == (("server", "declared:made-up 1"),)
    tensors = load_file(tiny.path / "model.safetensors")
    assert "lm_head.weight" in tensors  # so that a step reads a few rows of the table
    read = sum(t.nbytes for name, t in tensors.items() if name != "model.embed_tokens.weight")
    assert description.weight_bytes_per_step == read


def test_the_servers_processes_are_waited_for_when_the_sweep_asks(
    launch: Callable[..., Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[int]()
    monkeypatch.setattr(OpenAi, "processes", lambda _: (os.getppid(),))
    monkeypatch.setattr(worker, "settle", lambda found: waited.extend(p.pid for p in found))
    session = Session()
    assert isinstance(session.answer(launch()), Description)
    assert session.answer(Settle()) == Settled()
    assert os.getppid() in waited
    assert OpenAi.lingers


def test_what_is_not_declared_is_unknown_and_the_gate_refuses_it(
    server: CompletionsServer, launch: Callable[..., Launch]
) -> None:
    bare = tuple(o for o in launch().options if o.name in {"url", "model"})
    description, result = measured(dataclasses.replace(launch(), options=bare))
    assert (description.cache, description.weights, description.threads) == (None, None, None)
    known = Settings(
        machine="a machine",
        device="cpu",
        dtype="float32",
        matmul_precision="ieee",
        threads=1,
        weights="sha256:" + "a" * 64,
        tokenizer="none",
        decoding="greedy;ignore_eos",
        cache="off",
    )
    ours = run_of(result.records, known, system="nanoserve")
    with pytest.raises(UnfairComparison) as refused:
        compare(ours, run_of(result.records, description.settings(launch())))
    for code in ("PAIR006", "PAIR007", "PAIR008", "PAIR010", "PAIR012"):
        assert code in str(refused.value)
    declared = dataclasses.replace(
        known,
        weights="declared:tiny",
        cache="declared:off",
        matmul_precision="declared:ieee",
        tokenizer="declared:none",
    )
    assert compare(ours, run_of(result.records, declared)).speedup == 1
    cached = dataclasses.replace(declared, cache="declared:on")
    with pytest.raises(RunUnsound, match="PAIR010"):
        compare(ours, run_of(result.records, cached))


def _slow(reply: Reply, ids: Sequence[int], _: int) -> None:
    """Good, only slow: pauses, comments, empty chunks, no usage."""
    reply.head()
    for token in ids:
        time.sleep(0.01)
        reply.raw(b": still here\n\n")
        reply.event({"choices": []})
        reply.token(text="")
        reply.token(token)
    reply.token(text="", finish_reason="length")
    reply.done()


def test_a_slow_server_is_measured_as_it_is(
    server: CompletionsServer, launch: Callable[..., Launch]
) -> None:
    server.answers[BAD] = _slow
    _, result = measured(launch())
    record = result.records[1]
    assert (record.error, record.output_ids) == (
        "",
        tuple(server.generate(record.prompt_ids, TOKENS)),
    )
    assert record.token_ns is not None
    assert list(record.token_ns) == sorted(set(record.token_ns))


def test_a_server_that_is_gone_ends_the_worker_and_says_so(
    tiny: ModelFolder, make_launch: Callable[..., Launch]
) -> None:
    with serving(str(tiny.path)) as served:
        told = [Option(name=name, value=value) for name, value in options_of(served).items()]
        session = Session()
        launched = session.answer(
            dataclasses.replace(make_launch("openai", model=tiny), options=tuple(told))
        )
        assert isinstance(launched, Description)
    failure = session.answer(Trial(slots=1, prompts=PROMPTS, max_tokens=(TOKENS,) * 3))
    assert isinstance(failure, Failure)
    assert failure.error.startswith(f"{served.url} takes no connections: ")


def test_the_key_comes_from_the_environment(
    server: CompletionsServer, launch: Callable[..., Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    measured(launch(key_env="A_KEY"))
    assert {request["_key"] for request in server.requests} == {"Bearer secret"}
    monkeypatch.delenv("A_KEY")
    with pytest.raises(PlanError, match="A_KEY holds no key"):
        OpenAi.check(options_of(server, key_env="A_KEY"))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"url": "127.0.0.1:8000"}, "is no address such as"),
        ({"url": "ftp://127.0.0.1/v1"}, "is no address such as"),
        ({"url": "http://127.0.0.1:x/v1"}, "[Pp]ort"),
        ({"url": "http://192.0.2.1/v1"}, "another machine"),
        ({"cache": "maybe"}, "cache is off or on"),
        ({"threads": "0"}, "threads is a whole number"),
        ({"weight_bytes": "1.5"}, "weight_bytes is a whole number"),
        ({"silence_s": "nan"}, "silence_s is a time"),
        ({"silence_s": "soon"}, "could not convert"),
        ({"ids": "text"}, "ids is one of token_ids, logprobs"),
        ({"body.x": "{"}, "body.x is in JSON"),
        ({"body.max_tokens": "1"}, "what the sweep itself decides"),
    ],
)
def test_options_that_cannot_work_are_refused_when_it_is_planned(
    server: CompletionsServer, wrong: dict[str, str], reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        OpenAi.check({**options_of(server), **wrong})


@pytest.mark.parametrize("name", ["url", "model"])
def test_what_is_needed_is_asked_for(server: CompletionsServer, name: str) -> None:
    options = options_of(server)
    del options[name]
    with pytest.raises(PlanError, match=f"say {name}="):
        OpenAi.check(options)


def test_the_server_is_found_by_its_port(server: CompletionsServer) -> None:
    assert listeners.listening("127.0.0.1", server.server_port) == (os.getpid(),)
    assert listeners.listening("localhost", 1) == ()


def test_a_client_gives_up_before_the_sweep_does() -> None:
    for tokens in (1, 128, 10_000):
        assert patience_s(tokens) + 10 < trial_s(tokens)
