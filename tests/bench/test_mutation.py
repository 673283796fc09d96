"""The account of the mutation tester: every survivor has a reason, and the copy runs as written."""

from __future__ import annotations

from collections import Counter

import pytest

from support import mutation
from support.mutation import FREE, RULES, RUNS, SURVIVORS, Run, Survivor

SOURCE = '''
from functools import cached_property

class Square:
    """A square."""

    def __init__(self, side: int) -> None:
        self.side = side

    @property
    def area(self) -> int:
        """Its area."""
        return self.side * self.side

    @cached_property
    def outline(self) -> int:
        return 4 * self.side

    @classmethod
    def unit(cls) -> "Square":
        return cls(1)
'''


@pytest.fixture(scope="module")
def survivors() -> list[Survivor]:
    return mutation.load(SURVIVORS, Survivor)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return mutation.load(RUNS, Run)


def test_no_survivor_is_without_a_reason(survivors: list[Survivor]) -> None:
    assert [s for s in survivors if len(s.reason) < 20] == []


def test_the_two_files_tell_of_the_same_runs(survivors: list[Survivor], runs: list[Run]) -> None:
    assert {"records", "comparison"} <= {run.module for run in runs} <= {*FREE, *RULES}
    counts = Counter(survivor.module for survivor in survivors)
    assert {run.module: run.survived for run in runs if run.survived} == counts
    for run in runs:
        assert run.mutants == run.killed + run.timed_out + run.survived > 0


def test_properties_are_unfolded_and_stay_what_they_were() -> None:
    unfolded = mutation.unfold(SOURCE)
    assert "@property" not in unfolded
    assert "@cached_property" not in unfolded
    assert "@classmethod" in unfolded
    for source in (SOURCE, unfolded):
        names: dict[str, type] = {}
        exec(source, names)  # noqa: S102 - the text above
        square = names["Square"](3)
        assert (square.area, square.outline, names["Square"].unit().area) == (9, 12, 1)
        assert "outline" in vars(square), "it is computed once"


def test_a_module_is_held_to_the_mutants_of_its_rules() -> None:
    chosen = mutation.tests_of("soundness.rules.run_tokens")
    assert sum("[RUN022-" in test for test in chosen) >= 3
    assert not any("[RUN001-" in test for test in chosen)
    assert all((mutation.ROOT / test.partition("::")[0]).is_file() for test in chosen)


def test_a_module_that_is_none_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no such module: everything"):
        mutation.main(["everything"])
