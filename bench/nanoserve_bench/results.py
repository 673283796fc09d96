"""The results folder: its only reader (`writer.py` is the only writer).

The reader trusts nothing. It takes a folder apart file by file, collects every fault of form, and
returns a `ResultSet` only when there is none: columns as declared, every cell of its type, every
key once, every token list equal to its digest, every file as the manifest says, every reference
resolved, the sweep complete. What the rows *mean* is the gate's business.

Rows are named by their line in the file, the header being line 1, as an editor shows them; no cell
holds a line break, so a row is a line. No file is held in memory as a whole: `rows.py` reads the
large ones into columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from nanoserve_bench import documents
from nanoserve_bench.faults import RESTORE, Fault, ResultsError, shorten
from nanoserve_bench.files import FileFacts, examine
from nanoserve_bench.plan import Manifest, Plan
from nanoserve_bench.rows import RowReader
from nanoserve_bench.schema import (
    ROW_TYPES,
    SCHEMA_VERSION,
    CeilingRow,
    DivergenceRow,
    OutputRow,
    PromptRow,
    RequestRow,
    Row,
    StepRow,
    SweepRow,
    SystemRow,
    TrialRow,
)
from nanoserve_bench.tables import Flags, Table, TokenLists, owners

PLAN, MANIFEST = "plan.json", "manifest.json"
R = TypeVar("R", bound=Row)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ResultSet:
    """A results folder, well-formed and complete; rows stand in file order.

    As read, `requests` and `steps` are `Table`s, which make a row when one is asked for, and
    `prompts` and `outputs` are `TokenLists`, by digest.
    """

    path: Path
    plan: Plan
    manifest: Manifest
    systems: tuple[SystemRow, ...]
    ceilings: tuple[CeilingRow, ...]
    trials: tuple[TrialRow, ...]
    requests: Sequence[RequestRow]
    steps: Sequence[StepRow]
    prompts: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]
    divergences: tuple[DivergenceRow, ...]
    sweep: tuple[SweepRow, ...]

    def small_tables(self) -> tuple[tuple[Row, ...], ...]:
        """The tables whose rows are kept as they are."""
        return self.systems, self.ceilings, self.trials, self.divergences, self.sweep

    @cached_property
    def _lines(self) -> Mapping[int, int]:
        tables = self.small_tables()
        return {id(row): index for rows in tables for index, row in enumerate(rows, start=2)}

    def line_of(self, row: Row) -> int:
        """The line of one of this set's rows in its file, for messages."""
        if isinstance(row, RequestRow):
            return self.requests.index(row) + 2
        if isinstance(row, StepRow):
            return self.steps.index(row) + 2
        return self._lines[id(row)]


def read(path: Path, *, require_complete: bool = True) -> ResultSet:
    """Read a results folder.

    Args:
        path: The folder.
        require_complete: Whether an unfinished sweep is a fault; only the sweep itself says no.

    Raises:
        ResultsError: With every fault that was found.
    """
    reader = _FolderReader(path, require_complete=require_complete)
    results = reader.read()
    if reader.faults or results is None:
        raise ResultsError(path, tuple(reader.faults))
    return results


