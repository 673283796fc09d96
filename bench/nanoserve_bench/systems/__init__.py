"""Systems under test, and how they are found.

A system is a class that a worker process creates once per launch. It is found by its name in the
entry-point group `nanoserve_bench.systems`, so an engine from anywhere joins a sweep by installing
a distribution that says::

    [project.entry-points."nanoserve_bench.systems"]
    my-engine = "my_package.bench:MyEngine"

The module of a system is imported by the sweep as well, to plan. Import what is heavy (torch, the
engine itself) when the system is created, not when its module is.

A system whose libraries do not go together with the sweep's names another interpreter for its
worker; see `rivals.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import ClassVar

from nanoserve_bench.errors import PlanError, UnavailableError
from nanoserve_bench.protocol import Description, Divergence, Launch, Triage, Trial
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.systems.form import flaws

GROUP = "nanoserve_bench.systems"


class System(ABC):
    """One engine, loaded.

    The main thread of a worker creates it, asks for its description, and runs trials one at a
    time. Between two trials it must do nothing.

    Attributes:
        summary: What it is, in one line.
        shape: How it works through a workload.
        stamps: What it can stamp, out of `holds first_token tokens steps`; `holds=WORD` in place of
            `holds` where a slot is no row of the running batch.
        requires: Modules that must be importable to create it.
        distribution: The distribution whose version is the system's.
        variant_of: The system that it is but for a setting whose cost is to be measured; the two
            are compared as one system with itself.
        triages: Whether it can judge an output that differs from its own.
        measures_ceilings: Whether its worker can measure what the device does at best, which takes
            torch and the main thread.
        one_ground: Whether it computes where it was started, whatever a launch says: a study of it
            has one device and one dtype.
        revisable: Whether it is this repository's engine, so that an arm can run another revision
            of it (`--arm SYSTEM@REVISION`).
        options: What an arm can tell it (`--arm SYSTEM,KEY=VALUE`): each key, with what it means.
            A key `body.*` stands for all that begin with `body.`.
        runs_on: Kinds of device and dtypes that it runs, where it does not run all.
        optional: Whether a sweep that asks for it goes on without it where it cannot run: its arm
            is then a hole with its reason.
        open_loop: Whether it can take each request when it is due (`Trial.due_ns`).
        why_closed: Why it cannot, where it cannot.
        lingers: Whether its `processes` may go on for a moment after a trial; the sweep then waits
            until they do nothing.
    """

    summary: ClassVar[str]
    shape: ClassVar[Shape]
    stamps: ClassVar[tuple[str, ...]]
    requires: ClassVar[tuple[str, ...]] = ()
    distribution: ClassVar[str]
    variant_of: ClassVar[str | None] = None
    triages: ClassVar[bool] = False
    measures_ceilings: ClassVar[bool] = True
    open_loop: ClassVar[bool] = False
    why_closed: ClassVar[str] = "it does not say that it takes requests when they are due"
    lingers: ClassVar[bool] = False
    one_ground: ClassVar[bool] = False
    revisable: ClassVar[bool] = False
    options: ClassVar[Mapping[str, str]] = {}
    runs_on: ClassVar[tuple[tuple[str, str], ...] | None] = None
    optional: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, launch: Launch) -> None:
        """Load the model."""

    @abstractmethod
    def describe(self) -> Description:
        """What is running, as it is, not as it was asked for."""

    @abstractmethod
    def run(self, trial: Trial) -> SystemRun:
        """Run every prompt of the trial to its end."""

    @classmethod  # noqa: B027 - most have nothing to refuse
    def check(cls, options: Mapping[str, str]) -> None:
        """Refuse options that cannot work, before anything is measured.

        Raises:
            PlanError: Something is missing or wrong.
        """

    def processes(self) -> tuple[int, ...]:
        """Ids of processes that work for it and are no children of the worker, such as a server.

        Asked for once, when the system has been loaded.
        """
        return ()

    def triage(self, divergence: Divergence) -> Triage:
        """Judge an output that differs from this system's own; asked for where it `triages`."""
        raise NotImplementedError(divergence)

    @classmethod
    def version(cls) -> str:
        """Version of the system, without importing it."""
        return version(cls.distribution)

    @classmethod
    def interpreter(cls) -> str:
        """The Python that its worker runs in: this one, unless it needs an environment of its own.

        Another one gets no module search path from the sweep but the one of this package.
        """
        return sys.executable

    @classmethod
    def problem(cls) -> str:
        """Why it cannot run here; empty when it can."""
        missing = list(_missing(cls.requires))
        if not missing:
            try:
                cls.version()
            except PackageNotFoundError as error:
                missing = [str(error.name)]
        return f"not installed: {', '.join(missing)}" if missing else ""


