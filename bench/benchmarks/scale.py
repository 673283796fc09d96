"""How long the gate takes for a large folder, and how much memory: `nox -s scale`.

Lays out sound studies (see laid_out.py) and judges each in a process of its own. Fails when a
million requests of 16 tokens would take more than 60 s or 2 GB, when time does not grow in step
with the rows, or when the gate refuses anything.
"""  # noqa: INP001 - a script, and no part of the distribution

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from laid_out import ROOM, Made, Shape, generate

from nanoserve_bench.meters import Meter
from nanoserve_bench.soundness import judge_path

MOST_SECONDS, MOST_BYTES = 60.0, 2_000_000_000
"""For a million requests."""
MOST_GROWTH = 1.25
"""Time per row at the largest size over the same at the one before it."""
SHAPES = ("few large trials", "many small trials")


def shape_of(name: str, rows: int) -> Shape:
    """The shape whose study has about so many request rows."""
    if name == "few large trials":
        return Shape(blocks=8, requests=max(8, rows // (8 * len(ROOM)) // 8 * 8))
    return Shape(blocks=max(8, rows // (64 * len(ROOM))), requests=64)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What judging a folder took: seconds on the clock and of the CPU, and bytes at the peak.

    The peak is None where the system does not tell.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int | None
    refusals: list[str]


def measure(folder: Path) -> Cost:
    """Judge a folder in a process of its own."""
    output = subprocess.run(  # noqa: S603 - this file itself
        [sys.executable, __file__, "--judge", str(folder)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Cost(**json.loads(output))


def _judge(folder: Path) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    meter = Meter("cpu")
    verdict = judge_path(folder)
    cost = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        # Not ru_maxrss: a process starts with its parent's, which has just laid out the study.
        "peak_bytes": meter.read().peak_memory_bytes,
        "refusals": [str(finding) for finding in verdict.findings[:5]],
    }
    print(json.dumps(cost))  # noqa: T201 - for the process that asked


def run(rows: int, folder: Path) -> list[str]:
    """Measure both shapes at three sizes, and say what exceeds its budget."""
    problems = []
    for name in SHAPES:
        print(f"\n{name}\n{'rows':>9} {'s':>8} {'CPU s':>8} {'us/row':>7} {'MB':>6}")  # noqa: T201
        per_row: list[float] = []
        for size in (rows // 10, rows // 3, rows):
            target = folder / f"{name.replace(' ', '-')}-{size}"
            count = generate(target, shape_of(name, size), Made())
            cost = measure(target)
            per_row.append(1e6 * cost.cpu_s / count)
            print(  # noqa: T201
                f"{count:9} {cost.wall_s:8.2f} {cost.cpu_s:8.2f} {per_row[-1]:7.1f} "
                f"{'' if cost.peak_bytes is None else f'{cost.peak_bytes / 1e6:.0f}':>6}",
                flush=True,
            )
            problems += [f"{name}, {count} rows: refused: {text}" for text in cost.refusals]
            if cost.wall_s > MOST_SECONDS * max(count, rows // 10) / 1e6 + 1:
                problems.append(f"{name}, {count} rows: {cost.wall_s:.1f} s")
            if cost.peak_bytes is None:
                problems.append(f"{name}, {count} rows: this system does not tell the memory")
            elif cost.peak_bytes > MOST_BYTES:
                problems.append(f"{name}, {count} rows: {cost.peak_bytes / 1e6:.0f} MB")
        if per_row[-1] > MOST_GROWTH * per_row[-2]:
            problems.append(
                f"{name}: {per_row[-2]:.1f} us a row become {per_row[-1]:.1f} at the largest size"
            )
    return problems


def main() -> None:
    """Measure, print, and fail where a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="nox -s scale --", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the largest study")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge is not None:
        _judge(options.judge)
        return
    with tempfile.TemporaryDirectory() as folder:
        problems = run(options.rows, Path(folder))
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