class _FolderReader:
    def __init__(self, path: Path, *, require_complete: bool) -> None:
        self.path = path
        self.require_complete = require_complete
        self.faults: list[Fault] = []
        self.facts: dict[str, FileFacts] = {}

    def fault(
        self,
        rule: str,
        file: str,
        message: str,
        hint: str = RESTORE,
        *,
        row: int | None = None,
        column: str | None = None,
        value: str | None = None,
    ) -> None:
        self.faults.append(
            Fault(
                rule=rule,
                file=file,
                row=row,
                column=column,
                value=None if value is None else shorten(value),
                message=message,
                hint=hint,
            )
        )

    def read(self) -> ResultSet | None:
        if not self.path.is_dir():
            self.fault("REP001", str(self.path), "is not a folder", "Name a results folder.")
            return None
        names = (PLAN, MANIFEST, *(row_type.FILE for row_type in ROW_TYPES))
        entries = sorted(self.path.iterdir())
        inside = [entry for entry in entries if any((entry / n).is_file() for n in names[:2])]
        if inside and not any(entry.name in names for entry in entries):
            self.fault(
                "REP001",
                str(self.path),
                f"is no results folder, and holds {len(inside)} folder(s) that look like one",
                f"Name those: {self.path}/*",
            )
            return None
        if not entries:
            self.fault("REP001", str(self.path), "is an empty folder", "Remove it, or measure.")
            return None
        for entry in entries:
            if entry.name not in names:
                self.fault(
                    "REP001", entry.name, "does not belong into a results folder", "Move it away."
                )
        whole = {name for name in names if self.is_whole(name)}
        plan = self.document(Plan, PLAN, whole)
        manifest = self.document(Manifest, MANIFEST, whole)
        prompts = self.table(PromptRow, whole, RowReader.token_lists)
        outputs = self.table(OutputRow, whole, RowReader.token_lists)
        known = {
            "prompt_sha256": prompts.places if prompts else {},
            "output_sha256": outputs.places if outputs else {},
        }
        requests = self.table(RequestRow, whole, lambda reader: reader.table(known))
        steps = self.table(StepRow, whole, lambda reader: reader.table({}))
        small = {
            row_type: self.table(row_type, whole, RowReader.rows)
            for row_type in (SystemRow, CeilingRow, TrialRow, DivergenceRow, SweepRow)
        }
        if plan is None or manifest is None:
            return None
        self.check_digests(manifest, names)
        self.check_manifest(plan, manifest)
        if len(whole) < len(names):
            return None

        def rows(row_type: type[R]) -> tuple[R, ...]:
            return cast("tuple[R, ...]", small[cast("Any", row_type)])

        results = ResultSet(
            path=self.path,
            plan=plan,
            manifest=manifest,
            systems=rows(SystemRow),
            ceilings=rows(CeilingRow),
            trials=rows(TrialRow),
            requests=cast("Table[RequestRow]", requests),
            steps=cast("Table[StepRow]", steps),
            prompts=cast("TokenLists", prompts),
            outputs=cast("TokenLists", outputs),
            divergences=rows(DivergenceRow),
            sweep=rows(SweepRow),
        )
        if not self.faults:  # a reference into a broken table would only repeat its fault
            self.faults.extend(_dangling(results))
        return results

    def is_whole(self, name: str) -> bool:
        """Whether a file is there and is text; what keeps it from that is told."""
        path = self.path / name
        if path.is_symlink() or not path.is_file():
            missing = not path.is_symlink() and not path.exists()
            self.fault("REP001", name, "is missing" if missing else "is not a regular file")
            return False
        self.facts[name] = facts = examine(path)
        if facts.flaw is not None:
            self.fault("REP001", name, facts.flaw.message, facts.flaw.hint, row=facts.flaw.line)
        return facts.flaw is None

    def document(self, record_type: type[Any], name: str, whole: Collection[str]) -> Any:
        if name not in whole:
            return None
        text = (self.path / name).read_text(encoding="utf-8")
        version = documents.schema_version(text)
        if version is not None and version != SCHEMA_VERSION:
            self.fault(
                "REP002",
                name,
                f"is of an unknown schema; this reader knows version {SCHEMA_VERSION}",
                "Read it with the release that wrote it.",
                column="schema",
                value=str(version),
            )
            return None
        record = documents.decode(record_type, text, name)
        if isinstance(record, Sequence):
            self.faults.extend(record)
            return None
        return record

    def table(
        self, row_type: type[Row], whole: Collection[str], take: Callable[[RowReader], T]
    ) -> T | None:
        if row_type.FILE not in whole:
            return None
        with (self.path / row_type.FILE).open(encoding="utf-8", newline="") as lines:
            return take(RowReader(row_type, lines, self.fault))

    def check_manifest(self, plan: Plan, manifest: Manifest) -> None:
        if plan.run_id != manifest.run_id:
            self.fault(
                "REP008", MANIFEST, "names another run than plan.json", column="run_id",
                value=manifest.run_id,
            )  # fmt: skip
        if self.require_complete and not manifest.complete:
            self.fault(
                "REP009",
                MANIFEST,
                f"the sweep is not finished: {manifest.blocks_done} block(s) are complete",
                "Start the same sweep again; it goes on where it stopped.",
                column="complete",
            )

    def check_digests(self, manifest: Manifest, names: Sequence[str]) -> None:
        listed = {file.name: file for file in manifest.files}
        for name in sorted(listed.keys() - set(names)):
            self.fault("REP007", MANIFEST, "lists an unknown file", column="files", value=name)
        for name in sorted(listed):
            if sum(file.name == name for file in manifest.files) > 1:
                self.fault("REP007", MANIFEST, "lists a file twice", column="files", value=name)
        for name in names:
            if name == MANIFEST or name not in self.facts:
                continue
            if name not in listed:
                self.fault("REP007", MANIFEST, f"has no digest of {name}", column="files")
                continue
            facts = self.facts[name]
            found = {
                "sha256": facts.sha256,
                "bytes": facts.bytes,
                "rows": None if name == PLAN else max(facts.line_feeds - 1, 0),
            }
            differing = [
                f"{what} {value} (the manifest says {getattr(listed[name], what)})"
                for what, value in found.items()
                if value != getattr(listed[name], what)
            ]
            if differing:
                message = f"is not the file of the manifest: it has {', '.join(differing)}"
                self.fault("REP007", name, message)