_BUILT_IN = tuple(
    EntryPoint(name, f"nanoserve_bench.systems.{place}", GROUP)
    for name, place in (
        ("hf-continuous", "hf_continuous:HfContinuous"),
        ("hf-generate", "hf_generate:HfGenerate"),
        ("hf-generate-untimed", "hf_generate:HfGenerateUntimed"),
        ("hf-static", "hf_static:HfStatic"),
        ("hf-static-sorted", "hf_static:HfStaticSorted"),
        ("llamacpp", "llamacpp:LlamaCpp"),
        ("nanoserve", "nanoserve:Nanoserve"),
        ("nanoserve-torch", "nanoserve:NanoserveTorch"),
        ("openai", "openai:OpenAi"),
        ("onnxruntime", "onnxruntime:OnnxRuntime"),
        ("openvino", "openvino:OpenVino"),
        ("vllm", "vllm:Vllm"),
    )
)
"""The same as in the package's metadata: there in a checkout that is not installed, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A registered system: its class, or the reason why it cannot run here.

    Attributes:
        name: Name of the entry point.
        system: The class; None when its module cannot be imported.
        version: Its version; None when it is not installed.
        problem: Why it cannot run; empty when it can.
    """

    name: str
    system: type[System] | None
    version: str | None
    problem: str


def find_all() -> Mapping[str, Found]:
    """Every registered system, by name."""
    points = _points()
    return {name: _load(name, points[name]) for name in sorted(points)}


def find(name: str) -> type[System]:
    """The class of a system that can run here; the modules of others are not imported.

    Raises:
        UnavailableError: It cannot run; the message says why.
        PlanError: There is no such system.
    """
    points = _points()
    if name not in points:
        raise PlanError(f"no system is called {name!r}; there are: {', '.join(sorted(points))}")
    found = _load(name, points[name])
    if found.system is None or found.problem:
        optional = found.system is not None and found.system.optional
        raise UnavailableError(name, found.problem, optional=optional)
    return found.system


def interpreter_of(name: str) -> str:
    """The Python for a system's worker; this one where there is no such system, to say so."""
    points = _points()
    found = _load(name, points[name]) if name in points else None
    return sys.executable if found is None or found.system is None else found.system.interpreter()


def _points() -> Mapping[str, list[EntryPoint]]:
    """The entry points of each name; more than one where distributions disagree."""
    points: dict[str, list[EntryPoint]] = {}
    for point in (*_BUILT_IN, *entry_points(group=GROUP)):
        same = points.setdefault(point.name, [])
        if all(point.value != other.value for other in same):
            same.append(point)
    return points


def _load(name: str, points: list[EntryPoint]) -> Found:
    def unusable(problem: str) -> Found:
        return Found(name=name, system=None, version=None, problem=problem)

    if len(points) > 1:
        return unusable(f"registered twice: {' and '.join(point.value for point in points)}")
    try:
        system = points[0].load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's module may do anything
        return unusable(f"{_told(error)} (importing {points[0].value})")
    if not (isinstance(system, type) and issubclass(system, System)):
        return unusable(f"{points[0].value} is not a subclass of nanoserve_bench.systems.System")
    wrong = "; ".join(flaws(system))
    if wrong:
        return unusable(f"{points[0].value} has not the form of a system: {wrong}")
    try:
        its_version = system.version()
    except PackageNotFoundError:
        its_version = None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - likewise
        return unusable(f"its version cannot be told: {_told(error)}")
    return Found(name=name, system=system, version=its_version, problem=system.problem())


def _missing(modules: tuple[str, ...]) -> Iterator[str]:
    """Modules that cannot be found. None is imported, but for the parents of a dotted one."""
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            yield module


def _told(error: BaseException) -> str:
    """An exception in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
