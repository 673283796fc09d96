"""What is run for the speed table: arms, trials and orders, as data."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.soundness.rules.stat_blocks import LEAST_FOR_A_RATIO

BASELINE, STATIC = "hf-generate", "hf-static"
ENGINE, ENGINE_PREFILL, TORCH = "nanoserve", "nanoserve-prefill", "nanoserve-torch"
STEP_PROBE = "step-probe"
RIVALS = ("openvino", "onnxruntime", "llamacpp", "vllm")
DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A trial of an arm: the first `requests` of a workload's prompts, in so many slots."""

    workload: str
    slots: int
    requests: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """A worker that is launched in a round: once, or once for every cell.

    Attributes:
        name: Its name in the records.
        system: Name of the system; empty for the probe, which is a process of its own.
        cells: Its trials, in ascending order of slots; reversed in every second round.
        ceilings: Whether it measures what the machine can do, after its trials.
        rival: Whether its absence is a hole and no failure.
        apart: Whether every cell has a launch of its own: where an engine loads its weights in
            another way for few slots than for many.
    """

    name: str
    system: str
    cells: tuple[Cell, ...]
    ceilings: bool = False
    rival: bool = False
    apart: bool = False

    def launches(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells of each launch."""
        return tuple((cell,) for cell in self.cells) if self.apart else (self.cells,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How large the run is.

    A serial or one-slot system works through its requests one after the other, so its rate does not
    depend on their number: it runs the first `serial_requests`. So does a static batch with
    `static_requests`. All others run all of them.
    """

    rounds: int
    requests: int
    prompt_tokens: int
    new_tokens: int
    serial_requests: int
    static_requests: int
    prefill_requests: int
    prefill_tokens: int

    def workloads(self) -> tuple[WorkloadPlan, ...]:
        """The workload of the table, and the prompts of which only the prefill is timed."""
        return (
            WorkloadPlan(
                name=DECODE,
                requests=self.requests,
                prompt_tokens=self.prompt_tokens,
                new_tokens=self.new_tokens,
                slots=(1, 8, 16, 32),
            ),
            WorkloadPlan(
                name=PREFILL,
                requests=self.prefill_requests,
                prompt_tokens=self.prefill_tokens,
                new_tokens=1,
                slots=(1,),
            ),
        )


FULL = Scale(
    rounds=LEAST_FOR_A_RATIO,
    requests=64,
    prompt_tokens=16,
    new_tokens=64,
    serial_requests=6,
    static_requests=16,
    prefill_requests=4,
    prefill_tokens=512,
)
QUICK = Scale(
    rounds=2,
    requests=32,
    prompt_tokens=16,
    new_tokens=8,
    serial_requests=2,
    static_requests=8,
    prefill_requests=1,
    prefill_tokens=256,
)


def arms_of(scale: Scale, *, rivals: bool) -> tuple[Arm, ...]:
    """The arms of a run."""

    def decode(*slots: int) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                workload=DECODE,
                slots=n,
                requests=scale.serial_requests if n == 1 else scale.requests,
            )
            for n in slots
        )

    prefill = (Cell(workload=PREFILL, slots=1, requests=scale.prefill_requests),)
    static = (Cell(workload=DECODE, slots=8, requests=scale.static_requests),)
    ours = (
        Arm(name=BASELINE, system="hf-generate", cells=(*decode(1), *prefill), ceilings=True),
        Arm(name=STATIC, system="hf-static", cells=static),
        Arm(name=ENGINE, system="nanoserve", cells=decode(1, 8, 16, 32), ceilings=True),
        # A launch of its own: room for long requests would make the KV pool of the others larger.
        Arm(name=ENGINE_PREFILL, system="nanoserve", cells=prefill),
        Arm(name=TORCH, system="nanoserve-torch", cells=decode(1, 8, 16, 32), apart=True),
        Arm(name=STEP_PROBE, system="", cells=decode(32)),
    )
    theirs = (Arm(name=n, system=n, cells=decode(1, 8, 16), rival=True) for n in RIVALS)
    return (*ours, *theirs) if rivals else ours


def orders(arms: Sequence[Arm], rounds: int, seed: int) -> tuple[tuple[str, ...], ...]:
    """The order of the arms in every round: a shuffle, its mirror image, another shuffle, ...

    So that a drift of the machine favours nobody; the same for the same seed on every Python.
    """
    result: list[tuple[str, ...]] = []
    for number in range(rounds):
        if number % 2:
            result.append(result[-1][::-1])
            continue
        source = random.Random(f"{seed}/perf/{number}")  # noqa: S311 - nothing secret
        keyed = sorted((source.random(), index) for index in range(len(arms)))
        result.append(tuple(arms[index].name for _, index in keyed))
    return tuple(result)
