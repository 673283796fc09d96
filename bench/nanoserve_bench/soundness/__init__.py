"""The gate: rules that refuse what is not sound, and the verdict that they come to."""

from nanoserve_bench.soundness.catalogue import RULES, rule_of
from nanoserve_bench.soundness.direct import check_concurrent, check_serial, compare
from nanoserve_bench.soundness.findings import Finding
from nanoserve_bench.soundness.judge import judge, judge_path
from nanoserve_bench.soundness.rule import Rule
from nanoserve_bench.soundness.verdict import (
    Acknowledged,
    RefusedCell,
    RefusedComparison,
    RefusedMarginal,
    RuleOutcome,
    SoundCell,
    SoundComparison,
    SoundMarginal,
    Verdict,
)

__all__ = [
    "RULES",
    "Acknowledged",
    "Finding",
    "RefusedCell",
    "RefusedComparison",
    "RefusedMarginal",
    "Rule",
    "RuleOutcome",
    "SoundCell",
    "SoundComparison",
    "SoundMarginal",
    "Verdict",
    "check_concurrent",
    "check_serial",
    "compare",
    "judge",
    "judge_path",
    "rule_of",
]
