"""Changing a sound study in ways that keep it one: other timings, other outputs, another order.

`support.sound` builds the default study. What is here takes trials apart and puts others in their
place, so that everything that is not meant to be wrong still fits together: parent's wall, CPU
time, the place of every trial in its block. Digests are never touched by hand, except for documents
that are changed after the fact (`tamper`), which recomputes the manifest's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from nanoserve_bench import documents
from nanoserve_bench.plan import Arm, Manifest, PlannedComparison, RequestLengths
from nanoserve_bench.records import Hold
from nanoserve_bench.results import MANIFEST, PLAN
from nanoserve_bench.schema import RequestRow, StepRow, TrialRow
from nanoserve_bench.writer import BlockRows
from support import sound
from support.sound import MS, Study

BASE = "hf-generate/cpu/float32/1/day44"
AGAIN = "hf-generate-again/cpu/float32/1/day44"


def engine(slots: int) -> str:
    """The engine's cell of so many slots."""
    return f"nanoserve/cpu/float32/{slots}/day44"


ALL_CELLS = [BASE, AGAIN, *(engine(slots) for slots in (1, 2, 4, 8))]

replace: Callable[..., Any] = dataclasses.replace


def measured(cell: str | None = None, request: str | None = None) -> Callable[[Any], bool]:
    """Picks measured rows, of one cell and request where these are given."""

    def pick(row: Any) -> bool:
        return (
            not row.warmup
            and cell in {None, row.cell}
            and (request is None or row.request == request)
        )

    return pick


def change(
    study: Study,
    table: str,
    *,
    cell: str | None = None,
    request: str | None = None,
    blocks: Sequence[int] | None = None,
    **values: Any,
) -> Study:
    """Set columns of measured rows; a callable value gets the row."""

    def edited(row: Any) -> Any:
        new = {name: v(row) if callable(v) else v for name, v in values.items()}
        return replace(row, **new)

    assert study.edit(table, edited, where=measured(cell, request), blocks=blocks)
    return study


def change_arm(
    study: Study, arm: str | None, *, blocks: Sequence[int] | None = None, **values: Any
) -> Study:
    """Set what the workers of an arm (of all arms for None) report about themselves."""

    def edited(row: Any) -> Any:
        return replace(row, **{n: v(row) if callable(v) else v for n, v in values.items()})

    assert study.edit("systems", edited, where=lambda row: arm in {None, row.arm}, blocks=blocks)
    return study


def set_plan(study: Study, **values: Any) -> Study:
    """Change the plan before anything is written: the study was planned so."""
    study.plan = replace(study.plan, **values)
    return study


def as_planned(study: Study) -> Study:
    """Plan the lengths that the requests have, the same in every block."""
    (workload,) = study.plan.workloads
    rows = {
        row.request: RequestLengths(prompt_tokens=row.prompt_tokens, new_tokens=row.max_tokens)
        for row in study.blocks[0].requests
        if not row.warmup
    }
    lengths = tuple(rows[name] for name in sorted(rows))
    ran = replace(
        workload,
        lengths=lengths,
        prompt_tokens=max(one.prompt_tokens for one in lengths),
        new_tokens=max(one.new_tokens for one in lengths),
        source="by hand",
    )
    return set_plan(study, workloads=(ran,))


def rows_of(block: BlockRows, table: str, trial: TrialRow) -> list[Any]:
    """The rows of a table that belong to a trial."""
    key = (trial.block, trial.cell, trial.warmup)
    return [r for r in getattr(block, table) if (r.block, r.cell, r.warmup) == key]


def shifted_request(row: RequestRow, delta: int) -> RequestRow:
    """A request with all of its stamps moved."""
    new: RequestRow = replace(
        row,
        arrival_ns=row.arrival_ns + delta,
        submitted_ns=row.submitted_ns + delta,
        holds_ns=None
        if row.holds_ns is None
        else tuple(Hold(h.acquired_ns + delta, h.released_ns + delta) for h in row.holds_ns),
        first_token_ns=None if row.first_token_ns is None else row.first_token_ns + delta,
        finished_ns=None if row.finished_ns is None else row.finished_ns + delta,
        token_ns=None if row.token_ns is None else tuple(t + delta for t in row.token_ns),
    )
    return new


def shifted_step(row: StepRow, delta: int) -> StepRow:
    """A step moved."""
    new: StepRow = replace(row, start_ns=row.start_ns + delta)
    return new


