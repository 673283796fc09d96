"""The account of the mutation tester: every survivor has a reason, and the copy runs as written."""

from __future__ import annotations

from collections import Counter

import pytest

from support import mutation, selection
from support.mutation import MODULES, RUNS, SURVIVORS, Run, Survivor
from support.unfolding import unfold

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
    assert {"records", "comparison"} <= {run.module for run in runs} <= {*MODULES}
    counts = Counter(survivor.module for survivor in survivors)
    assert {run.module: run.survived for run in runs if run.survived} == counts
    for run in runs:
        assert run.mutants == run.killed + run.timed_out + run.survived > 0


def test_properties_are_unfolded_and_stay_what_they_were() -> None:
    unfolded = unfold(SOURCE)
    assert "@property" not in unfolded
    assert "@cached_property" not in unfolded
    assert "@classmethod" in unfolded
    for source in (SOURCE, unfolded):
        names: dict[str, type] = {}
        exec(source, names)  # noqa: S102 - the text above
        square = names["Square"](3)
        assert (square.area, square.outline, names["Square"].unit().area) == (9, 12, 1)
        assert "outline" in vars(square), "it is computed once"


def test_a_module_is_held_to_the_tests_of_its_rules(request: pytest.FixtureRequest) -> None:
    codes = selection.codes_of("soundness.rules.run_tokens")
    assert codes == {"RUN022"}
    assert selection.codes_of("records") == frozenset()
    own = request.node
    assert selection.is_about(own, codes)
    assert selection.is_about(own, frozenset())


def test_a_test_of_whole_studies_is_about_the_rules_that_it_names(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "WHOLE", ("test_mutation",))
    assert selection.is_about(request.node, frozenset({"RUN" + "999"})) is False
    assert selection.is_about(request.node, frozenset({"STAT001"}))  # named here


def test_the_tests_that_are_looked_through_are_there() -> None:
    of_rules = ["soundness.rules.run_tokens", "soundness.rules.stat_self"]
    for modules in (["records"], [*selection.GATE], of_rules):
        for test in selection.tests_of(modules):
            file, _, function = test.partition("::")
            text = (mutation.ROOT / file).read_text("utf-8")
            assert not function or f"def {function}(" in text


def test_a_module_that_is_none_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no such module: everything"):
        mutation.main(["everything"])
