"""Small folders of records: a JSON document of one record, and CSV tables of rows.

For what a command keeps of itself (the speed table, the profile, the soak). Sweeps have a reader of
their own (`results.py`), which trusts less and checks more.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from nanoserve_bench import documents
from nanoserve_bench.columns import columns_of
from nanoserve_bench.errors import BenchError

T = TypeVar("T")


class RecordError(BenchError):
    """A file that cannot be used; the message names file, row and column."""


def read_document(record: type[T], path: Path, *, schema: int) -> T:
    """A JSON document of one record.

    Raises:
        RecordError: It is missing, damaged or of another schema.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    version = documents.schema_version(text)
    if version is not None and version != schema:
        raise RecordError(f"{path} has schema {version!r}, and this reader knows {schema}")
    document = documents.decode(record, text, path.name)
    if isinstance(document, Sequence):
        faults = "\n".join(f"  {fault}" for fault in document)
        raise RecordError(f"{path}: {len(document)} fault(s)\n{faults}")
    return document


def table_text(row_type: type, rows: Sequence[Any]) -> str:
    """Rows as CSV, header included."""
    columns = columns_of(row_type)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([c.write(getattr(row, c.name)) for c in columns] for row in rows)
    return out.getvalue()


def read_table(row_type: type[T], path: Path) -> tuple[T, ...]:
    """The rows of a CSV file.

    Raises:
        RecordError: It is missing, or a cell is not what its column says; all faults at once.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    columns = columns_of(row_type)
    header, *lines = list(csv.reader(io.StringIO(text))) or [[]]
    if header != [column.name for column in columns]:
        names = ", ".join(column.name for column in columns)
        raise RecordError(f"{path}, row 1: the columns are not {names}")
    rows, faults = [], []
    for number, line in enumerate(lines, start=2):
        if len(line) != len(columns):
            faults.append(f"row {number}: has {len(line)} cells, and {len(columns)} columns")
            continue
        fields = {}
        for column, text in zip(columns, line, strict=True):
            try:
                fields[column.name] = column.read(text)
            except ValueError as fault:
                faults.append(f"row {number}, column {column.name}: {text!r} {fault}")
        if len(fields) == len(columns):
            rows.append(row_type(**fields))
    if faults:
        raise RecordError("\n".join([f"{path}: {len(faults)} fault(s)", *faults]))
    return tuple(rows)


def replace_text(path: Path, text: str) -> None:
    """Replace a file as a whole, or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