Rebuild = Callable[
    [TrialRow, list[RequestRow], list[StepRow]], tuple[list[RequestRow], list[StepRow]]
]


def rebuild(
    study: Study,
    make: Rebuild,
    *,
    cells: Iterable[str],
    blocks: Sequence[int] | None = None,
    reorder: Callable[[int, list[TrialRow]], list[TrialRow]] | None = None,
) -> Study:
    """Put other requests and steps in place of measured trials, and lay the blocks out anew."""
    wanted = set(cells)
    for index, block in enumerate(study.blocks):
        if blocks is not None and index not in blocks:
            continue
        trials = sorted(block.trials, key=lambda trial: trial.order)
        if reorder is not None:
            trials = reorder(index, trials)
        requests: list[RequestRow] = []
        steps: list[StepRow] = []
        placed: list[TrialRow] = []
        clock = (index + 1) * 10**12
        for order, trial in enumerate(trials):
            own, log = rows_of(block, "requests", trial), rows_of(block, "steps", trial)
            slack = trial.wall_ns - _span(own)
            if trial.cell in wanted and not trial.warmup:
                own, log = make(trial, own, log)
            start = min(row.arrival_ns for row in own)
            own = [shifted_request(row, clock - start) for row in own]
            log = [shifted_step(row, clock - start) for row in log]
            wall = _span(own) + slack
            placed.append(
                replace(
                    trial,
                    order=order,
                    started_ns=clock - MS,
                    wall_ns=wall,
                    cpu_ns=2 * wall - 5 * MS,
                    other_cpu_ns=wall // 1000,
                )
            )
            requests += own
            steps += log
            clock += wall + 5 * MS
        study.blocks[index] = replace(
            block, trials=tuple(placed), requests=tuple(requests), steps=tuple(steps)
        )
    return study


def _span(rows: Sequence[RequestRow]) -> int:
    return max(r.finished_ns or 0 for r in rows) - min(r.arrival_ns for r in rows)


