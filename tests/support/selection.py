"""Which tests the mutation tester runs over which modules."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from functools import cache

import pytest

BENCH, SOUNDNESS = "tests/bench", "tests/bench/soundness"
PACKAGE = "nanoserve_bench"
FREE = ("records", "comparison")
RULES = "soundness.rules."
GATE = ("soundness.rule", "soundness.direct", "soundness.verdict", "soundness.judge")
"""What applies the rules, whichever they are: held to tests of its own."""
HELPERS = {
    "soundness.likeness": "soundness.rules.run_copies",
    "soundness.repeats": "soundness.rules.run_copies",
    "soundness.physical": "soundness.rules.run_ceiling",
}
"""What one module of rules alone is built on: held to the tests of those rules."""
FOLDERS = (
    f"{SOUNDNESS}/test_mutants.py::test_a_mutant_is_refused_by_the_rule_meant_for_it",
    f"{SOUNDNESS}/test_mutants.py::test_a_clean_control_is_accepted_whole",
)
PROPERTIES = (
    f"{SOUNDNESS}/test_mutants.py::test_slots_of_another_kind_leave_holes_and_a_speedup",
    f"{SOUNDNESS}/test_mutants.py::test_declared_weights_are_accepted_and_not_called_proven",
)
"""Tests of what a verdict says of its comparisons."""
WHOLE = (
    "test_borders",
    "test_details",
    "test_thresholds",
    "test_judge",
    "test_run_places",
    "test_stat_rules",
    "test_report_rules",
)
"""Tests that judge whole studies."""
COPIES = ("test_likeness", "test_copies", "test_run_copies")
CODE, NAME = re.compile(r"\b[A-Z]+\d{3}\b"), re.compile(r"\b[a-z_]\w*")


def tests_of(modules: Sequence[str]) -> tuple[str, ...]:
    """Where to look for tests that reach the modules."""
    own = tuple(f"{BENCH}/test_{name}.py" for name in FREE)
    if set(modules) <= set(FREE):
        return own
    direct = (f"{BENCH}/test_offered_load.py", own[-1])
    if set(modules) <= set(GATE):
        files = ("test_gate", "test_judge", "test_run_rules", "test_pair_rules")
        return (*(f"{SOUNDNESS}/{name}.py" for name in files), *PROPERTIES, *direct)
    files = ("test_run_rules", "test_pair_rules", *COPIES, "test_physical", *WHOLE, "test_profile")
    return (*FOLDERS, *(f"{SOUNDNESS}/{name}.py" for name in files), *direct)


def codes_of(module: str) -> frozenset[str]:
    """The codes of the rules of a module, or of those built on it; none where it has none."""
    from nanoserve_bench.soundness.rule import Rule  # noqa: PLC0415 - once it is changeable

    module = HELPERS.get(module, module)
    if not module.startswith(RULES):
        return frozenset()
    found = vars(importlib.import_module(f"{PACKAGE}.{module}")).values()
    return frozenset(item.code for item in found if isinstance(item, Rule))


def is_about(item: pytest.Item, codes: frozenset[str]) -> bool:
    """Whether a test may have something to say about the rules; of none given, every test has."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    if not codes:
        return True
    if "mutant" in params:
        return params["mutant"].rule in codes
    if item.path.stem not in WHOLE:
        return True
    asked = {value for value in params.values() if isinstance(value, str) and CODE.fullmatch(value)}
    return not codes.isdisjoint(asked or _named(item.function))


@cache
def _named(test: Callable[..., None]) -> frozenset[str]:
    """The codes of rules that a test names, or what it calls in its own file."""
    found: set[str] = set()
    seen, looked_at = {test}, [test]
    while looked_at:
        function = looked_at.pop()
        source = inspect.getsource(function)
        found.update(CODE.findall(source))
        for name in NAME.findall(source):
            named = function.__globals__.get(name)
            if inspect.isfunction(named) and named.__module__ == function.__module__:
                looked_at += {named} - seen
                seen.add(named)
    return frozenset(found)
