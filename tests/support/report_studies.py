"""Studies for the report and the site: a knee at four slots, and one that says another token."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from nanoserve_bench.plan import Arm
from nanoserve_bench.schema import token_digest
from nanoserve_report.book import Book
from support import sound
from support.rebuild import with_arm

REFUSED_CELL = "nanoserve/cpu/float32/2/day44"
BASELINE_CELL = "hf-generate/cpu/float32/1/day44"
STEP_MS = {1: 37.0, 2: 38.0, 4: 46.0, 8: 110.0}
BASELINES_MS = (62.0, 70.0, 55.0)


def step_ms(baseline_ms: float):
    """The engine's knee is at four slots; the baseline is as fast as asked."""
    return lambda system, rows: (
        baseline_ms if system != "nanoserve" else STEP_MS.get(rows, 30 + 9.0 * rows)
    )


def sweep(index: int = 0, **changes) -> sound.Study:
    """One sweep; sweeps of different index have different baselines and prompts."""
    arguments = {
        "run_id": f"2026010{index + 1}-cpu-day44-0123456",
        "seed": 44 + index,
        "step_ms": step_ms(BASELINES_MS[index % len(BASELINES_MS)]),
    }
    return sound.study(**{**arguments, **changes})


def ladder() -> sound.Study:
    """The engine over two more baselines, of which the stronger beats it at eight slots alone.

    A step of `hf-static` takes 60 + 10 ms a row, one of `strong` 30 + 9 ms a row.
    """
    made = sweep()
    for seed, name, step in (
        (98, "hf-static", lambda _, rows: 60.0 + 10.0 * rows),
        (99, "strong", lambda _, rows: 30.0 + 9.0 * rows),
    ):
        arm, libraries = Arm(name=name, system=name, version="1.0"), f"{name}-runtime=1.0"
        with_arm(made, arm, kind="rival", step_ms=step, seed=seed, libraries=libraries)
    return made


def diverge(study: sound.Study, *, block: int = 3, request: str = "r4", position: int = 7) -> None:
    """One other token in one output of `REFUSED_CELL`, with every digest right."""
    rows = study.blocks[block]
    row = next(
        r for r in rows.requests if (r.cell, r.warmup, r.request) == (REFUSED_CELL, False, request)
    )
    output = next(ids for ids in rows.outputs if token_digest(ids) == row.output_sha256)
    other = (*output[:position], output[position] + 1, *output[position + 1 :])
    study.blocks[block] = dataclasses.replace(rows, outputs=(*rows.outputs, other))
    changed = study.edit(
        "requests",
        lambda r: dataclasses.replace(r, output_sha256=token_digest(other)),
        where=lambda r: (r.cell, r.warmup, r.request) == (REFUSED_CELL, False, request),
        blocks=[block],
    )
    assert changed == 1


def write(root: Path, *studies: sound.Study) -> Path:
    """A results root."""
    root.mkdir(parents=True, exist_ok=True)
    for study in studies:
        study.write(root / study.plan.run_id)
    return root


def said(book: Book, name: str) -> str:
    """A page's text without the links at its words, as a reader reads it."""
    return re.sub(r'<a class="ns-term"[^>]*>(.*?)</a>', r"\1", book.files[name].decode())
