"""The soak: what it asks, what it finds, and what it keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nanoserve_bench.commands.soak import EXIT_BUG
from nanoserve_bench.commands.soak import soak as command
from nanoserve_bench.errors import WorkerError
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.probes import ServeAnswer, ServeOrder, run_probe
from nanoserve_bench.record_files import RecordError
from nanoserve_bench.soak import session
from nanoserve_bench.soak.cases import CASES, FULL, QUICK, Case, Proof, draw
from nanoserve_bench.soak.records import (
    SCHEMA_VERSION,
    DifferenceRow,
    Finding,
    Soak,
    read_answers,
    read_soak,
    write_soak,
)
from nanoserve_bench.soak.session import case_row
from nanoserve_bench.systems.soak_pool import Policy, preemptions, tight_pool
from nanoserve_bench.workload import Vocabulary

VOCABULARY = Vocabulary(size=200, special=frozenset({0, 1}))
CASE = Case(name="a", slots=4, proofs=(Proof.BATCHED, Proof.PREEMPTED))


def answer(**changes: Any) -> ServeAnswer:
    usual = ServeAnswer(
        kernel_path="a kernel",
        kv_pool_tokens=432,
        outputs=((1, 2), (3,)),
        errors=(None, None),
        preemptions=1,
        chunks=0,
        cached_tokens=0,
        most_rows=2,
    )
    return dataclasses.replace(usual, **changes)


def difference(kind: str) -> DifferenceRow:
    return DifferenceRow(
        case="a",
        request=0,
        prompt_tokens=3,
        kind=kind,
        position=1,
        token_id=5,
        reference_token_id=6,
        text=None,
        reference_text=None,
        top2_margin=0.25,
        noise_floor=0.5,
        later_agreement=1.0,
        error=None,
    )


def empty(tiny: ModelFolder) -> Soak:
    return Soak(
        schema=SCHEMA_VERSION,
        run_id="20260101-abc",
        created_at="2026-01-01T00:00:00+00:00",
        revision=None,
        dirty=None,
        sources="def",
        model=tiny.name,
        model_source=tiny.source,
        machine="this",
        threads=1,
        seed=44,
        facts=(),
        reference="",
        requests=0,
        complete=False,
        cases=(),
        differences=(),
    )


def test_the_requests_are_many_mixed_and_the_same_for_a_seed() -> None:
    requests = draw(FULL, VOCABULARY, 44)
    assert len(requests) == 200
    lengths = [len(request.prompt) for request in requests]
    assert min(lengths) < 5
    assert max(lengths) <= FULL.most_prompt
    assert max(lengths) > FULL.most_prompt / 2
    assert len(set(lengths)) > 50
    assert {r.max_tokens for r in requests} <= set(range(1, FULL.new_tokens + 1))
    assert not {token for r in requests for token in r.prompt} & VOCABULARY.special
    heads = [r.prompt[: FULL.shared] for r in requests if len(r.prompt) > FULL.shared]
    assert len(set(heads)) < len(heads) - 20  # prefixes are shared
    assert draw(FULL, VOCABULARY, 44) == requests
    assert draw(FULL, VOCABULARY, 45) != requests
    assert len(draw(QUICK, VOCABULARY, 44)) == 24


def test_the_slots_of_the_task_and_every_hostile_setting_are_among_the_cases() -> None:
    assert {case.slots for case in CASES if case.share == 100} >= {1, 3, 8, 32}
    assert {case.kernel for case in CASES} == {"auto", "torch"}
    assert {proof for case in CASES for proof in case.proofs} == set(Proof)


@pytest.mark.parametrize(
    ("changes", "kinds", "finding"),
    [
        ({}, (), Finding.IDENTICAL),
        ({}, ("near-tie",), Finding.NEAR_TIES),
        ({}, ("near-tie", "bug"), Finding.BUG),
        ({"preemptions": 0}, (), Finding.UNPROVEN),
        ({"most_rows": 1}, ("near-tie",), Finding.UNPROVEN),
        ({"preemptions": 0}, ("bug",), Finding.BUG),
    ],
)
def test_what_is_found(changes: dict[str, Any], kinds: tuple[str, ...], finding: Finding) -> None:
    row = case_row(CASE, answer(**changes), [difference(kind) for kind in kinds])
    assert row.finding == finding
    assert row.near_ties == kinds.count("near-tie")
    assert row.bugs == kinds.count("bug")
    assert row.identical == 2 - len(kinds)
    assert (row.note is not None) is (finding == Finding.UNPROVEN or changes != {})


def test_a_soak_is_sound_when_every_case_is(tiny: ModelFolder) -> None:
    good = case_row(CASE, answer(), [])
    soak = dataclasses.replace(empty(tiny), complete=True, cases=(good,))
    assert soak.sound
    assert not dataclasses.replace(soak, complete=False).sound
    assert not dataclasses.replace(soak, cases=()).sound
    bad = dataclasses.replace(good, finding=Finding.UNPROVEN)
    assert not dataclasses.replace(soak, cases=(good, bad)).sound


def test_what_is_written_is_read_and_a_changed_table_is_refused(
    tmp_path: Path, tiny: ModelFolder
) -> None:
    row = case_row(CASE, answer(), [difference("near-tie")])
    soak = dataclasses.replace(empty(tiny), cases=(row,), differences=(difference("near-tie"),))
    write_soak(tmp_path, soak)
    assert read_soak(tmp_path) == soak
    table = tmp_path / "differences.csv"
    table.write_text(table.read_text().replace("near-tie", "nothing"))
    with pytest.raises(RecordError, match=r"differences\.csv says something else"):
        read_soak(tmp_path)


def test_the_real_thing_on_a_tiny_model(
    tmp_path: Path, cache: Path, tiny: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real engines against a real reference; one case's answers are changed on their way.

    It is interrupted in the second case, and goes on there when it is started again.
    """
    served: list[int] = []

    def changed(
        module: str, order: ServeOrder, kind: type[ServeAnswer], *, threads: int, timeout_s: float
    ) -> ServeAnswer:
        slots = order.settings.max_slots
        served.append(slots)
        if served == [3, 32]:
            raise KeyboardInterrupt
        if slots == 32:
            raise WorkerError("it would not start")
        given = run_probe(module, order, kind, threads=threads, timeout_s=timeout_s)
        if slots != 3:
            return given
        (first, *rest), *others = given.outputs
        _, _, *errors = given.errors
        return dataclasses.replace(
            given,
            outputs=(((first + 1) % 200, *rest), *others),
            errors=(None, "out of something", *errors),
        )

    monkeypatch.setattr(session, "run_probe", changed)
    monkeypatch.setenv("NANOSERVE_CACHE", str(cache))
    chosen = ("slots-3", "slots-32", "everything")
    arguments = [
        *("--model", "synthetic:tiny-llama", "--quick", "--threads", "1"),
        *(part for name in chosen for part in ("--case", name)),
        *("--out", str(tmp_path)),
    ]
    CliRunner().invoke(command, arguments)
    (folder,) = tmp_path.iterdir()
    interrupted = read_soak(folder)
    assert not interrupted.complete
    assert [row.case for row in interrupted.cases] == ["slots-3"]
    answers = read_answers(folder)
    assert len(answers) == QUICK.requests

    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == EXIT_BUG, result.output
    assert "goes on: 24 of 24 answers, 1 of 3 cases" in result.output.replace("\n", " ")
    assert served == [3, 32, 32, 8]
    assert list(tmp_path.iterdir()) == [folder]
    assert read_answers(folder) == answers
    soak = read_soak(folder)
    assert soak.complete
    assert not soak.sound
    assert soak.requests == QUICK.requests
    wrong, failed, everything = soak.cases
    assert (wrong.finding, wrong.bugs, wrong.identical) == (Finding.BUG, 2, QUICK.requests - 2)
    assert (failed.finding, failed.bugs) == (Finding.BUG, QUICK.requests)
    assert "would not start" in str(failed.note)
    assert (everything.finding, everything.identical) == (Finding.IDENTICAL, QUICK.requests)
    assert everything.chunks > 0
    assert everything.cached_tokens > 0
    # The dry run that chose the pool foresaw what the engine did in it.
    (case,) = (case for case in CASES if case.name == "everything")
    requests = [(r.prompt, r.max_tokens) for r in draw(QUICK, tiny.vocabulary, 44)]
    policy = Policy(
        max_slots=case.slots,
        max_batch_tokens=case.max_batch_tokens or 0,
        block_size=case.block_size,
        prefix_cache=case.prefix_cache,
    )
    pool = tight_pool(requests, policy)
    assert f"KV pool of {pool} tokens" in everything.settings
    foreseen = preemptions(requests, policy, blocks=pool // case.block_size)
    assert everything.preemptions == foreseen > 0
    token, error = soak.differences
    assert (token.kind, token.position, token.error) == ("bug", 0, None)
    assert token.top2_margin is not None
    assert (error.position, error.error) == (None, "out of something")