def _dangling(results: ResultSet) -> Iterator[Fault]:
    """Every name that a row uses must be declared where it belongs (REP008)."""
    arms = {arm.name for arm in results.plan.arms}
    cells = {cell.id for cell in results.plan.cells}
    launches = {row.launch for row in results.systems}
    known: dict[tuple[type[Row], str], tuple[Collection[Any], str]] = {
        (SystemRow, "arm"): (arms, "an arm of the plan"),
        (SystemRow, "machine"): ({results.manifest.machine}, "the manifest's machine"),
        (TrialRow, "cell"): (cells, "a cell of the plan"),
        (TrialRow, "launch"): (launches, "a row of systems.csv"),
        (DivergenceRow, "cell"): (cells, "a cell of the plan"),
        (DivergenceRow, "reference_cell"): (cells, "a cell of the plan"),
        (SweepRow, "cell"): (cells, "a cell of the plan"),
    }
    for rows in results.small_tables():
        for row in rows:
            for (row_type, column), (targets, what) in known.items():
                if isinstance(row, row_type) and getattr(row, column) not in targets:
                    line = results.line_of(row)
                    yield _missing(row.FILE, line, column, getattr(row, column), what)
    yield from _left_over(results)
    requests = cast("Table[RequestRow]", results.requests)
    for column, lists in (("prompt_sha256", results.prompts), ("output_sha256", results.outputs)):
        lost = requests.coded(column).codes >= len(lists)
        yield from _missing_rows(requests, lost, column, f"a row of {column.split('_')[0]}s.csv")
    trials = {(r.block, r.cell, r.warmup): n for n, r in enumerate(results.trials)}
    for table in (requests, cast("Table[StepRow]", results.steps)):
        lost = owners(table, trials) < 0
        yield from _missing_rows(table, lost, "block, cell, warmup", "a row of trials.csv")


def _left_over(results: ResultSet) -> Iterator[Fault]:
    """Launches and ceilings whose trials are not there (any more)."""
    launches = {row.launch for row in results.trials}
    for launch in results.systems:
        if launch.launch not in launches:
            line = results.line_of(launch)
            what = "the launch of any row of trials.csv"
            yield _missing(SystemRow.FILE, line, "launch", launch.launch, what)
    blocks = {row.block for row in results.trials}
    for ceiling in results.ceilings:
        for column, targets, what in (
            ("block", blocks, "a block of trials.csv"),
            ("device", results.plan.devices, "a device of the plan"),
            ("dtype", results.plan.dtypes, "a dtype of the plan"),
        ):
            value = getattr(ceiling, column)
            if value not in targets:
                yield _missing(CeilingRow.FILE, results.line_of(ceiling), column, value, what)


def _missing_rows(table: Table[Any], lost: Flags, columns: str, what: str) -> Iterator[Fault]:
    for place in np.flatnonzero(lost).tolist():
        row = table[place]
        values = tuple(getattr(row, name) for name in columns.split(", "))
        value = values[0] if len(values) == 1 else values
        yield _missing(row.FILE, place + 2, columns, value, what)


def _missing(file: str, line: int, column: str, value: object, what: str) -> Fault:
    return Fault(
        rule="REP008",
        file=file,
        row=line,
        column=column,
        value=shorten(str(value)),
        message=f"names something that is not {what}",
        hint=RESTORE,
    )
