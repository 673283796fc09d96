"""Whether the prompts were new to the system that answered them."""

from __future__ import annotations

from collections.abc import Iterator

from nanoserve_bench.records import SystemRun
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rule import Flaw, Inspection, RunRule, StudyRule


def _distinct(run: SystemRun) -> Iterator[Flaw]:
    seen: dict[tuple[int, ...], str] = {}
    for record in run.records:
        first = seen.setdefault(record.prompt_ids, record.request)
        if first != record.request:
            yield Flaw(
                f"request {record.request} has the prompt of request {first}",
                request=record.request,
                evidence=" ".join(map(str, record.prompt_ids[:16])),
            )


DISTINCT = RunRule(
    code="RUN015",
    name="prompts-distinct",
    sentence="No prompt stands twice in a trial.",
    rationale="One prompt eight times is one answer and seven look-ups, where answers are kept.",
    remedy="Draw distinct prompts.",
    check=_distinct,
)


def _fresh(evidence: Evidence, inspection: Inspection) -> None:
    blocks: dict[str, int | None] = {}  # None: in more than one block
    for trial in evidence.trials:
        for row in trial.rows:
            if blocks.setdefault(row.prompt_sha256, trial.block) != trial.block:
                blocks[row.prompt_sha256] = None
    for trial in evidence.measured:
        for row in trial.rows:
            if blocks[row.prompt_sha256] is None:
                inspection.refuse_trial(
                    trial,
                    Flaw(
                        f"request {row.request} has a prompt that another block runs as well",
                        request=row.request,
                        evidence=row.prompt_sha256,
                    ),
                )
        inspection.saw(len(trial.rows))


FRESH = StudyRule(
    code="RUN016",
    name="prompts-fresh",
    sentence="The prompts of a block occur in no other block, be it a warm-up or replaced.",
    rationale=(
        "Blocks are the unit of the statistics and must be independent: a prompt that comes back "
        "may be answered from a cache that outlived its block. Inside a block all cells run the "
        "same prompts on purpose, each in a worker of its own arm."
    ),
    remedy="Seed the prompts by the block.",
    check=_fresh,
)
