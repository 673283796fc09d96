"""Which soak to run: an unfinished one of the very same kind, or a new one in its own folder."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

from nanoserve_bench.record_files import RecordError, read_document
from nanoserve_bench.run_names import free
from nanoserve_bench.schema import token_digest
from nanoserve_bench.soak.cases import Request
from nanoserve_bench.soak.records import (
    DOCUMENT,
    SCHEMA_VERSION,
    AnswerRow,
    Soak,
    read_answers,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """A soak as far as it has come, and what its reference has answered."""

    soak: Soak
    answers: tuple[AnswerRow, ...] = ()


def begin(
    out: Path, planned: Soak, *, requests: Sequence[Request], cases: AbstractSet[str]
) -> Begun:
    """The soak to go on with, or else the planned one, under the first name that is free.

    A soak goes on where code, machine, model, seed and every recorded fact are the same, and all
    that it has done is part of what is to be done.

    Args:
        out: Folder of the folders of soaks.
        planned: With nothing in it; its run id is the name that it would like to have.
        requests: What is to be asked.
        cases: Names of what is to be run.
    """
    for document in sorted(out.glob(f"*/{DOCUMENT}")):
        try:
            # Not the tables beside it: they are rewritten from it, and may be one case behind.
            stored = read_document(Soak, document, schema=SCHEMA_VERSION)
            answers = read_answers(document.parent)
        except RecordError:
            continue
        if _goes_on(stored, answers, planned, requests) and cases >= {c.case for c in stored.cases}:
            return Begun(soak=stored, answers=answers)
    return Begun(soak=replace(planned, run_id=free(planned.run_id, out)))


def answer_row(index: int, request: Request, token_ids: Sequence[int]) -> AnswerRow:
    """What the reference said to a request."""
    return AnswerRow(
        request=index,
        prompt_sha256=token_digest(request.prompt),
        max_tokens=request.max_tokens,
        token_ids=tuple(token_ids),
    )


def _goes_on(
    stored: Soak, answers: Sequence[AnswerRow], planned: Soak, requests: Sequence[Request]
) -> bool:
    same = replace(
        planned,
        run_id=stored.run_id,
        created_at=stored.created_at,
        reference=stored.reference,
        requests=stored.requests,
        cases=stored.cases,
        differences=stored.differences,
    )
    asked = [answer_row(*pair, token_ids=()) for pair in enumerate(requests)]
    return (
        stored == same  # and so it is not complete
        and stored.requests in (0, len(requests))
        and [replace(answer, token_ids=()) for answer in answers] == asked[: len(answers)]
        and len(answers) >= stored.requests
    )
