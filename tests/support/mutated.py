"""Modules of the package of which every function exists once more for each thing changed in it.

mutmut makes them: a function becomes a switch between itself and its changed copies, of which the
active change picks one. It leaves decorated functions alone, which most of the arithmetic is, so
`@property` over a function first becomes `name = property(name)` behind it. It changes nothing
outside of functions: thresholds and the texts of the rules are held by tests of their own.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from types import CodeType, ModuleType

from mutmut.mutation import trampoline
from mutmut.mutation.file_mutation import MutatedFile, mutate_file_contents

from support.unfolding import unfold

PACKAGE = "nanoserve_bench"
SOURCES = Path(__file__).parents[2] / "bench" / PACKAGE
reached: set[str] = set()
"""Functions that were called while `STATS` was the active change, as `Change.switch` names them."""
STATS = "stats"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing changed in one function.

    Attributes:
        module: As below the package, such as `soundness.rules.run_wall`.
        name: What makes it the active change.
        function: The function, with its class.
        was: The lines that were changed, stripped.
        became: What they became.
    """

    module: str
    name: str
    function: str
    was: str
    became: str

    @property
    def switch(self) -> str:
        """The function as `reached` names it."""
        return self.name.partition("__mutmut_")[0]


def activate(change: str) -> None:
    """Let the functions be what this change makes of them, from now on and in this process."""
    trampoline.set_mutant_under_test(change)


class _Imports(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the changeable modules in place of those of the package."""

    def __init__(self, codes: dict[str, str]) -> None:
        self.codes = codes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.codes:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def get_source(self, fullname: str) -> str:
        return self.codes[fullname]

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.codes[fullname], f"<changeable {fullname}>", "exec")


def install(modules: Iterable[str]) -> tuple[Change, ...]:
    """See to it that the modules are imported as changeable ones; their changes.

    Raises:
        RuntimeError: One of them has been imported already.
    """
    trampoline.record_trampoline_hit = lambda name, caller=None: reached.add(name)
    codes = {}
    changes: list[Change] = []
    for module in modules:
        name = f"{PACKAGE}.{module}"
        if name in sys.modules:
            raise RuntimeError(f"{name} has been imported already, as it is")
        path = SOURCES / f"{module.replace('.', '/')}.py"
        made = mutate_file_contents(str(path), unfold(path.read_text("utf-8")))
        codes[name] = made.code
        changes += (_describe(module, made, mutant) for mutant in made.mutant_names)
    sys.meta_path.insert(0, _Imports(codes))
    return tuple(changes)


def _describe(module: str, made: MutatedFile, mutant: str) -> Change:
    mangled = mutant.partition("__mutmut_")[0]
    texts = []
    for name in (f"{mangled}__mutmut_orig", mutant):
        span = made.line_span_by_function_name[name]
        lines = made.code.splitlines()[span.start - 1 : span.end]
        texts.append([re.sub(rf"\b{name}\b", "", line) for line in lines])
    lines = list(unified_diff(*texts, lineterm="", n=0))[2:]
    was, became = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Change(
        module=module,
        name=f"{PACKAGE}.{module}.{mutant}",
        function=mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", "."),
        was=was,
        became=became,
    )
