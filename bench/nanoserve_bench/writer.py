"""Writing a results folder so that a kill at any moment costs at most the block in flight.

A block is appended file by file and becomes true with one atomic replacement of `manifest.json`,
which holds the length and the digest of every file. What stands behind those lengths in a file is
a block that was cut off; `ResultsWriter.resume` cuts it away.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from nanoserve_bench import documents
from nanoserve_bench.columns import columns_of
from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Fact, FileDigest, Manifest, Plan, Start
from nanoserve_bench.results import MANIFEST, PLAN
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

_NEW_MANIFEST = f".{MANIFEST}.new"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class BlockRows:
    """Everything that one block adds; prompts and outputs are token lists, stored once each."""

    systems: tuple[SystemRow, ...]
    ceilings: tuple[CeilingRow, ...]
    trials: tuple[TrialRow, ...]
    requests: tuple[RequestRow, ...]
    steps: tuple[StepRow, ...]
    prompts: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    divergences: tuple[DivergenceRow, ...] = ()


class ResultsWriter:
    """Appends blocks to one results folder. Made by `create` or `resume`."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._hashes = {
            file.name: hashlib.sha256((path / file.name).read_bytes()) for file in manifest.files
        }
        self._rows = {file.name: file.rows for file in manifest.files}
        self._stored = {
            row_type.FILE: _stored_digests(path / row_type.FILE)
            for row_type in (PromptRow, OutputRow)
        }

    @classmethod
    def create(
        cls, path: Path, plan: Plan, *, machine: str, facts: tuple[Fact, ...]
    ) -> ResultsWriter:
        """Start a folder: the plan, a header in every file, and a manifest without blocks.

        Raises:
            PlanError: The folder exists and is not empty.
        """
        if path.exists() and any(path.iterdir()):
            raise PlanError(f"{path} exists and is not empty: choose another run id")
        path.mkdir(parents=True, exist_ok=True)
        (path / PLAN).write_text(documents.encode(plan), encoding="utf-8")
        for row_type in ROW_TYPES:
            (path / row_type.FILE).write_text(_csv_text(row_type, (), header=True), "utf-8")
        names = [PLAN, *(row_type.FILE for row_type in ROW_TYPES)]
        manifest = Manifest(
            schema=SCHEMA_VERSION,
            run_id=plan.run_id,
            machine=machine,
            facts=facts,
            ledger=(),
            blocks_done=0,
            complete=False,
            files=tuple(
                FileDigest(name=name, sha256="", bytes=0, rows=None if name == PLAN else 0)
                for name in names
            ),
        )
        writer = cls(path, manifest)
        writer._commit()
        return writer

    @classmethod
    def resume(cls, path: Path) -> ResultsWriter:
        """Open a folder to go on, cutting away what a kill left behind the last complete block.

        Raises:
            PlanError: The manifest cannot be read, or a file is not what it was.
        """
        (path / _NEW_MANIFEST).unlink(missing_ok=True)
        text = (path / MANIFEST).read_text(encoding="utf-8")
        manifest = documents.decode(Manifest, text, MANIFEST)
        if isinstance(manifest, Sequence):
            faults = "; ".join(str(fault) for fault in manifest)
            raise PlanError(f"{path} cannot go on: {faults}")
        for file in manifest.files:
            target = path / file.name
            content = target.read_bytes()[: file.bytes] if target.is_file() else b""
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise PlanError(
                    f"{target} is not what the sweep wrote: choose another run id and start anew"
                )
            os.truncate(target, file.bytes)
        return cls(path, manifest)

    def write_block(self, rows: BlockRows) -> None:
        """Append a block and make it true."""
        self._append(SystemRow, rows.systems)
        self._append(CeilingRow, rows.ceilings)
        self._append(TrialRow, rows.trials)
        self._append(RequestRow, rows.requests)
        self._append(StepRow, rows.steps)
        self._append(DivergenceRow, rows.divergences)
        self._append(PromptRow, self._unseen(PromptRow, rows.prompts))
        self._append(OutputRow, self._unseen(OutputRow, rows.outputs))
        self._commit(blocks_done=self.manifest.blocks_done + 1)

    def record_start(self, start: Start) -> None:
        """Enter a start into the ledger, with the digest of the plan that it found.

        An earlier start that is still `running` was interrupted.
        """
        start = dataclasses.replace(start, plan_sha256=self._hashes[PLAN].hexdigest())
        earlier = tuple(
            dataclasses.replace(entry, outcome="interrupted")
            if entry.outcome == "running"
            else entry
            for entry in self.manifest.ledger
        )
        self._commit(ledger=(*earlier, start))

    def record_outcome(self, outcome: str) -> None:
        """Say how the current start ended."""
        *earlier, last = self.manifest.ledger
        self._commit(ledger=(*earlier, dataclasses.replace(last, outcome=outcome)))

    def finish(self, summary: Iterable[SweepRow]) -> None:
        """Write the summary and close the study: its current start is `completed`."""
        *earlier, last = self.manifest.ledger
        self._append(SweepRow, tuple(summary))
        self._commit(
            complete=True, ledger=(*earlier, dataclasses.replace(last, outcome="completed"))
        )

    def _unseen(
        self, row_type: type[PromptRow | OutputRow], lists: Iterable[tuple[int, ...]]
    ) -> tuple[PromptRow | OutputRow, ...]:
        seen = self._stored[row_type.FILE]
        fresh = {token_digest(ids): ids for ids in lists}
        rows = [row_type(sha256=key, token_ids=fresh[key]) for key in fresh if key not in seen]
        seen.update(fresh)
        return tuple(rows)

    def _append(self, row_type: type[Row], rows: Sequence[Row]) -> None:
        if not rows:
            return
        content = _csv_text(row_type, rows, header=False).encode("utf-8")
        with (self.path / row_type.FILE).open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._hashes[row_type.FILE].update(content)
        self._rows[row_type.FILE] = (self._rows[row_type.FILE] or 0) + len(rows)

    def _commit(
        self,
        *,
        blocks_done: int | None = None,
        complete: bool | None = None,
        ledger: tuple[Start, ...] | None = None,
    ) -> None:
        """Make what was appended true; what is not given stays as it is."""
        files = tuple(
            FileDigest(
                name=name,
                sha256=digest.hexdigest(),
                bytes=(self.path / name).stat().st_size,
                rows=self._rows[name],
            )
            for name, digest in self._hashes.items()
        )
        self.manifest = dataclasses.replace(
            self.manifest,
            files=files,
            blocks_done=self.manifest.blocks_done if blocks_done is None else blocks_done,
            complete=self.manifest.complete if complete is None else complete,
            ledger=self.manifest.ledger if ledger is None else ledger,
        )
        temporary = self.path / _NEW_MANIFEST
        with temporary.open("w", encoding="utf-8") as file:
            file.write(documents.encode(self.manifest))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / MANIFEST)


def _stored_digests(path: Path) -> set[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["sha256"] for row in csv.DictReader(file)}


def _csv_text(row_type: type[Row], rows: Sequence[Row], *, header: bool) -> str:
    columns = columns_of(row_type)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if header:
        writer.writerow([column.name for column in columns])
    for row in rows:
        writer.writerow([column.write(getattr(row, column.name)) for column in columns])
    return buffer.getvalue()
