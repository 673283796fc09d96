"""Running a mutation tester over the arithmetic and the rules, and keeping account of survivors.

`python -m support.mutation [MODULE...]` (`nox -s mutation` does it) changes one thing at a time in
the modules (`support.mutated`), runs the tests that may notice (`support.mutating`), and holds
whatever no test notices against `tests/mutation/survivors.csv`: a survivor without a reason there
fails. What each run found goes to `tests/mutation/runs.csv`. Modules are named as below; without a
name all of them run.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TypeVar

from support.selection import FREE, GATE, HELPERS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "bench/nanoserve_bench"
WORK = ROOT / "build/mutation"
SURVIVORS, RUNS = (ROOT / "tests/mutation" / name for name in ("survivors.csv", "runs.csv"))
RULES = tuple(
    f"soundness.rules.{path.stem}"
    for path in sorted((PACKAGE / "soundness/rules").glob("[a-z]*.py"))
    if path.stem != "report_form"  # texts alone
)
MODULES = (*FREE, *GATE, *HELPERS, *RULES)


@dataclass(frozen=True, kw_only=True, order=True)
class Survivor:
    """A change that no test notices; `was` and `became` are lines of the source, stripped."""

    module: str
    function: str
    was: str
    became: str
    reason: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from others, whatever stands above it in its file."""
        return (self.module, self.function, self.was, self.became)


@dataclass(frozen=True, kw_only=True, order=True)
class Run:
    """What a run over a module found."""

    module: str
    mutants: int
    killed: int
    timed_out: int
    survived: int


Row = TypeVar("Row", Survivor, Run)


def run(modules: Sequence[str]) -> Iterator[tuple[Run, tuple[Survivor, ...]]]:
    """Mutate modules together; of each the account and what survived."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    out = WORK / "outcomes.json"
    subprocess.run(
        [sys.executable, "-m", "support.mutating", str(out), *modules], cwd=ROOT, check=True
    )
    rows = json.loads(out.read_text("utf-8"))
    for module in modules:
        mine = [row for row in rows if row["module"] == module]
        count = Counter(row["outcome"] for row in mine)
        alive = (
            Survivor(**{name: row[name] for name in ("module", "function", "was", "became")})
            for row in mine
            if row["outcome"] == "survived"
        )
        found = Run(
            module=module,
            mutants=len(mine),
            killed=count["killed"],
            timed_out=count["timed out"],
            survived=count["survived"],
        )
        yield found, tuple(sorted(alive))


def load(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of one of the two files."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = {field.name for field in fields(kind) if field.type == "int"}
    return [kind(**{k: int(v) if k in numbers else v for k, v in row.items()}) for row in rows]


def store(path: Path, kind: type[Row], rows: Iterable[Row]) -> None:
    """Write one of the two files."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(kind)])
        writer.writerows(astuple(row) for row in sorted(rows))


def record(found: Run, alive: Sequence[Survivor]) -> int:
    """Write down what a run over a module found; how many of its survivors have no reason."""
    known = {survivor.key: survivor for survivor in load(SURVIVORS, Survivor)}
    mine = {key for key in known if key[0] == found.module}
    print(found)
    without = 0
    for survivor in alive:
        if not known.get(survivor.key, survivor).reason:
            without += 1
            print(f"  no reason: {survivor.function}: {survivor.was} -> {survivor.became}")
    for key in sorted(mine - {s.key for s in alive}):
        print(f"  killed by now: {key[1]}: {key[2]} -> {key[3]}")
    kept = [s for key, s in known.items() if key[0] != found.module]
    store(SURVIVORS, Survivor, [*kept, *(known.get(s.key, s) for s in alive)])
    store(RUNS, Run, [*(r for r in load(RUNS, Run) if r.module != found.module), found])
    return without


def main(modules: Sequence[str]) -> int:
    """Run over modules, write what was found, and say what has no reason."""
    unknown = set(modules) - set(MODULES)
    if unknown:
        sys.exit(f"no such module: {', '.join(sorted(unknown))}; {', '.join(MODULES)}")
    wanted = [module for module in MODULES if module in modules or not modules]
    # The arithmetic is called by everything, which would only be slower for being changeable, and
    # what applies the rules is held to tests of its own.
    gate = [module for module in GATE if module in wanted]
    rest = [module for module in wanted if module not in {*FREE, *GATE}]
    groups = [*([module] for module in FREE if module in wanted), gate, rest]
    without = sum(record(*one) for group in groups if group for one in run(sorted(group)))
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
