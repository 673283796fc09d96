"""What can be wrong with the form of a results folder: every fault, each with its place."""

from __future__ import annotations

from dataclasses import dataclass

from nanoserve_bench.errors import BenchError

RESTORE = "Restore the file as the sweep wrote it, or measure again."
"""What to do about most faults."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing wrong with a file.

    Attributes:
        rule: Code of the rule that refuses it, `REP001` to `REP009`.
        file: Name of the file in the folder.
        row: Line in the file, the header being line 1; None concerns the whole file.
        column: Column, or the path inside a JSON document.
        value: The offending value, shortened.
        message: What is wrong.
        hint: What to do about it.
    """

    rule: str
    file: str
    row: int | None = None
    column: str | None = None
    value: str | None = None
    message: str
    hint: str

    def __str__(self) -> str:
        """`outputs.csv, row 3, column sha256: message (value '...'). hint`."""
        place = ", ".join(
            part
            for part in (
                self.file,
                f"row {self.row}" if self.row is not None else "",
                f"column {self.column}" if self.column is not None else "",
            )
            if part
        )
        value = f" (value {self.value!r})" if self.value is not None else ""
        return f"{self.rule} {place}: {self.message}{value}. {self.hint}"


class ResultsError(BenchError):
    """A results folder that cannot be trusted in its form; `faults` holds everything found."""

    def __init__(self, path: object, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        lines = "\n".join(f"  {fault}" for fault in faults)
        super().__init__(f"{path}: {len(faults)} fault(s)\n{lines}")


_LINE_CHARACTERS = 400


def one_line(text: str) -> str:
    """A reason as it can stand in a cell; of a long one the end, where a traceback says what."""
    line = " ".join(text.split())
    return line if len(line) <= _LINE_CHARACTERS else f"... {line[-_LINE_CHARACTERS:]}"


def shorten(value: str, limit: int = 80) -> str:
    """A value as it can stand in a message: at most `limit` characters."""
    return value if len(value) <= limit else f"{value[: limit - 3]}..."
