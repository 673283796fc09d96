"""How long a worker may take before it counts as hung: far beyond any honest one, seconds."""

from __future__ import annotations

from nanoserve_bench.meters import MOST_SETTLE_S

CEILINGS_S = 300.0
TRIAGE_S = 600.0
SETTLE_S = MOST_SETTLE_S + 60.0


def trial_s(tokens: int) -> float:
    """Of a trial that computes so many tokens."""
    return 120.0 + 5.0 * tokens
