"""What a run must have read and multiplied at the very least, for holding it against the device.

The count of forward passes comes from the step log where there is one. Otherwise it is what no
scheduler can undercut: one token per request and pass, and no more rows in a pass than slots.
"""

from __future__ import annotations

from fractions import Fraction

from nanoserve_bench.records import NS_PER_S, Shape, SystemRun
from nanoserve_bench.trialset import StepLog

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


def forward_passes(run: SystemRun) -> int:
    """Forward passes that the run took, or cannot have done without."""
    if isinstance(run.steps, StepLog):
        return run.steps.passes
    if run.steps is not None:
        return sum(1 for step in run.steps if step.prefill_rows or step.decode_rows)
    if run.shape is Shape.SERIAL:
        return run.output_tokens
    return max(run.totals.longest_output, -(-run.output_tokens // run.slots))


def read_rate(run: SystemRun, weight_bytes_per_step: int) -> Fraction:
    """Bytes of weights per second that the run must have read over its whole wall."""
    return Fraction(forward_passes(run) * weight_bytes_per_step * NS_PER_S, run.wall_ns)


def multiply_rate(run: SystemRun, weight_bytes_per_step: int, dtype: str) -> Fraction | None:
    """Floating-point operations per second of the output tokens alone, two per weight.

    None for a dtype whose weights have no fixed size here.
    """
    if dtype not in ITEM_BYTES:
        return None
    weights = Fraction(weight_bytes_per_step, ITEM_BYTES[dtype])
    return 2 * weights * run.output_tokens * NS_PER_S / run.wall_ns
