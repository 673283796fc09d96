"""How long a site of 200 runs of 5 versions takes: `nox -s sitescale`.

Lays out sound runs (see bench/benchmarks/laid_out.py), and builds their site twice with
`nanoserve-report build`: with nothing drawn before, and again with nothing changed. Fails when
the first takes more than 60 s, when the second draws a figure again or writes another byte, or when
the gate refuses anything. With `--runs 8 --profile` it prints where the time of a few runs goes.
"""  # noqa: INP001 - a script, and no part of the distribution

from __future__ import annotations

import argparse
import cProfile
import pstats
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from unittest import mock

from laid_out import CREATED, Made, Shape, generate

from nanoserve_report.figures.store import Drawn
from nanoserve_report.pages import compose
from nanoserve_report.scaffold import RESULTS, lay
from nanoserve_report.study import load

MOST_SECONDS = 60.0
VERSIONS = 5
SHAPE = Shape(blocks=8, requests=8)


def lay_out(results: Path, runs: int) -> None:
    """Write the runs, a day apart, each version's one after another; the engine gets faster."""
    for index in range(runs):
        version = index * VERSIONS // runs
        made = Made(
            run_id=f"run-{index:03}",
            seed=index,
            created=CREATED + timedelta(days=index),
            revision=f"{version + 1:040x}",
            pace=0.9**version,
        )
        generate(results / made.run_id, SHAPE, made)


def build(root: Path) -> float:
    """Build the site in `root`; seconds on the clock.

    Raises:
        subprocess.CalledProcessError: It failed, or the gate refused something.
    """
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "nanoserve_report", "build"], cwd=root, check=True)
    return time.perf_counter() - began


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def redrawn(root: Path) -> int:
    """How many figures are drawn again although nothing has changed."""
    with mock.patch.object(Drawn, "of", wraps=Drawn.of) as drawing:
        compose(load(root / RESULTS), root / "build/drawings")
    return drawing.call_count


def run(root: Path) -> list[str]:
    """Build twice, and say what exceeds its budget."""
    problems = []
    cold = build(root)
    first = contents(root / "site")
    print(f"{'nothing drawn before':24} {cold:6.1f} s, {len(first)} files", flush=True)  # noqa: T201
    warm = build(root)
    print(f"{'nothing changed':24} {warm:6.1f} s", flush=True)  # noqa: T201
    if cold > MOST_SECONDS:
        problems.append(f"the site took {cold:.1f} s")
    if contents(root / "site") != first:
        problems.append("the second site differs from the first")
    if again := redrawn(root):
        problems.append(f"{again} figures of unchanged results were drawn again")
    return problems


def profile(root: Path) -> None:
    """Print where the time goes in this process, without mkdocs."""
    profiler = cProfile.Profile()
    profiler.enable()
    compose(load(root / RESULTS))
    profiler.disable()
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(70)


def main() -> None:
    """Measure, print, and fail where a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="nox -s sitescale --", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay(root)
        lay_out(root / RESULTS, options.runs)
        if options.profile:
            profile(root)
            return
        problems = run(root)
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
