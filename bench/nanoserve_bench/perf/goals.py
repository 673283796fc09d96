"""The speed table, as data: what is set against what, and how much is asked for.

A figure is a quantity of one arm over a quantity of another, both from the same round. `figures`
works them out; nothing here computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nanoserve_bench.perf.arms import (
    BASELINE,
    DECODE,
    ENGINE,
    ENGINE_PREFILL,
    PREFILL,
    RIVALS,
    STATIC,
    STEP_PROBE,
    TORCH,
)

PROMPT = "{prompt_tokens}"
"""Stands in a title for the length of the prompts that the run really had."""


class Measure(StrEnum):
    """What is taken from a trial."""

    THROUGHPUT = "tok/s"
    """T / W, prefill included."""
    DECODE_RATE = "tok/s in full steps"
    """Tokens of decode steps in which every slot advances by one, over the time of these steps."""
    PER_SLOT_SECOND = "tok/slot-s"
    """T / S."""
    WEIGHT_RATE = "bytes/s"
    """Bytes of weights that a step reads, over the mean time of a full decode step."""
    PREFILL_RATE = "prefills/s"
    """Requests over the time until their first tokens."""
    OUTSIDE_S = "s"
    """Time of a full decode step outside the model's forward pass, the sampler included."""
    EXTRA_BYTES = "bytes"
    """Most memory of the process in its life, less the weights once and the KV pool."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A measure of one arm's trial."""

    arm: str
    measure: Measure
    slots: int = 1
    workload: str = DECODE


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The highest of one measure over several arms, by its geometric mean over the rounds."""

    arms: tuple[str, ...]
    measure: Measure
    slots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadBandwidth:
    """The rate at which the machine reads memory, the best that the round's probes saw."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """One row of the table.

    Attributes:
        key: Its name in files.
        title: What it says, for a reader.
        candidate: The engine's side.
        reference: What it is divided by; None for an absolute figure.
        goal: The least that is asked for, or the most where `at_most`.
        at_most: Whether less is better.
        unit: `x` for a ratio; that of the absolute figure otherwise.
        per_unit: How many of the measure's own units one `unit` is.
    """

    key: str
    title: str
    candidate: Quantity
    reference: Quantity | Best | ReadBandwidth | None
    goal: float
    at_most: bool = False
    unit: str = "x"
    per_unit: float = 1.0


def _against_baseline(arm: str, slots: int, goal: float, *, key: str, title: str) -> Goal:
    return Goal(
        key=f"{key}-{slots}",
        title=title,
        candidate=Quantity(arm=arm, measure=Measure.THROUGHPUT, slots=slots),
        reference=Quantity(arm=BASELINE, measure=Measure.THROUGHPUT),
        goal=goal,
    )


def _slots(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"


GOALS: tuple[Goal, ...] = (
    *(
        _against_baseline(
            ENGINE, slots, goal, key="speedup", title=f"{_slots(slots)} against {BASELINE}"
        )
        for slots, goal in ((1, 2.8), (8, 20.0), (16, 28.0), (32, 30.0))
    ),
    *(
        Goal(
            key=f"decode-{rows}",
            title=f"full decode steps alone, {rows} rows, against {BASELINE}'s one-row step",
            candidate=Quantity(arm=ENGINE, measure=Measure.DECODE_RATE, slots=rows),
            reference=Quantity(arm=BASELINE, measure=Measure.DECODE_RATE),
            goal=goal,
        )
        for rows, goal in ((8, 23.0), (16, 35.0), (32, 38.0))
    ),
    *(
        Goal(
            key=f"rivals-{slots}",
            title=f"{_slots(slots)} against the best rival",
            candidate=Quantity(arm=ENGINE, measure=Measure.THROUGHPUT, slots=slots),
            reference=Best(arms=RIVALS, measure=Measure.THROUGHPUT, slots=slots),
            goal=goal,
        )
        for slots, goal in ((1, 1.0), (8, 1.15), (16, 1.15))
    ),
    Goal(
        key="per-slot-8",
        title="tokens per slot-second at 8 slots against its own at 1",
        candidate=Quantity(arm=ENGINE, measure=Measure.PER_SLOT_SECOND, slots=8),
        reference=Quantity(arm=ENGINE, measure=Measure.PER_SLOT_SECOND),
        goal=0.85,
    ),
    Goal(
        key="bandwidth-1",
        title="weights read per second of a decode step at 1 slot, of the measured read bandwidth",
        candidate=Quantity(arm=ENGINE, measure=Measure.WEIGHT_RATE),
        reference=ReadBandwidth(),
        goal=80.0,
        unit="%",
        per_unit=0.01,
    ),
    Goal(
        key="static-8",
        title="8 slots against generate on one static batch of 8",
        candidate=Quantity(arm=ENGINE, measure=Measure.THROUGHPUT, slots=8),
        reference=Quantity(arm=STATIC, measure=Measure.THROUGHPUT, slots=8),
        goal=4.0,
    ),
    Goal(
        key="prefill",
        title=f"prefill of {PROMPT} tokens against {BASELINE}'s",
        candidate=Quantity(arm=ENGINE_PREFILL, measure=Measure.PREFILL_RATE, workload=PREFILL),
        reference=Quantity(arm=BASELINE, measure=Measure.PREFILL_RATE, workload=PREFILL),
        goal=1.2,
    ),
    Goal(
        key="outside-32",
        title="time per decode step outside the model at 32 slots, sampler included",
        candidate=Quantity(arm=STEP_PROBE, measure=Measure.OUTSIDE_S, slots=32),
        reference=None,
        goal=1.0,
        at_most=True,
        unit="ms",
        per_unit=1e-3,
    ),
    Goal(
        key="memory-32",
        title="peak memory beyond the weights once and the KV pool, loading included",
        candidate=Quantity(arm=STEP_PROBE, measure=Measure.EXTRA_BYTES, slots=32),
        reference=None,
        goal=0.6,
        at_most=True,
        unit="GB",
        per_unit=1e9,
    ),
    *(
        _against_baseline(
            TORCH,
            slots,
            goal,
            key="torch",
            title=f"pure torch, {_slots(slots)}, against {BASELINE}",
        )
        for slots, goal in ((1, 1.7), (8, 11.0), (16, 15.0), (32, 18.0))
    ),
)
