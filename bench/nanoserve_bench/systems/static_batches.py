"""Driving a system that works in static batches: n requests go in together and come out together.

A row of such a batch is held, and its request unfinished, until the whole batch returns, however
early its own tokens were there. What was generated beyond a request's length is discarded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nanoserve_bench.records import Hold, RunRecord, Settings, Shape, SystemRun

WHY_CLOSED = "a static batch is made up before it runs, of requests that are there"
"""Why there is no open loop over static batches."""


class GeneratedBatch(NamedTuple):
    """What a batch gave: the new tokens of each row, and when each step's tokens existed (ns)."""

    rows: tuple[tuple[int, ...], ...]
    step_ns: tuple[int, ...]


GenerateBatch = Callable[[Sequence[Sequence[int]], int], GeneratedBatch]
"""A generator: the prompts of a batch and the tokens wanted of its longest, to what came out."""


def run_static(
    prompts: Sequence[Sequence[int]],
    generate: GenerateBatch,
    *,
    max_tokens: Sequence[int],
    slots: int,
    by_length: bool = False,
    system: str,
    settings: Settings,
    clock: Callable[[], int] = time.monotonic_ns,
) -> SystemRun:
    """Run prompts in batches of `slots` rows, one batch after the other.

    All requests arrive at once and are submitted at once; those of later batches queue.

    Args:
        prompts: Token ids of each request.
        generate: The generator of a batch.
        max_tokens: Tokens to ask for, per request.
        slots: Rows of a batch; the last one may have fewer.
        by_length: Whether batches are made of prompts sorted by length, so that a batch has little
            padding; otherwise they are made in the order of arrival.
        system: Name of the system.
        settings: What it runs under.
        clock: The clock of the generator's stamps, ns.
    """
    order = list(range(len(prompts)))
    if by_length:
        order.sort(key=lambda index: len(prompts[index]))
    arrival_ns = clock()
    acquired_ns = arrival_ns
    records: dict[int, RunRecord] = {}
    for start in range(0, len(order), slots):
        batch = order[start : start + slots]
        generated = generate(
            [prompts[index] for index in batch], max(max_tokens[index] for index in batch)
        )
        # One stamp: where a batch ends the next begins, and no row is free in between.
        finished_ns = clock()
        for index, row in zip(batch, generated.rows, strict=True):
            kept = row[: max_tokens[index]]
            stamps = generated.step_ns[: len(kept)]
            records[index] = RunRecord(
                request=str(index),
                prompt_ids=tuple(prompts[index]),
                output_ids=kept,
                max_tokens=max_tokens[index],
                arrival_ns=arrival_ns,
                submitted_ns=arrival_ns,
                holds=(Hold(acquired_ns, finished_ns),),
                first_token_ns=stamps[0] if stamps else None,
                finished_ns=finished_ns,
                token_ns=stamps,
                discarded_tokens=len(row) - len(kept),
                cached_tokens=0,
                finish_reason="length" if len(kept) == max_tokens[index] else "stop",
            )
        acquired_ns = finished_ns
    return SystemRun(
        system=system,
        shape=Shape.CONCURRENT,
        slots=slots,
        records=tuple(records[index] for index in range(len(prompts))),
        settings=settings,
    )
