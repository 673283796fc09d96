"""Whether the device could have done what the run says it did."""

from __future__ import annotations

from fractions import Fraction

from nanoserve_bench.soundness.evidence import Evidence, Trial
from nanoserve_bench.soundness.physical import multiply_rate, read_rate
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule

MARGIN = Fraction(3, 2)
"""A run may exceed the highest ceiling of the sweep by this much.

The read bandwidth of one quiet machine was seen to wander between 23 and 33 GB/s from run to run, a
factor of 1.43; a card that was not synchronised exceeds its memory by whole factors.
"""


def _ceiling(evidence: Evidence, inspection: Inspection) -> None:
    highest: dict[tuple[str, str], tuple[float, float]] = {}
    blocks: set[tuple[int, str, str]] = set()
    for row in evidence.results.ceilings:
        place = (row.device, row.dtype)
        read, multiply = highest.get(place, (0.0, 0.0))
        highest[place] = (
            max(read, row.read_bytes_per_s), max(multiply, row.matmul_flop_per_s),
        )  # fmt: skip
        blocks.add((row.block, *place))
    for trial in evidence.measured:
        inspection.saw()
        place = (trial.cell.device, trial.cell.dtype)
        bytes_per_step = trial.launch.weight_bytes_per_step
        if (trial.block, *place) not in blocks:
            _refuse(inspection, trial, f"block {trial.block} measured no ceiling of {place}")
        elif bytes_per_step is None or bytes_per_step <= 0:
            _refuse(
                inspection,
                trial,
                "the system does not say how many bytes of weights a step reads "
                f"({bytes_per_step}), so its throughput cannot be held against the device",
                file="systems.csv",
            )
        elif trial.figures is None:
            _refuse(inspection, trial, "the run has no wall to hold against the ceiling")
        else:
            _compare(inspection, trial, bytes_per_step, *highest[place])


def _compare(
    inspection: Inspection, trial: Trial, bytes_per_step: int, read: float, multiply: float
) -> None:
    for what, unit, rate, ceiling in (
        ("reads weights at", "GB/s", read_rate(trial.run, bytes_per_step), read),
        (
            "multiplies at",
            "GFLOP/s",
            multiply_rate(trial.run, bytes_per_step, trial.cell.dtype),
            multiply,
        ),
    ):
        if rate is not None and rate > MARGIN * Fraction(ceiling):
            _refuse(
                inspection,
                trial,
                f"it {what} {float(rate) / 1e9:.1f} {unit} at the very least, and the highest that "
                f"the device was seen to do is {ceiling / 1e9:.1f} {unit}",
            )


def _refuse(
    inspection: Inspection, trial: Trial, message: str, *, file: str = "ceilings.csv"
) -> None:
    inspection.refuse_trial(trial, Flaw(message), file=file)


CEILING = StudyRule(
    code="RUN018",
    name="below-ceiling",
    sentence="No run reads weights or multiplies faster than 1.5 times the device's best.",
    rationale=(
        "A step reads every weight that it uses, tied or not, and multiplies each with every row. "
        "A figure above what the memory delivers means that the device was not synchronised, that "
        "tokens were counted that no step produced, or that the answer was remembered. The run is "
        "held against the highest ceiling of the whole sweep, times 1.5, because a memory may read "
        "faster in the run than in the probe a minute earlier. A ceiling that is missing is "
        "refused: no evidence is not good evidence."
    ),
    remedy="Synchronise before stamps, measure the ceilings in every block, and state the bytes.",
    check=_ceiling,
)
