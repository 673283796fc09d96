"""A server of the tiny model, asked as an arm asks it."""

from __future__ import annotations

from collections.abc import Sequence

from nanoserve_bench import SystemRun
from nanoserve_bench.protocol import Description, Launch, Trial, TrialResult
from nanoserve_bench.records import RunRecord, Settings, Shape
from nanoserve_bench.worker import Session
from support.completions_server import CompletionsServer, Reply

PROMPTS = ((10, 11, 12), (20, 21, 22), (30, 31, 32))
BAD = PROMPTS[1][0]
TOKENS = 4


def options_of(served: CompletionsServer, /, **more: str) -> dict[str, str]:
    declared = {"weights": "study", "tokenizer": "study", "cache": "off", "precision": "ieee"}
    return {"url": served.url, "model": "tiny", "threads": "1", **declared, **more}


def run_of(
    records: Sequence[RunRecord], settings: Settings, *, system: str = "openai"
) -> SystemRun:
    return SystemRun(
        system=system, shape=Shape.CONCURRENT, slots=2, records=records, settings=settings
    )


def measured(launch: Launch) -> tuple[Description, TrialResult]:
    session = Session()
    description = session.answer(launch)
    assert isinstance(description, Description), description
    result = session.answer(Trial(slots=2, prompts=PROMPTS, max_tokens=(TOKENS,) * len(PROMPTS)))
    assert isinstance(result, TrialResult), result
    return description, result


def breaks_off(reply: Reply, ids: Sequence[int], _: int) -> None:
    """An answer that ends in an error after its first token."""
    reply.head()
    reply.token(ids[0])
    reply.event({"error": {"message": "the engine died", "code": 500}})
    reply.end()
