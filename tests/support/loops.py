"""Engines that schedule in other ways, on the ruler: cut prompts, preemption, static batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from nanoserve_bench.records import Hold
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from support.rebuild import engine, rebuild, replace
from support.sound import MS, Study

PREEMPTED_AT, READMITTED_AT = 5, 8


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How an engine schedules.

    Attributes:
        pieces: Steps over which a prompt is spread; only the last one gives a token.
        preempts: Whether the youngest request loses its slot at step 5, until step 8.
        keeps: Whether a preempted request keeps its cache, and goes on with a decode row.
        static: Whether slots are filled only when all are empty, and held until all rows are done.
    """

    pieces: int = 1
    preempts: bool = False
    keeps: bool = False
    static: bool = False


@dataclass(kw_only=True)
class _State:
    """A request as it goes through an engine."""

    row: RequestRow
    pieces: int
    since: int | None = None
    holds: list[Hold] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    discarded: int = 0

    def leave(self, clock: int) -> None:
        assert self.since is not None
        self.holds.append(Hold(self.since, clock))
        self.since = None

    @property
    def done(self) -> bool:
        return len(self.stamps) == self.row.output_tokens

    def finished(self) -> RequestRow:
        made: RequestRow = replace(
            self.row,
            holds_ns=tuple(self.holds),
            first_token_ns=self.stamps[0],
            token_ns=tuple(self.stamps),
            finished_ns=self.holds[-1].released_ns,
            discarded_tokens=self.discarded,
        )
        return made


def scheduled(clean: Study, policy: Policy, slots: Sequence[int] = (2, 4, 8)) -> Study:
    """The engine's cells of so many slots run again by a policy."""
    rng = random.Random(11)

    def make(
        trial: TrialRow, requests: list[RequestRow], _steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        width = int(trial.cell.split("/")[3])
        states = [_State(row=row, pieces=policy.pieces) for row in requests]
        waiting, running = list(states), list[_State]()
        clock = max(row.arrival_ns for row in requests) + 500
        log: list[tuple[int, int, int, int, int]] = []
        while waiting or running:
            number = len(log)
            if policy.preempts and number == PREEMPTED_AT and len(running) > 1:
                victim = running.pop()
                victim.leave(clock)
                victim.pieces = 0 if policy.keeps else policy.pieces
                waiting.insert(0, victim)
            away = policy.preempts and PREEMPTED_AT <= number < READMITTED_AT
            room = width - 1 if away else width
            if policy.static and running:
                room = 0
            while waiting and len(running) < room:
                waiting[0].since = clock
                running.append(waiting.pop(0))
            prefill = [state for state in running if state.pieces]
            log.append(
                (clock, len(prefill), len(running) - len(prefill), len(running), len(waiting))
            )
            clock += round((34 + 3 * len(running)) * MS * (1 + 0.01 * rng.gauss(0, 1)))
            _advance(running, clock)
            if not policy.static:
                for state in [state for state in running if state.done]:
                    state.leave(clock)
                    running.remove(state)
            elif all(state.done for state in running):
                for state in running:
                    state.leave(clock)
                running.clear()
        log.append((clock, 0, 0, 0, 0))
        steps = [
            StepRow(
                block=trial.block, cell=trial.cell, warmup=False, step=number, start_ns=start,
                prefill_rows=prefill, decode_rows=decode, holders=holders, waiting=queue,
            )
            for number, (start, prefill, decode, holders, queue) in enumerate(log)
        ]  # fmt: skip
        return [state.finished() for state in states], steps

    return rebuild(clean, make, cells=[engine(count) for count in slots])


def _advance(running: Sequence[_State], clock: int) -> None:
    """What a step that ends at `clock` gives each of its rows."""
    for state in running:
        state.pieces = max(0, state.pieces - 1)
        if state.pieces:
            continue
        if state.done:
            state.discarded += 1
        else:
            state.stamps.append(clock)
