"""What a soak keeps (`soak.json`, its two tables and the reference's answers beside it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from nanoserve_bench import documents
from nanoserve_bench.plan import Fact
from nanoserve_bench.record_files import (
    RecordError,
    read_document,
    read_table,
    replace_text,
    table_text,
)

SCHEMA_VERSION = 1
DOCUMENT = "soak.json"


class Finding(StrEnum):
    """What may be said of a case."""

    IDENTICAL = "identical"
    NEAR_TIES = "near-ties"
    """Some outputs differ, and each first difference lies inside the reference's noise floor."""
    BUG = "bug"
    UNPROVEN = "unproven"
    """It did not do what it is there for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseRow:
    """One way to serve the prompts (`soak.csv`).

    Attributes:
        settings: In words.
        kernel_path: Which kernels multiplied; None where the engine did not come to an end.
        tokens: Output tokens that were compared.
        identical: Requests whose tokens are the reference's.
        near_ties: Requests that differ inside the noise floor.
        bugs: Requests that differ otherwise, failed, or gave another number of tokens.
        preemptions: Slots that were lost and had again.
        chunks: Pieces of prompts beyond the first of each.
        cached_tokens: Prompt tokens that were not computed.
        most_rows: Most rows of one step.
        finding: `identical`, `near-ties`, `bug` or `unproven`.
        note: What went wrong.
    """

    FILE: ClassVar[str] = "soak.csv"

    case: str
    settings: str
    kernel_path: str | None
    requests: int
    tokens: int
    identical: int
    near_ties: int
    bugs: int
    preemptions: int
    chunks: int
    cached_tokens: int
    most_rows: int
    finding: str
    note: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DifferenceRow:
    """One request whose tokens differ (`differences.csv`).

    `schema.DivergenceRow` says what the fields mean; texts are JSON strings, for a token may be a
    line break. All are empty for a request that failed.
    """

    FILE: ClassVar[str] = "differences.csv"

    case: str
    request: int
    prompt_tokens: int
    kind: str
    position: int | None
    token_id: int | None
    reference_token_id: int | None
    text: str | None
    reference_text: str | None
    top2_margin: float | None
    noise_floor: float | None
    later_agreement: float | None
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRow:
    """What the reference said to one request (`answers.csv`): what a soak that goes on starts from.

    Attributes:
        prompt_sha256: Of the prompt, as `schema.token_digest` makes it.
        max_tokens: How many tokens were asked for.
    """

    FILE: ClassVar[str] = "answers.csv"

    request: int
    prompt_sha256: str
    max_tokens: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Soak:
    """`soak.json`.

    Attributes:
        reference: What decided, with its version.
        requests: Prompts that the reference has answered.
        complete: Whether every case has run.
        command: The command line of it; empty where it was not recorded.
    """

    schema: int
    run_id: str
    created_at: str
    revision: str | None
    dirty: bool | None
    sources: str
    model: str
    model_source: str
    machine: str
    threads: int
    seed: int
    facts: tuple[Fact, ...]
    reference: str
    requests: int
    complete: bool
    cases: tuple[CaseRow, ...]
    differences: tuple[DifferenceRow, ...]
    command: str = ""

    @property
    def sound(self) -> bool:
        """Whether nothing but near-ties was found, and every case proved what it is there for."""
        good = {Finding.IDENTICAL, Finding.NEAR_TIES}
        return self.complete and bool(self.cases) and all(c.finding in good for c in self.cases)


def write_soak(folder: Path, soak: Soak) -> None:
    """Write what is there so far."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / DOCUMENT, documents.encode(soak))
    replace_text(folder / CaseRow.FILE, table_text(CaseRow, soak.cases))
    replace_text(folder / DifferenceRow.FILE, table_text(DifferenceRow, soak.differences))


def write_answers(folder: Path, answers: Sequence[AnswerRow]) -> None:
    """Write what the reference has said so far."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / AnswerRow.FILE, table_text(AnswerRow, answers))


def read_answers(folder: Path) -> tuple[AnswerRow, ...]:
    """What the reference has said so far; nothing where it has not begun.

    Raises:
        RecordError: The file is damaged.
    """
    path = folder / AnswerRow.FILE
    return read_table(AnswerRow, path) if path.is_file() else ()


def read_soak(folder: Path) -> Soak:
    """A soak, its tables checked against the document.

    Raises:
        RecordError: A file is missing, damaged, or says something else.
    """
    soak = read_document(Soak, folder / DOCUMENT, schema=SCHEMA_VERSION)
    tables = ((CaseRow, soak.cases), (DifferenceRow, soak.differences))
    for row_type, rows in tables:
        if read_table(row_type, folder / row_type.FILE) != rows:
            raise RecordError(f"{folder / row_type.FILE} says something else than {DOCUMENT}")
    return soak
