"""Mutants of the rules about requests: stamps, counts, lengths (RUN001 to RUN008)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nanoserve_bench.schema import RequestRow, token_digest
from support.mutants.base import (
    Mutant,
    mutants_of,
    short_outputs,
)
from support.rebuild import (
    ALL_CELLS,
    BASE,
    change,
    change_arm,
    engine,
    measured,
    replace,
    rerun,
    set_plan,
)
from support.sound import Study, study


def _empty_trial() -> Study:
    broken = study()
    broken.edit("requests", lambda _: None, where=measured(engine(4)), blocks=[2])
    broken.edit("steps", lambda _: None, where=measured(engine(4)), blocks=[2])
    return broken


def _no_output() -> Study:
    broken = study()
    for index, block in enumerate(broken.blocks):
        broken.blocks[index] = replace(block, outputs=(*block.outputs, ()))
    return change(
        broken,
        "requests",
        cell=engine(2),
        output_sha256=token_digest(()),
        output_tokens=0,
        token_ns=(),
    )


def _shorter_stamps(row: RequestRow) -> tuple[int, ...]:
    return (row.token_ns or ())[:-2]


def _behind_eos() -> Study:
    """All cells generate on behind the id that the decoding declares as the end."""
    broken = rerun(
        set_plan(study(), decoding="greedy;eos=2"),
        ALL_CELLS,
        step_ms=lambda trial, rows: 34.0 + 3 * rows if "nanoserve" in trial.cell else 62.0,
        outputs=lambda index, ids: (*ids[:9], 2, 2, *ids[11:]) if index == 3 else ids,
    )
    return change_arm(broken, None, decoding="greedy;eos=2")


def _honouring_eos(outputs: Callable[[int, tuple[int, ...]], tuple[int, ...]]) -> Study:
    """EOS is honoured on every side, and outputs that ended early say stop."""
    broken = rerun(
        set_plan(study(), decoding="greedy;eos=2"),
        ALL_CELLS,
        step_ms=lambda trial, rows: 34.0 + 3 * rows if "nanoserve" in trial.cell else 62.0,
        outputs=outputs,
    )
    change(
        broken,
        "requests",
        max_tokens=16,
        finish_reason=lambda row: "length" if row.output_tokens == 16 else "stop",
    )
    return change_arm(broken, None, decoding="greedy;eos=2")


def _edited(table: str, edit: Callable[[Any], Any], **where: Any) -> Study:
    broken = study()
    assert broken.edit(table, edit, **where)
    return broken


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "RUN001",
        ("empty-trial", "One trial has no requests.", _empty_trial),
        ("no-output", "A cell produced nothing, and took its time.", _no_output),
        (
            "zero-wall",
            "All requests of a trial start and end in one instant: 1e14 tok/s.",
            lambda: change(
                study(),
                "requests",
                cell=engine(8),
                blocks=[0],
                arrival_ns=5,
                submitted_ns=5,
                finished_ns=5,
            ),
        ),
    ),
    *mutants_of(
        "RUN002",
        (
            "failed-with-zeros",
            "A failed request with zeros in its stamps enters the mean.",
            lambda: change(
                study(),
                "requests",
                cell=engine(4),
                request="r2",
                blocks=[1],
                finish_reason="error",
                error="out of memory",
                first_token_ns=0,
            ),
        ),
        (
            "aborted",
            "An aborted request counts as served.",
            lambda: change(study(), "requests", cell=BASE, request="r2", finish_reason="abort"),
        ),
        ("ok-without-tokens", "Requests say length, and have no token at all.", _no_output),
        (
            "ok-with-an-error",
            "A request says length, and carries an error.",
            lambda: change(
                study(), "requests", cell=engine(2), request="r6", blocks=[5], error="timed out"
            ),
        ),
    ),
    *mutants_of(
        "RUN003",
        (
            "finish-missing",
            "One request never finished, and its cell has a mean all the same.",
            lambda: change(
                study(), "requests", cell=engine(4), request="r5", blocks=[3], finished_ns=None
            ),
        ),
        (
            "hold-missing",
            "One request of a trial does not tell when it held its slot.",
            lambda: change(study(), "requests", cell=BASE, request="r5", blocks=[3], holds_ns=None),
        ),
    ),
    *mutants_of(
        "RUN004",
        (
            "first-token-blank",
            "A system that stamps first tokens left them out in one trial.",
            lambda: change(study(), "requests", cell=BASE, blocks=[3], first_token_ns=None),
        ),
        (
            "undeclared-stamps",
            "Token stamps appear on a system that says it has none.",
            lambda: change_arm(study(), "nanoserve", stamps="holds first_token steps"),
        ),
        (
            "step-log-missing",
            "An engine that keeps a step log has none in one trial.",
            lambda: _edited("steps", lambda _: None, where=measured(engine(4)), blocks=[3]),
        ),
        (
            "unknown-stamp",
            "A system says that it stamps something nobody knows.",
            lambda: change_arm(study(), "nanoserve", stamps="holds first_token tokens steps vibes"),
        ),
        (
            "slots-of-two-kinds",
            "A system says that its slots are rows, and that they are connections.",
            lambda: change_arm(
                study(), "nanoserve", stamps="holds holds=connection first_token tokens steps"
            ),
        ),
    ),
    *mutants_of(
        "RUN005",
        (
            "first-token-zero",
            "A first token of 0.",
            lambda: change(
                study(), "requests", cell=BASE, request="r0", blocks=[0], first_token_ns=0
            ),
        ),
        (
            "arrival-negative",
            "An arrival before the clock began.",
            lambda: change(study(), "requests", cell=BASE, request="r0", blocks=[0], arrival_ns=-1),
        ),
        (
            "tokens-backwards",
            "Two token stamps of a request change places.",
            lambda: change(
                study(),
                "requests",
                cell=BASE,
                request="r0",
                blocks=[0],
                token_ns=lambda row: (
                    row.token_ns[0],
                    row.token_ns[2],
                    row.token_ns[1],
                    *row.token_ns[3:],
                ),
            ),
        ),
        (
            "finish-before-the-end",
            "A finish that is earlier than the last token.",
            lambda: change(
                study(),
                "requests",
                cell=BASE,
                request="r7",
                blocks=[0],
                finished_ns=lambda row: row.token_ns[-2],
            ),
        ),
        (
            "held-before-submission",
            "A slot that was held before the request was there.",
            lambda: change(
                study(),
                "requests",
                cell=engine(1),
                request="r0",
                blocks=[0],
                arrival_ns=lambda row: row.arrival_ns + 50_000_000,
                submitted_ns=lambda row: row.submitted_ns + 50_000_000,
            ),
        ),
        (
            "first-token-before-its-stamp",
            "A TTFT that is half of what the token stamps say.",
            lambda: change(
                study(),
                "requests",
                cell=engine(8),
                first_token_ns=lambda row: (row.holds_ns[0].acquired_ns + row.token_ns[0]) // 2,
            ),
        ),
    ),
    *mutants_of(
        "RUN006",
        (
            "more-than-asked",
            "Padding behind a request's length counts as output, on every side.",
            lambda: change(study(), "requests", max_tokens=15),
        ),
        (
            "chunk-as-one-stamp",
            "A chunk of three tokens has one stamp.",
            lambda: change(
                study(), "requests", cell=engine(4), request="r1", token_ns=_shorter_stamps
            ),
        ),
        (
            "negative-discard",
            "Discarded tokens below zero.",
            lambda: change(study(), "requests", cell=engine(4), discarded_tokens=-1),
        ),
    ),
    *mutants_of(
        "RUN007",
        (
            "asked-in-place-of-produced",
            "The count of output tokens is not that of the ids.",
            lambda: change(study(), "requests", cell=engine(4), output_tokens=17),
        ),
        (
            "prompt-miscounted",
            "The count of prompt tokens is not that of the ids.",
            lambda: change(study(), "requests", cell=BASE, prompt_tokens=600),
        ),
    ),
    *mutants_of(
        "RUN008",
        (
            "short-by-length",
            "All outputs end by length one token early, on every side.",
            lambda: short_outputs(ALL_CELLS, asked=False),
        ),
        ("behind-the-end", "Two EOS in mid-sequence count as output.", _behind_eos),
        (
            "stop-where-eos-is-ignored",
            "All outputs stop one token early, and the decoding ignores EOS.",
            lambda: change(short_outputs(ALL_CELLS, asked=False), "requests", finish_reason="stop"),
        ),
        (
            "stop-without-an-eos",
            "Outputs stop early where EOS is honoured, and none of them ends with it.",
            lambda: _honouring_eos(lambda index, ids: ids[: 9 + index]),
        ),
        (
            "eos-twice-at-the-end",
            "The EOS of one output is there twice, and both count.",
            lambda: _honouring_eos(lambda index, ids: (*ids[:9], 2, 2) if index == 2 else ids),
        ),
    ),
)
