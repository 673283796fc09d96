"""Whether the start ledger accounts for every time that this plan was started."""

from __future__ import annotations

import itertools

from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rule import Inspection, StudyRule

MOST_EMPTY_STARTS = 3
"""Starts that may have ended before their first block was complete."""


def _ledger(evidence: Evidence, inspection: Inspection) -> None:
    manifest = evidence.results.manifest
    ledger = manifest.ledger
    inspection.saw(len(ledger))

    def refuse(message: str, index: int | None = None) -> None:
        column = "ledger" if index is None else f"ledger[{index}]"
        inspection.refuse_study(message, file="manifest.json", column=column)

    if not ledger:
        return
    first = ledger[0]
    if first.first_block != 0:
        refuse(
            f"the first start begins at block {first.first_block}: earlier starts are missing", 0
        )
    for index, start in enumerate(ledger):
        for what, value, expected in (
            ("revision", start.revision, first.revision),
            ("state of the working tree", start.dirty, first.dirty),
            ("machine", start.machine, manifest.machine),
        ):
            if value != expected:
                refuse(
                    f"the {what} of start {index} is {value!r}, and the study's is {expected!r}: "
                    "its blocks are not of one thing",
                    index,
                )
    for index, (earlier, later) in enumerate(itertools.pairwise(ledger), start=1):
        if later.first_block < earlier.first_block:
            refuse(
                f"start {index} begins again at block {later.first_block}, after blocks up to "
                f"{earlier.first_block} were there: measured blocks were thrown away",
                index,
            )
        if not (earlier.outcome == "interrupted" or earlier.outcome.startswith("failed")):
            refuse(
                f"start {index - 1} is {earlier.outcome!r}, and another start follows it: the "
                "study does not account for both",
                index - 1,
            )
    last = ledger[-1]
    if last.outcome != "completed":
        refuse(f"the last start is {last.outcome!r}, not completed", len(ledger) - 1)
    done = len({trial.block for trial in evidence.trials})
    bounds = [start.first_block for start in ledger] + [done]
    if last.first_block > done:
        refuse(f"the last start begins at block {last.first_block} of {done}", len(ledger) - 1)
    # A last start may find everything measured and only write the summary.
    empty = sum(1 for begin, end in itertools.pairwise(bounds[:-1]) if begin == end)
    if empty > MOST_EMPTY_STARTS:
        refuse(
            f"{empty} starts ended without a block, and {MOST_EMPTY_STARTS} are accounted for: "
            "what they measured is unknown"
        )


LEDGER = StudyRule(
    code="STAT006",
    name="starts-accounted-for",
    sentence="Every start of the plan led to the blocks that are there, on one revision and machine.",
    rationale=(
        "The best of ten sweeps is a sweep of the noise. The manifest keeps every start: none may "
        "follow a completed one, none may throw measured blocks away, all but a few must have "
        "added a block, and all ran the same commit on the same machine."
    ),
    remedy="Publish the sweep that was started first, or plan a new one under another run id.",
    check=_ledger,
)
