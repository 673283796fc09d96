"""The results folder: its only reader (`writer.py` is the only writer).

The reader trusts nothing. It takes a folder apart file by file, collects every fault of form, and
returns a `ResultSet` only when there is none: columns as declared, every cell of its type, every
key once, every token list equal to its digest, every file as the manifest says, every reference
resolved, the sweep complete. What the rows *mean* is the gate's business.

Rows are named by their line in the file, the header being line 1, as an editor shows them; no cell
holds a line break, so a row is a line.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from nanoserve_bench import documents
from nanoserve_bench.columns import columns_of
from nanoserve_bench.faults import Fault, ResultsError, shorten
from nanoserve_bench.plan import Manifest, Plan
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
    token_digest,
)

PLAN, MANIFEST = "plan.json", "manifest.json"
RESTORE = "Restore the file as the sweep wrote it, or measure again."
R = TypeVar("R", bound=Row)

csv.field_size_limit(2**31 - 1)  # a long output is one cell


@dataclass(frozen=True, kw_only=True)
class ResultSet:
    """A results folder, well-formed and complete; rows stand in file order."""

    path: Path
    plan: Plan
    manifest: Manifest
    systems: tuple[SystemRow, ...]
    ceilings: tuple[CeilingRow, ...]
    trials: tuple[TrialRow, ...]
    requests: tuple[RequestRow, ...]
    steps: tuple[StepRow, ...]
    prompts: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]
    divergences: tuple[DivergenceRow, ...]
    sweep: tuple[SweepRow, ...]

    def tables(self) -> tuple[tuple[Row, ...], ...]:
        """The tables whose rows have a place of their own (token lists are mappings)."""
        return (
            self.systems,
            self.ceilings,
            self.trials,
            self.requests,
            self.steps,
            self.divergences,
            self.sweep,
        )

    @cached_property
    def _lines(self) -> Mapping[int, int]:
        return {id(row): index for rows in self.tables() for index, row in enumerate(rows, start=2)}

    def line_of(self, row: Row) -> int:
        """The line of one of this set's rows in its file, for messages."""
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
        self.contents: dict[str, bytes] = {}

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
        for entry in sorted(self.path.iterdir()):
            if entry.name not in names:
                self.fault(
                    "REP001", entry.name, "does not belong into a results folder", "Move it away."
                )
        texts = {name: text for name in names if (text := self.text(name)) is not None}
        plan = self.document(Plan, PLAN, texts)
        manifest = self.document(Manifest, MANIFEST, texts)
        tables = {
            row_type: tuple(self.table(row_type, texts[row_type.FILE]))
            for row_type in ROW_TYPES
            if row_type.FILE in texts
        }
        if plan is None or manifest is None:
            return None
        self.check_digests(manifest, names)
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
        if len(tables) < len(ROW_TYPES):
            return None

        def rows(row_type: type[R]) -> tuple[R, ...]:
            return cast("tuple[R, ...]", tables[cast("type[Row]", row_type)])

        results = ResultSet(
            path=self.path,
            plan=plan,
            manifest=manifest,
            systems=rows(SystemRow),
            ceilings=rows(CeilingRow),
            trials=rows(TrialRow),
            requests=rows(RequestRow),
            steps=rows(StepRow),
            prompts={row.sha256: row.token_ids for row in rows(PromptRow)},
            outputs={row.sha256: row.token_ids for row in rows(OutputRow)},
            divergences=rows(DivergenceRow),
            sweep=rows(SweepRow),
        )
        if not self.faults:  # a reference into a broken table would only repeat its fault
            self.faults.extend(dangling(results))
        return results

    def text(self, name: str) -> str | None:
        """The file as text, or None with a fault."""
        path = self.path / name
        if path.is_symlink() or not path.is_file():
            missing = not path.is_symlink() and not path.exists()
            self.fault("REP001", name, "is missing" if missing else "is not a regular file")
            return None
        content = path.read_bytes()
        self.contents[name] = content
        flaw = _flaw(content)
        if flaw is not None:
            offset, message, hint = flaw
            line = None if offset is None else content.count(b"\n", 0, offset) + 1
            self.fault("REP001", name, message, hint, row=line)
            return None
        return content.decode("utf-8")

    def document(self, record_type: type[Any], name: str, texts: Mapping[str, str]) -> Any:
        if name not in texts:
            return None
        version = documents.schema_version(texts[name])
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
        record = documents.decode(record_type, texts[name], name)
        if isinstance(record, Sequence):
            self.faults.extend(record)
            return None
        return record

    def table(self, row_type: type[Row], text: str) -> Iterator[Row]:
        """The rows of a file; a row with a fault is left out and the fault is kept."""
        name = row_type.FILE
        columns = columns_of(row_type)
        lines = csv.reader(io.StringIO(text), strict=True)
        try:
            if not self.check_header(name, next(lines), [column.name for column in columns]):
                return
            keys: dict[tuple[object, ...], int] = {}
            readers = [(column.name, column.read) for column in columns]
            hashed = row_type in {PromptRow, OutputRow}
            for line, cells in enumerate(lines, start=2):
                if len(cells) != len(columns):
                    self.fault(
                        "REP003", name, f"has {len(cells)} cells for {len(columns)} columns",
                        row=line,
                    )  # fmt: skip
                    continue
                values: dict[str, Any] = {}
                for (column, parse), cell in zip(readers, cells, strict=True):
                    try:
                        values[column] = parse(cell)
                    except ValueError as error:
                        self.fault("REP004", name, str(error), row=line, column=column, value=cell)
                if len(values) < len(columns):
                    continue
                key = tuple(values[column] for column in row_type.KEY)
                if key in keys:
                    self.fault(
                        "REP005",
                        name,
                        f"repeats the key of row {keys[key]}",
                        row=line,
                        column=", ".join(row_type.KEY),
                        value=", ".join(map(str, key)),
                    )
                    continue
                keys[key] = line
                if hashed:
                    self.check_token_digest(name, line, values)
                yield row_type(**values)
        except csv.Error as error:
            self.fault("REP001", name, f"is not CSV: {error}", row=lines.line_num)

    def check_header(self, name: str, header: list[str], expected: list[str]) -> bool:
        if header == expected:
            return True
        before = len(self.faults)
        for column in sorted(set(expected) - set(header), key=expected.index):
            self.fault("REP003", name, "lacks a column", row=1, column=column)
        for column in dict.fromkeys(header):
            if column not in expected:
                self.fault("REP003", name, "has an unknown column", row=1, column=column)
            elif header.count(column) > 1:
                self.fault("REP003", name, "has a column twice", row=1, column=column)
        if len(self.faults) == before:
            self.fault("REP003", name, "has its columns in another order", row=1)
        return False

    def check_token_digest(self, name: str, line: int, values: Mapping[str, Any]) -> None:
        digest = token_digest(values["token_ids"])
        if digest != values["sha256"]:
            self.fault(
                "REP006",
                name,
                f"the token ids have the digest {digest}, not the one beside them",
                row=line,
                column="sha256",
                value=values["sha256"],
            )

    def check_digests(self, manifest: Manifest, names: Sequence[str]) -> None:
        listed = {file.name: file for file in manifest.files}
        for name in sorted(listed.keys() - set(names)):
            self.fault("REP007", MANIFEST, "lists an unknown file", column="files", value=name)
        for name in sorted(listed):
            if sum(file.name == name for file in manifest.files) > 1:
                self.fault("REP007", MANIFEST, "lists a file twice", column="files", value=name)
        for name in names:
            if name == MANIFEST or name not in self.contents:
                continue
            if name not in listed:
                self.fault("REP007", MANIFEST, f"has no digest of {name}", column="files")
                continue
            content = self.contents[name]
            found = {
                "sha256": hashlib.sha256(content).hexdigest(),
                "bytes": len(content),
                "rows": None if name == PLAN else content.count(b"\n") - 1,
            }
            differing = [
                f"{what} {value} (the manifest says {getattr(listed[name], what)})"
                for what, value in found.items()
                if value != getattr(listed[name], what)
            ]
            if differing:
                message = f"is not the file of the manifest: it has {', '.join(differing)}"
                self.fault("REP007", name, message)


