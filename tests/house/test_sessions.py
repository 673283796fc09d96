"""The nox sessions: they exist, and each one sets itself up from the pinned versions alone."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import nox
import nox.command
import nox.registry
import pytest

SESSIONS = (
    *("build", "bench", "rival", "perf", "soak", "report", "calibrate", "scale"),
    *("sitescale", "serve"),
    *("kills", "mutation", "publish", "tests", "lint", "types"),
)
NAMED = re.compile(r"\bnox -s ((?:[a-z]+ )*[a-z]+)(?=[`\n\'\")]| --| +#| &&|$)")
TORCH_FREE = (
    "report",
    "calibrate",
    "scale",
    "sitescale",
    "kills",
    "mutation",
    "serve",
    "publish",
    "lint",
)


@dataclass
class Recorder:
    """Stands for a `nox.Session` and only notes what it is asked to do."""

    posargs: tuple[str, ...] = ()
    installs: list[tuple[str, ...]] = field(default_factory=list)
    runs: list[tuple[str, ...]] = field(default_factory=list)
    accepted: dict[tuple[str, ...], list[int]] = field(default_factory=dict)

    def install(self, *args: str) -> None:
        self.installs.append(args)

    def run(self, *args: str, success_codes: list[int] | None = None, **_: Any) -> None:
        self.runs.append(args)
        self.accepted[args] = success_codes or [0]

    def log(self, *_: Any) -> None:
        pass

    def error(self, message: str) -> None:
        raise SystemExit(message)


@pytest.fixture(scope="module")
def noxfile(root: Path) -> ModuleType:
    """The noxfile, imported once: nox refuses to register a session twice."""
    spec = importlib.util.spec_from_file_location("house_noxfile", root / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with contextlib.chdir(root):
        spec.loader.exec_module(module)
    return module


def record(noxfile: ModuleType, name: str, *posargs: str) -> Recorder:
    recorder = Recorder(posargs=posargs)
    getattr(noxfile, name).func(recorder)
    return recorder


def test_sessions_of_the_design_exist_and_say_what_they_do(noxfile: ModuleType) -> None:
    registered = nox.registry.get()
    assert set(registered) == set(SESSIONS)
    for name in SESSIONS:
        assert (registered[name].func.__doc__ or "").strip(), name


def test_the_session_that_times_things_runs_alone(noxfile: ModuleType) -> None:
    for session in (noxfile.bench, noxfile.perf, noxfile.soak):
        assert session.allow_parallel is False


def test_plain_nox_runs_the_checks_and_nothing_that_publishes(noxfile: ModuleType) -> None:
    assert list(nox.options.sessions or ()) == ["lint", "types", "tests"]


@pytest.mark.parametrize("name", [name for name in SESSIONS if name not in {"build", "rival"}])
def test_every_install_is_held_to_the_constraints(noxfile: ModuleType, name: str) -> None:
    installs = record(noxfile, name, "0.1").installs
    assert installs
    for args in installs:
        assert args[:2] == ("-c", "constraints.txt"), args


@pytest.mark.parametrize("name", ["bench", "perf", "soak", "tests", "types"])
def test_torch_comes_first_and_by_its_exact_version(noxfile: ModuleType, name: str) -> None:
    """A looser requirement of another package would fetch another build."""
    first, *_ = record(noxfile, name).installs
    assert first == ("-c", "constraints.txt", noxfile.TORCH)


@pytest.mark.parametrize("name", TORCH_FREE)
def test_no_torch_where_results_are_judged(noxfile: ModuleType, name: str) -> None:
    asked = [arg for args in record(noxfile, name, "0.1").installs for arg in args]
    assert not [arg for arg in asked if "torch" in arg or "[run]" in arg or arg == "engine"]


@pytest.mark.parametrize("name", ["bench", "perf", "soak", "tests"])
def test_weights_come_without_their_dependencies(noxfile: ModuleType, name: str) -> None:
    (args,) = [args for args in record(noxfile, name).installs if noxfile.WEIGHTS in args]
    assert "--no-deps" in args


def test_a_rival_gets_an_environment_of_its_own_from_its_own_list(noxfile: ModuleType) -> None:
    runs = record(noxfile, "rival", "openvino", "llamacpp").runs
    (_, *make), torch, *rest = runs
    folder = str(noxfile.ROOT / ".nox" / "rival-openvino")
    assert make == ["-m", "virtualenv", "-q", "--clear", folder]
    assert torch[0].startswith(folder)
    assert torch[-3:] == ("-c", "bench/rivals/openvino.txt", noxfile.TORCH)
    assert rest[0][-3:] == ("--no-deps", "-r", "bench/rivals/openvino.txt")
    assert rest[-1][-3:] == ("--no-deps", "-r", "bench/rivals/llamacpp.txt")
    assert len(runs) == 5, "llama.cpp needs no torch"


def test_what_cannot_be_installed_is_left_with_its_reason(
    noxfile: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench").symlink_to(noxfile.ROOT / "bench")
    monkeypatch.setattr(noxfile, "ROOT", tmp_path)
    folder = tmp_path / ".nox" / "rival-vllm"
    folder.mkdir(parents=True)

    class Failing(Recorder):
        def run(self, *args: str, success_codes: list[int] | None = None, **_: Any) -> None:
            super().run(*args, success_codes=success_codes)
            if "pip" in args:
                (folder / "pip.log").write_text("2026 ERROR: No matching distribution\n2026 bye\n")
                raise nox.command.CommandFailed

    recorder = Failing(posargs=("vllm", "llamacpp"))
    (tmp_path / ".nox" / "rival-llamacpp").mkdir()
    with pytest.raises(SystemExit, match="could not be installed: vllm, llamacpp"):
        noxfile.rival.func(recorder)
    assert (folder / "not-installed.txt").read_text() == "No matching distribution\n"


@pytest.mark.parametrize("names", [(), ("openvino", "sglang")])
def test_an_unknown_rival_is_an_error_that_names_the_known_ones(
    noxfile: ModuleType, names: tuple[str, ...]
) -> None:
    recorder = Recorder(posargs=names)
    with pytest.raises(SystemExit, match=r"llamacpp, onnxruntime, openvino, vllm.*nox -s rival --"):
        noxfile.rival.func(recorder)
    assert recorder.runs == []


def test_arguments_go_to_the_sweep_and_not_to_the_report(noxfile: ModuleType) -> None:
    """`nox -s bench report -- --full` hands the same arguments to both sessions."""
    assert ("nanoserve-bench", "sweep", "--full") in record(noxfile, "bench", "--full").runs
    assert ("nanoserve-report", "build") in record(noxfile, "report", "--full").runs


def test_a_quick_look_stays_out_of_the_real_results(noxfile: ModuleType, root: Path) -> None:
    (*_, sweep) = record(noxfile, "bench", "--quick").runs
    assert sweep[2:4] == ("--quick", "--out")
    quick = sweep[4]
    for name in ("report", "serve"):
        assert ("nanoserve-report", "build", quick) in record(noxfile, name, "--quick").runs
    ignored = (root / ".gitignore").read_text("utf-8").splitlines()
    assert quick.partition("/")[0] + "/" in ignored


@pytest.mark.parametrize("name", ["perf", "soak"])
def test_a_quick_look_at_the_engine_stays_out_of_the_real_ones(
    noxfile: ModuleType, name: str
) -> None:
    (*_, quick) = record(noxfile, name, "--quick").runs
    assert quick == ("nanoserve-bench", name, "--quick", "--out", f"build/quick-{name}")
    assert ("nanoserve-bench", name) in record(noxfile, name).runs


@pytest.mark.parametrize("out", [("--out", "mine"), ("--out=mine",)])
def test_a_place_that_was_chosen_is_kept(noxfile: ModuleType, out: tuple[str, ...]) -> None:
    (*_, sweep) = record(noxfile, "bench", "--quick", *out).runs
    assert sweep == ("nanoserve-bench", "sweep", "--quick", *out)


def test_what_is_refused_is_served_and_never_reported_as_sound(noxfile: ModuleType) -> None:
    build = ("nanoserve-report", "build")
    served = record(noxfile, "serve")
    assert served.accepted[build] == [0, 1]
    assert served.runs[-1][:3] == ("python", "-m", "http.server")
    assert record(noxfile, "report").accepted[build] == [0]


def test_publishing_without_a_version_is_an_error_that_shows_how(noxfile: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"nox -s publish -- 0\.1 latest"):
        record(noxfile, "publish")


def test_a_missing_browser_is_said_before_anything_is_installed(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noxfile.shutil, "which", lambda _: None)
    recorder = Recorder()
    with pytest.raises(SystemExit, match="need Chromium"):
        noxfile.tests.func(recorder)
    assert recorder.installs == []


def test_root_gets_the_browser_installed(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a fresh container the README's test command does all of its own set-up."""
    monkeypatch.setattr(noxfile.shutil, "which", {"apt-get": "apt-get"}.get)
    monkeypatch.setattr(noxfile.os, "geteuid", lambda: 0)
    runs = record(noxfile, "tests").runs
    apt = [args for args in runs if args[0] == "apt-get"]
    assert runs[: len(apt)] == apt
    assert "chromium" in apt[-1]
    assert "--no-install-recommends" in apt[-1]


def test_ci_runs_sessions_that_exist(root: Path) -> None:
    (line,) = [line for line in (root / ".ci/run").read_text().splitlines() if "nox -s" in line]
    named = line.split("nox -s", 1)[1].split()
    assert set(named) <= set(SESSIONS)
    assert {"tests", "lint", "types", "report", "build"} <= set(named)


def test_no_page_promises_a_session_that_does_not_exist(root: Path) -> None:
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("*/README.md")]
    pages += [
        page for part in ("engine", "bench", "report") for page in root.glob(f"{part}/**/*.py")
    ]
    pages += [root / "noxfile.py", root / "bench/card.sh"]
    named = {
        (name, page.relative_to(root).as_posix())
        for page in pages
        for names in NAMED.findall(page.read_text("utf-8"))
        for name in names.split()
    }
    assert len(named) > 10
    assert [(name, page) for name, page in sorted(named) if name not in SESSIONS] == []