def rerun(
    study: Study,
    cells: Iterable[str],
    *,
    step_ms: Callable[[TrialRow, int], float],
    slots: int | None = None,
    blocks: Sequence[int] | None = None,
    outputs: Callable[[int, tuple[int, ...]], tuple[int, ...]] = lambda _, ids: ids,
    spread: float = 0.01,
    seed: int = 7,
    concurrent: bool = False,
) -> Study:
    """Run measured trials again on the ruler, with other step times, slots or outputs.

    Those of the engine are concurrent, and those of others where it is said so.
    """
    rng = random.Random(seed)

    def make(
        trial: TrialRow, requests: list[RequestRow], _steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        block = study.blocks[trial.block]
        lists = {sound.token_digest(ids): ids for ids in (*block.prompts, *block.outputs)}
        work = [
            (lists[row.prompt_sha256], outputs(index, lists[row.output_sha256]))
            for index, row in enumerate(requests)
        ]
        key = (trial.block, trial.cell, trial.warmup)

        def noise(rows: int) -> int:
            return round(step_ms(trial, rows) * MS * (1 + spread * rng.gauss(0, 1)))

        known = tuple(ids for _, ids in work)
        study.blocks[trial.block] = replace(block, outputs=(*block.outputs, *known))
        if concurrent or trial.cell.startswith("nanoserve"):
            width = slots or int(trial.cell.split("/")[3])
            rows, steps, _ = sound._engine(key, work, width, 0, noise)
            return rows, steps
        rows, _ = sound._serial(key, work, 0, noise)
        return rows, []

    return rebuild_outputs(study, make, cells=cells, blocks=blocks)


def with_arm(
    study: Study,
    arm: Arm,
    *,
    kind: str,
    step_ms: Callable[[TrialRow, int], float],
    seed: int = 99,
    **reported: Any,
) -> Study:
    """Another concurrent arm beside the engine, at the same slots and with times of its own.

    A `revision` is a candidate over the engine; any other arm is a `rival` under it. Two arms in
    one study need two seeds: with the same noise one would be a copy of the other.
    """
    old = [cell for cell in study.plan.cells if cell.arm == "nanoserve"]

    def renamed(text: str) -> str:
        return text.replace("nanoserve/", f"{arm.name}/")

    new = [replace(c, id=renamed(c.id), arm=arm.name, system=arm.system) for c in old]
    orders = tuple(
        (*order, *(c.id for c in new)) if b % 2 == 0 else (*(c.id for c in new[::-1]), *order)
        for b, order in enumerate(study.plan.orders)
    )
    sides = zip(old, new, strict=True) if kind == "revision" else zip(new, old, strict=True)
    added_pairs = [
        PlannedComparison(baseline=below.id, candidate=above.id, kind=kind)
        for below, above in sides
    ]
    if kind == "rival":
        added_pairs += [
            PlannedComparison(baseline=BASE, candidate=cell.id, kind=kind) for cell in new
        ]
    set_plan(
        study,
        arms=(*study.plan.arms, arm),
        cells=(*study.plan.cells, *new),
        orders=orders,
        comparisons=(*study.plan.comparisons, *added_pairs),
    )
    number = 1000 * len(study.plan.arms)
    for index, block in enumerate(study.blocks):
        launch = next(row for row in block.systems if row.arm == "nanoserve")
        copy = replace(
            launch, launch=number + index, arm=arm.name, system=arm.system, version=arm.version,
            revision=arm.revision, **reported,
        )  # fmt: skip
        added: dict[str, Any] = {"systems": (*block.systems, copy)}
        for table in ("trials", "requests", "steps"):
            rows = getattr(block, table)
            copies = [
                replace(row, cell=renamed(row.cell))
                for row in rows
                if row.cell.startswith("nanoserve/")
            ]
            if table == "trials":
                copies = [
                    replace(row, launch=number + index, order=row.order + 50) for row in copies
                ]
            added[table] = (*rows, *copies)
        study.blocks[index] = replace(block, **added)
    places = [{cell: i for i, cell in enumerate(order)} for order in orders]

    def reorder(index: int, trials: list[TrialRow]) -> list[TrialRow]:
        return sorted(trials, key=lambda t: (not t.warmup, places[index][t.cell]))

    rebuild(study, lambda _, rows, log: (rows, log), cells=[], reorder=reorder)
    return rerun(study, [cell.id for cell in new], step_ms=step_ms, seed=seed, concurrent=True)


def rebuild_outputs(
    study: Study, make: Rebuild, *, cells: Iterable[str], blocks: Sequence[int] | None
) -> Study:
    """`rebuild` for a `make` that adds token lists to the study's blocks on the way."""
    added: dict[int, tuple[tuple[int, ...], ...]] = {}

    def keeping(
        trial: TrialRow, requests: list[RequestRow], steps: list[StepRow]
    ) -> tuple[list[RequestRow], list[StepRow]]:
        made = make(trial, requests, steps)
        added[trial.block] = study.blocks[trial.block].outputs
        return made

    rebuild(study, keeping, cells=cells, blocks=blocks)
    for index, outputs in added.items():
        study.blocks[index] = replace(study.blocks[index], outputs=outputs)
    return study


def tamper(path: Path, name: str, edit: Callable[[str], str]) -> Path:
    """Change a file of a written folder, and make the manifest's digest of it right again."""
    file = path / name
    text = edit(file.read_text(encoding="utf-8"))
    assert text != file.read_text(encoding="utf-8"), "nothing was changed"
    file.write_text(text, encoding="utf-8")
    return reseal(path)


def tamper_lines(name: str, edit: Callable[[list[str]], list[str]]) -> Callable[[Path], Path]:
    """Changes a file of a written folder line by line, its digest with it."""
    return lambda path: tamper(path, name, lambda text: "\n".join(edit(text.splitlines())) + "\n")


def reseal(path: Path, **values: Any) -> Path:
    """Write the manifest again with what the files are now, and other fields set."""
    manifest = documents.decode(Manifest, (path / MANIFEST).read_text("utf-8"), MANIFEST)
    assert isinstance(manifest, Manifest)
    files = tuple(
        replace(
            entry,
            sha256=hashlib.sha256((path / entry.name).read_bytes()).hexdigest(),
            bytes=(path / entry.name).stat().st_size,
            rows=None if entry.name == PLAN else (path / entry.name).read_bytes().count(b"\n") - 1,
        )
        for entry in manifest.files
    )
    sealed = replace(manifest, **{"files": files, **values})
    (path / MANIFEST).write_text(documents.encode(sealed), encoding="utf-8")
    return path


def manifest_of(path: Path) -> Manifest:
    """The manifest of a written folder."""
    manifest = documents.decode(Manifest, (path / MANIFEST).read_text("utf-8"), MANIFEST)
    assert isinstance(manifest, Manifest)
    return manifest
