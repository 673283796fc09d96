"""Running a mutation tester over the arithmetic and the rules, and keeping account of survivors.

`python -m support.mutation [MODULE...]` (`nox -s mutation` does it) copies the package and the
tests of each module to `build/mutation`, lets mutmut change one thing at a time, and holds whatever
no test notices against `tests/mutation/survivors.csv`: a survivor without a reason there fails, and
so does a reason for one that is killed by now. What each run found goes to
`tests/mutation/runs.csv`. Modules are named as below; without a name all of them run.

mutmut leaves decorated functions alone, which most of the arithmetic is; in the copy
`@property` over a function therefore becomes `name = property(name)` behind it. It changes nothing
outside of functions: thresholds and the texts of the rules are held by tests of their own.
"""

from __future__ import annotations

import ast
import csv
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TypeVar

from nanoserve_bench.soundness.rule import Rule
from support.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "bench/nanoserve_bench"
WORK = ROOT / "build/mutation"
SURVIVORS, RUNS = (ROOT / "tests/mutation" / name for name in ("survivors.csv", "runs.csv"))
BENCH, SOUNDNESS = "tests/bench", "tests/bench/soundness"
FREE = ("records", "comparison")
RULES = tuple(
    f"soundness.rules.{path.stem}"
    for path in sorted((PACKAGE / "soundness/rules").glob("[a-z]*.py"))
    if path.stem != "report_form"  # texts alone
)
FAMILIES = {
    "run": ("run_rules", "profile"),
    "pair": (),
    "stat": ("thresholds", "details"),
    "report": ("details",),
}
"""Tests of single rules, by the first word of their module, beside the mutants meant for them."""
UNFOLDED = frozenset({"property", "cached_property"})
SURVIVED, NO_TESTS, TIMEOUT = 0, 33, {24, 36, -24}
CONFIG = """\
[tool.pytest.ini_options]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]
pythonpath = ["tests"]

[tool.mutmut]
source_paths = ["nanoserve_bench"]
only_mutate = ["nanoserve_bench/{path}.py"]
pytest_add_cli_args_test_selection = {tests}
timeout_constant = 120.0
use_git_change_detection = false
"""


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


def tests_of(module: str) -> tuple[str, ...]:
    """The tests that a module is held to."""
    if module in FREE:
        return (f"{BENCH}/test_{module}.py", f"{BENCH}/test_comparison.py")
    found = vars(importlib.import_module(f"nanoserve_bench.{module}")).values()
    codes = {item.code for item in found if isinstance(item, Rule)}
    mutants = f"{SOUNDNESS}/test_mutants.py::test_a_mutant_is_refused_by_the_rule_meant_for_it"
    control = f"{SOUNDNESS}/test_mutants.py::test_a_clean_control_is_accepted_whole[default]"
    family = module.rpartition(".")[2].partition("_")[0]
    return (
        *(f"{SOUNDNESS}/test_{name}.py" for name in FAMILIES[family]),
        f"{BENCH}/test_comparison.py",
        *(f"{mutants}[{m.rule}-{m.name}]" for m in MUTANTS if m.rule in codes),
        control,
    )


def unfold(source: str) -> str:
    """The same code with its properties made behind their functions."""
    lines = source.splitlines()
    added: dict[int, str] = {}
    removed = set()
    for outer in ast.walk(ast.parse(source)):
        for node in outer.body if isinstance(outer, ast.ClassDef) else ():
            if not isinstance(node, ast.FunctionDef) or len(node.decorator_list) != 1:
                continue
            (decorator,) = node.decorator_list
            if isinstance(decorator, ast.Name) and decorator.id in UNFOLDED:
                removed.add(decorator.lineno)
                indent = " " * node.col_offset
                added[node.end_lineno or 0] = f"{indent}{node.name} = {decorator.id}({node.name})"
    text = []
    for number, line in enumerate(lines, start=1):
        if number not in removed:
            text.append(line)
        if number in added:
            text.append(added[number])
    return "\n".join(text) + "\n"


def stage(module: str) -> None:
    """Copy what a run over a module needs to `WORK`."""
    shutil.rmtree(WORK, ignore_errors=True)
    keep = shutil.ignore_patterns("__pycache__", "kill_table.py", "mutation.py")
    shutil.copytree(PACKAGE, WORK / "nanoserve_bench", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests/support", WORK / "tests/support", ignore=keep)
    shutil.copytree(ROOT / SOUNDNESS, WORK / SOUNDNESS, ignore=keep)
    for name in ("support/kill_table.py", *(f"bench/test_{name}.py" for name in FREE)):
        shutil.copy(ROOT / "tests" / name, WORK / "tests" / name)
    path = module.replace(".", "/")
    source = WORK / "nanoserve_bench" / f"{path}.py"
    source.write_text(unfold(source.read_text("utf-8")), "utf-8")
    config = CONFIG.format(path=path, tests=json.dumps(tests_of(module)))
    (WORK / "pyproject.toml").write_text(config, "utf-8")


def mutmut(*arguments: str) -> str:
    """Run mutmut in `WORK`; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", "from mutmut.__main__ import cli; cli()", *arguments],
        cwd=WORK,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"mutmut {' '.join(arguments)} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def run(module: str) -> tuple[Run, tuple[Survivor, ...]]:
    """Mutate a module; the account and what survived."""
    stage(module)
    mutmut("run", "--max-children", str(os.cpu_count() or 1))
    meta = WORK / "mutants/nanoserve_bench" / f"{module.replace('.', '/')}.py.meta"
    codes = json.loads(meta.read_text("utf-8"))["exit_code_by_key"]
    alive = sorted(name for name, code in codes.items() if code in {SURVIVED, NO_TESTS, None})
    slow = sum(1 for code in codes.values() if code in TIMEOUT)
    found = Run(
        module=module,
        mutants=len(codes),
        killed=len(codes) - len(alive) - slow,
        timed_out=slow,
        survived=len(alive),
    )
    return found, tuple(sorted(describe(module, name) for name in alive))


def describe(module: str, mutant: str) -> Survivor:
    """A survivor by what was changed."""
    name = mutant.rpartition(".")[2].rpartition("__mutmut_")[0]
    function = name.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    lines = [line for line in mutmut("show", mutant).splitlines() if line[:3] not in {"---", "+++"}]
    was, became = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Survivor(module=module, function=function, was=was, became=became)


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


def main(modules: Sequence[str]) -> int:
    """Run over modules, write what was found, and say what has no reason."""
    unknown = set(modules) - {*FREE, *RULES}
    if unknown:
        sys.exit(f"no such module: {', '.join(sorted(unknown))}; {', '.join((*FREE, *RULES))}")
    failed = 0
    for module in modules or (*FREE, *RULES):
        found, alive = run(module)
        known = {survivor.key: survivor for survivor in load(SURVIVORS, Survivor)}
        mine = {key for key in known if key[0] == module}
        print(f"{found}")
        for survivor in alive:
            reason = known.get(survivor.key, survivor).reason
            if not reason:
                failed += 1
                print(f"  no reason: {survivor.function}: {survivor.was} -> {survivor.became}")
        for key in sorted(mine - {s.key for s in alive}):
            print(f"  killed by now: {key[1]}: {key[2]} -> {key[3]}")
        kept = [s for key, s in known.items() if key[0] != module]
        store(SURVIVORS, Survivor, [*kept, *(known.get(s.key, s) for s in alive)])
        others = [r for r in load(RUNS, Run) if r.module != module]
        store(RUNS, Run, [*others, found])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
