"""Running the tests over one change at a time: a pytest session that forks for each of them.

`python -m support.mutating OUT MODULE...` collects the tests once. A first fork runs all of them
over the code as it is and tells which functions each of them reaches and how long it takes. Then
every change gets a fork that runs the tests which reach its function, quick files first, until one
fails. Nothing of the package runs in the process that forks, so that no change ever sees what
another one left behind. OUT becomes a JSON list of an outcome for each change.

The folders of mutants, of controls and of the sound study are written and read once and kept beside
OUT, and only the rules in question judge the mutants and controls. Tests that judge whole studies
reach every rule; over a change of a rule only those run that name a rule of its module.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NoReturn
from unittest import mock

import pytest
from _pytest.runner import runtestprotocol

from support import mutated
from support.mutated import Change
from support.selection import BENCH, codes_of, is_about, tests_of

Outcome = Literal["killed", "survived", "timed out"]
KILLED, BROKEN = 1, 2
KILLER = "killer"
LEAST_CPU_S, MOST_TIMES = 20, 10


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What a test did over the code as it is."""

    seconds: float
    functions: frozenset[str]


@dataclass(kw_only=True)
class Mutating:
    """The pytest plugin.

    Attributes:
        changes: What is changed, one at a time.
        work: A folder for what is kept and what is thrown away.
        outcomes: What came out, by the name of the change.
        killers: Of each function the tests that failed over a change of it; the last has the
            highest number.
    """

    changes: Sequence[Change]
    work: Path
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    killers: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        self.codes = {module: codes_of(module) for module in {c.module for c in self.changes}}
        self.wanted = frozenset[str]().union(*self.codes.values())

    def pytest_configure(self) -> None:
        """Have no test draw other examples than it drew over the code as it is."""
        from hypothesis import settings  # noqa: PLC0415 - pytest wants to load it itself

        settings.register_profile("mutation", derandomize=True, database=None, deadline=None)
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out tests of other rules."""
        items[:] = [item for item in items if is_about(item, self.wanted)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests over the code as it is, then over each change."""
        if session.testsfailed:
            raise session.Failed("tests could not be collected")
        gc.freeze()  # so that no fork touches, and thereby copies, what it shares with the others
        reach: dict[str, Reach] = _asked(lambda: self._over_the_code_as_it_is(session.items))
        running: dict[int, Change] = {}
        for number, change in enumerate(self.changes):
            if len(running) == (os.cpu_count() or 1):
                self._await(running)
            items = self._items_for(change, session.items, reach)
            pid = os.fork()
            if pid == 0:
                limit = MOST_TIMES * sum(reach[item.nodeid].seconds for item in items)
                self._try(change, items, LEAST_CPU_S + math.ceil(limit))
            running[pid] = change
            if number % 100 == 0:
                print(f"{number} of {len(self.changes)} changes", flush=True)
        while running:
            self._await(running)
        return True

    def _over_the_code_as_it_is(self, items: Sequence[pytest.Item]) -> dict[str, Reach]:
        mutated.activate(mutated.STATS)
        self._keep_folders(None)
        found = {}
        for item, following in zip(items, (*items[1:], None), strict=True):
            mutated.reached.clear()
            reports = runtestprotocol(item, log=False, nextitem=following)
            for report in reports:
                if report.failed:
                    raise RuntimeError(f"{item.nodeid} fails as it is:\n{report.longreprtext}")
            found[item.nodeid] = Reach(
                seconds=sum(report.duration for report in reports),
                functions=frozenset(mutated.reached),
            )
        return found

    def _items_for(
        self, change: Change, items: Iterable[pytest.Item], reach: dict[str, Reach]
    ) -> list[pytest.Item]:
        codes = self.codes[change.module]
        files = defaultdict(list)
        for item in items:
            if is_about(item, codes) and change.switch in reach[item.nodeid].functions:
                files[item.path].append((reach[item.nodeid].seconds, item))

        def mean(of_file: list[tuple[float, pytest.Item]]) -> float:
            return sum(seconds for seconds, _ in of_file) / len(of_file)

        ordered = [
            item
            for of_file in sorted(files.values(), key=mean)
            for _, item in sorted(of_file, key=lambda pair: pair[0])
        ]
        killers = self.killers[change.switch]
        return sorted(ordered, key=lambda item: -killers.get(item.nodeid, 0))

    def _try(self, change: Change, items: Sequence[pytest.Item], limit_s: int) -> NoReturn:
        """The life of a fork: the tests over one change, until one fails."""
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
            self._silence(os.getpid())
            mutated.activate(change.name)
            self._keep_folders(change)
            # What no test reaches has no items, and survives.
            for item, following in zip(items, (*items[1:], None), strict=False):
                reports = runtestprotocol(item, log=False, nextitem=following)
                if any(report.failed for report in reports):
                    (self._scratch(os.getpid()) / KILLER).write_text(item.nodeid, "utf-8")
                    os._exit(KILLED)
            os._exit(0)
        finally:
            os._exit(BROKEN)

    def _silence(self, pid: int) -> None:
        scratch = self._scratch(pid)
        scratch.mkdir()
        os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = str(scratch)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)

    def _scratch(self, pid: int) -> Path:
        return self.work / f"scratch-{pid}"

    def _await(self, running: dict[int, Change]) -> None:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        change = running.pop(pid)
        killer = self._scratch(pid) / KILLER
        if killer.is_file():
            # What killed last is tried first on the next change of the function.
            of_function = self.killers[change.switch]
            of_function[killer.read_text("utf-8")] = 1 + max(of_function.values(), default=0)
        shutil.rmtree(self._scratch(pid), ignore_errors=True)
        if code == BROKEN:
            raise RuntimeError(f"{change} could not be tried")
        ends: dict[int, Outcome] = {0: "survived", -signal.SIGXCPU: "timed out"}
        self.outcomes[change.name] = ends.get(code, "killed")
        if code == 0:
            print(f"survived: {change.module} {change.function}: {change.was} -> {change.became}")

    def _keep_folders(self, change: Change | None) -> None:
        """Have mutants and controls judged from what was kept of them, by the rules in question."""
        from support import asking, kill_table  # noqa: PLC0415 - once the package is changeable
        from support.mutants import Mutant  # noqa: PLC0415 - likewise
        from support.sound import study  # noqa: PLC0415 - likewise

        judging = importlib.import_module("nanoserve_bench.soundness.judge")
        readers = {rule.code for rule in judging.READ_RULES}
        codes = self.wanted if change is None else self.codes[change.module]
        afresh = kill_table.verdict_of

        def verdict_of(item: Any) -> Any:
            results = self._kept(item)
            if results is None:
                return afresh(item)
            asked = {item.rule} if change is None and isinstance(item, Mutant) else codes
            if not asked:
                return judging.judge(results)
            rules = tuple(r for r in judging.RULES if r.code in asked or r.code in readers)
            with mock.patch.multiple(judging, RULES=rules, assess=lambda *_: ({}, (), ())):
                return judging.judge(results)

        kill_table.verdict_of = verdict_of
        whole = SimpleNamespace(name="sound-study", write=lambda path: study().write(path))
        asking.sound = lambda _folder: self._kept(whole)

    def _kept(self, item: Any) -> Any:
        """The results of a mutant or a control; None where they cannot be read."""
        from nanoserve_bench.faults import ResultsError  # noqa: PLC0415 - likewise
        from nanoserve_bench.results import read  # noqa: PLC0415

        path = self.work / f"{item.name}.pickle"
        if not path.is_file():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    results = read(item.write(Path(folder) / "run"))
                except ResultsError:
                    results = None
            path.write_bytes(pickle.dumps(results))
        return pickle.loads(path.read_bytes())  # noqa: S301 - our own


def _asked(question: Callable[[], Any]) -> Any:
    """What a function returns that is called in a fork."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = pickle.dumps(question())
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(answer)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - nothing may come back from a fork
            traceback.print_exc()
        finally:
            os._exit(BROKEN)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit("the tests fail over the code as it is")
    return pickle.loads(answer)  # noqa: S301 - our own


def main(out: Path, modules: Sequence[str]) -> int:
    """Try all changes of the modules and write what came out."""
    os.fsync = lambda _: None  # hundreds of folders, none of which has to survive a power cut
    changes = mutated.install(modules)
    plugin = Mutating(changes=changes, work=out.parent)
    options = ("-q", "-s", "-p", "no:cacheprovider", f"--confcutdir={BENCH}")
    code = pytest.main([*options, *tests_of(modules)], plugins=[plugin])
    if code:
        return int(code)
    rows = [{**asdict(change), "outcome": plugin.outcomes[change.name]} for change in changes]
    out.write_text(json.dumps(rows), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
