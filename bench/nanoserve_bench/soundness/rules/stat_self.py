"""Whether the study knows its own noise: the same thing twice, beside every comparison."""

from __future__ import annotations

from nanoserve_bench.soundness.evidence import DOUBLING, Evidence, is_self_pair, self_pairs
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.statistics import EQUIVALENCE, estimate


def _self(evidence: Evidence, inspection: Inspection) -> None:
    planned = [pair for pair in evidence.pairs if pair.kind != DOUBLING]
    if not planned:
        inspection.not_applicable = "the plan compares nothing"
    for pair in planned:
        inspection.saw()
        if not self_pairs(pair.candidate, evidence.pairs):
            inspection.refuse_pair(
                pair,
                Flaw(
                    "no A/A pair was measured on the same device, dtype and workload: how far a "
                    "ratio strays by itself is unknown"
                ),
                block=None,
            )
        ratios = [comparison.speedup for comparison in pair.comparisons.values()]
        if is_self_pair(pair) and len(ratios) >= 2:
            ratio = estimate(ratios)
            if ratio.low > 1 + EQUIVALENCE or ratio.high < 1 / (1 + EQUIVALENCE):
                inspection.refuse_pair(
                    pair,
                    Flaw(
                        "the same system measured twice differs: the whole interval of its ratio "
                        f"lies beyond {EQUIVALENCE:.0%}, so something favours a side"
                    ),
                    block=None,
                )


SELF = StudyRule(
    code="STAT005",
    name="a-a-agrees",
    sentence="Every comparison stands beside an A/A pair, whose ratio is 1 within 3 %.",
    rationale=(
        "An effect inside of what the same code shows against itself is no effect. The hull of the "
        "A/A intervals is the envelope that a speedup must leave before it is called one; without "
        "an A/A pair there is no envelope. An A/A whose whole interval lies beyond the equivalence "
        "margin says that order, machine or harness favours a side, and its study is refused."
    ),
    remedy="Add an arm that runs the baseline again; look for what differs between its two arms.",
    check=_self,
)
