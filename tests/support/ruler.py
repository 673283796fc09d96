"""Single runs with stamps placed by hand, in milliseconds on a ruler."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from nanoserve_bench.records import Hold, RunRecord, Settings, Shape, StepRecord, SystemRun

MS = 1_000_000

SETTINGS = Settings(
    machine="m1",
    device="cpu",
    dtype="float32",
    matmul_precision="ieee",
    threads=2,
    weights="sha256:" + "a" * 64,
    tokenizer="none",
    decoding="greedy;ignore_eos",
    cache="off",
)


def record(
    number: int,
    *,
    arrival: float = 0,
    holds: Sequence[tuple[float, float]] = ((0, 100),),
    first: float | None = None,
    tokens: int = 4,
    **values: Any,
) -> RunRecord:
    """A request whose tokens are evenly spaced from `first` to its finish (times in ms)."""
    start, end = holds[0][0], holds[-1][1]
    first = first if first is not None else start + (holds[0][1] - start) / tokens
    gap = (end - first) / (tokens - 1) if tokens > 1 else 0
    fields: dict[str, Any] = {
        "request": f"r{number}",
        "prompt_ids": (number, 1, 2),
        "output_ids": tuple(range(10 * number, 10 * number + tokens)),
        "max_tokens": tokens,
        "arrival_ns": ns(arrival),
        "submitted_ns": ns(arrival),
        "holds": tuple(Hold(ns(a), ns(b)) for a, b in holds),
        "first_token_ns": ns(first),
        "finished_ns": ns(end),
        "token_ns": tuple(ns(first + gap * i) for i in range(tokens)),
        "cached_tokens": 0,
    }
    return RunRecord(**{**fields, **values})


def ns(ms: float) -> int:
    """Milliseconds as the integer that a stamp is, counted from a second after the clock began."""
    return round(ms * MS) + 1000 * MS


def serial(count: int = 4, *, ms: float = 100, gap: float = 0, **settings: Any) -> SystemRun:
    """Requests of `ms` one after the other, `gap` apart."""
    records = tuple(
        record(i, arrival=i * (ms + gap), holds=((i * (ms + gap), i * (ms + gap) + ms),))
        for i in range(count)
    )
    return SystemRun(
        system="serial",
        shape=Shape.SERIAL,
        slots=1,
        records=records,
        settings=dataclasses.replace(SETTINGS, **settings),
    )


def concurrent(
    count: int = 4, *, slots: int = 2, used: int | None = None, ms: float = 100, **settings: Any
) -> SystemRun:
    """Requests handed over at once, `used` at a time of `slots`, each `ms` in its slot."""
    width = used or slots
    records = tuple(
        record(i, holds=((i // width * ms, (i // width + 1) * ms),)) for i in range(count)
    )
    starts = sorted({r.holds[0].acquired_ns for r in records if r.holds})
    steps = [
        StepRecord(
            start,
            0,
            sum(1 for r in records if r.holds and r.holds[0].acquired_ns == start),
            sum(1 for r in records if r.holds and r.holds[0].acquired_ns == start),
            0,
        )
        for start in starts
    ]
    end = max(r.finished_ns or 0 for r in records)
    return SystemRun(
        system="concurrent",
        shape=Shape.CONCURRENT,
        slots=slots,
        records=records,
        settings=dataclasses.replace(SETTINGS, **settings),
        steps=(*steps, StepRecord(end, 0, 0, 0, 0)),
    )


def edited(run: SystemRun, number: int, **values: Any) -> SystemRun:
    """The run with fields of one of its records changed."""
    records = list(run.records)
    records[number] = dataclasses.replace(records[number], **values)
    return dataclasses.replace(run, records=tuple(records))
