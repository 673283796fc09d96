"""What the source document says, number by number: quoted, never measured here.

Origin: "Day 44: the outside baseline, and what a speedup is made of", 2026-08-25, the engineering
log of an earlier engine of the same name. Its machine, its engine and its model (Llama-3.2-1B, CPU,
float32) are not the ones measured on this site, so what can be compared is the shape and the
claims, not the absolute figures.
"""

from __future__ import annotations

from dataclasses import dataclass

TITLE = "Day 44: the outside baseline, and what a speedup is made of"
DATE = "2026-08-25"
SETTING = "Llama-3.2-1B, CPU, float32, 8 requests of 16 tokens on 6-token prompts, greedy"


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotedCell:
    """A row of the document's sweep table ("one sweep of three")."""

    system: str
    slots: int
    tok_per_s: float
    speedup: float
    batch: float
    per_slot_second: float
    queue_share_percent: int


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotedDoubling:
    """A row of the document's table of doublings ("over three sweeps")."""

    slots: int
    slot_ratio: float
    product: float
    verdict: str


SWEEP = (
    QuotedCell(system="hf-generate", slots=1, tok_per_s=2.44, speedup=1.00, batch=1.00,
               per_slot_second=1.00, queue_share_percent=0),
    QuotedCell(system="nanoserve", slots=1, tok_per_s=2.44, speedup=1.00, batch=1.00,
               per_slot_second=1.00, queue_share_percent=80),
    QuotedCell(system="nanoserve", slots=2, tok_per_s=3.38, speedup=1.38, batch=2.00,
               per_slot_second=0.69, queue_share_percent=60),
    QuotedCell(system="nanoserve", slots=4, tok_per_s=4.01, speedup=1.64, batch=4.00,
               per_slot_second=0.41, queue_share_percent=33),
    QuotedCell(system="nanoserve", slots=8, tok_per_s=3.62, speedup=1.48, batch=8.00,
               per_slot_second=0.19, queue_share_percent=0),
)  # fmt: skip
DOUBLINGS = (
    QuotedDoubling(slots=1, slot_ratio=0.68, product=1.35, verdict="worth it"),
    QuotedDoubling(slots=2, slot_ratio=0.59, product=1.19, verdict="worth it"),
    QuotedDoubling(slots=4, slot_ratio=0.45, product=0.90, verdict="not worth it"),
)
SINGLE_SLOT_RATIOS = (0.88, 1.00, 1.26)
"""The one-slot ratio in the document's three sweeps."""
HEADLINE_RANGE = (1.41, 2.02)
"""The headline speedup's range over the document's three sweeps, for identical code."""
BASELINE_RATES = (2.82, 2.44, 1.92)
"""The baseline's throughput in the three sweeps, in tok/s."""
FOUR_SLOT_RATES = (3.96, 4.01, 3.88)
"""The engine's at four slots in the same sweeps, in tok/s."""
ONE_SLOT_SYSTEM_OCCUPANCY = 4.83
PREFILL_RATIOS = {1: 1.09, 2: 1.05, 4: 0.99, 8: 0.74}
"""The engine's prefill beside the baseline's TTFT, by slots, as the document prints it."""
BATCH_OCCUPANCIES = {1: 1.0000, 2: 2.0000, 4: 4.0001, 8: 8.0002}