def _flaw(content: bytes) -> tuple[int | None, str, str] | None:
    """What keeps bytes from being a text file of the contract: (offset, message, hint)."""
    if not content.strip():
        return None, "is empty: not even a header is left", RESTORE
    if content.startswith(b"\xef\xbb\xbf"):
        return 0, "starts with a byte-order mark", "Save it as plain UTF-8 without one."
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start, "is not UTF-8", "Save it as plain UTF-8."
    for byte, what in ((b"\0", "holds a zero byte"), (b"\r", "has a carriage return")):
        if byte in content:
            return content.index(byte), what, "Save it as plain text with line feeds only."
    if not content.endswith(b"\n"):
        return len(content), "ends in the middle of a line", RESTORE
    return None


def dangling(results: ResultSet) -> Iterator[Fault]:
    """Every name that a row uses must be declared where it belongs (REP008)."""
    arms = {arm.name for arm in results.plan.arms}
    cells = {cell.id for cell in results.plan.cells}
    launches = {row.launch for row in results.systems}
    trials = {(row.block, row.cell, row.warmup) for row in results.trials}
    machine = {results.manifest.machine}
    known: dict[tuple[type[Row], str], tuple[Collection[Any], str]] = {
        (SystemRow, "arm"): (arms, "an arm of the plan"),
        (SystemRow, "machine"): (machine, "the manifest's machine"),
        (TrialRow, "cell"): (cells, "a cell of the plan"),
        (TrialRow, "launch"): (launches, "a row of systems.csv"),
        (RequestRow, "prompt_sha256"): (results.prompts, "a row of prompts.csv"),
        (RequestRow, "output_sha256"): (results.outputs, "a row of outputs.csv"),
        (DivergenceRow, "cell"): (cells, "a cell of the plan"),
        (DivergenceRow, "reference_cell"): (cells, "a cell of the plan"),
        (SweepRow, "cell"): (cells, "a cell of the plan"),
    }
    for row in itertools.chain.from_iterable(results.tables()):
        names = [
            (column, getattr(row, column), *target)
            for (row_type, column), target in known.items()
            if isinstance(row, row_type)
        ]
        if isinstance(row, RequestRow | StepRow):
            key = (row.block, row.cell, row.warmup)
            names.append(("block, cell, warmup", key, trials, "a row of trials.csv"))
        for column, value, targets, what in names:
            if value not in targets:
                yield Fault(
                    rule="REP008",
                    file=row.FILE,
                    row=results.line_of(row),
                    column=column,
                    value=shorten(str(value)),
                    message=f"names something that is not {what}",
                    hint=RESTORE,
                )
