"""Whether the prompts were new to the system that answered them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nanoserve_bench.records import SystemRun
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.soundness.rule import Flaw, Inspection, RunRule, StudyRule
from nanoserve_bench.tables import Flags


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


def _all_distinct(profile: Profile) -> Flags:
    trials = profile.trials
    order = np.lexsort((trials.prompt, trials.owner))
    prompt, owner = trials.prompt[order], trials.owner[order]
    again = (np.diff(prompt) == 0) & (np.diff(owner) == 0)
    clear = np.ones(len(trials), np.bool_)
    clear[owner[1:][again]] = False
    return clear


DISTINCT = RunRule(
    code="RUN015",
    name="prompts-distinct",
    sentence="No prompt stands twice in a trial.",
    rationale="One prompt eight times is one answer and seven look-ups, where answers are kept.",
    remedy="Draw distinct prompts.",
    check=_distinct,
    clear=_all_distinct,
)


def _fresh(evidence: Evidence, inspection: Inspection) -> None:
    trials = evidence.columns
    block = trials.numbers("block")
    order = np.lexsort((block, trials.prompt))
    prompt, blocks = trials.prompt[order], block[order]
    shared = np.unique(prompt[1:][(np.diff(prompt) == 0) & (np.diff(blocks) != 0)])
    warmups = np.array([trial.row.warmup for trial in evidence.trials], np.bool_)
    warm = np.unique(trials.prompt[warmups[trials.owner]])
    shared = np.union1d(shared, warm)
    stale = np.flatnonzero(np.isin(trials.prompt, shared)).tolist() if len(shared) else ()
    inspection.saw(sum(len(trial.run.records) for trial in evidence.measured))
    measured = {trial.number: trial for trial in evidence.measured}
    for place in stale:
        trial = measured.get(int(trials.owner[place]))
        if trial is not None:
            request = trials.request(place)
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"request {request} has a prompt that another block or a warm-up runs as well",
                    request=request,
                    evidence=trials.digest(place),
                ),
            )


FRESH = StudyRule(
    code="RUN016",
    name="prompts-fresh",
    sentence="A measured prompt occurs in no other block, replaced ones included, and in no "
    "warm-up.",
    rationale=(
        "Blocks are the unit of the statistics and must be independent: a prompt that comes back "
        "may be answered from a cache that outlived its block, and one that warmed the worker up "
        "from a memory of a minute. Inside a block all cells run the same measured prompts on "
        "purpose, each in a worker of its own arm."
    ),
    remedy="Seed the prompts by the block, and warm up with others.",
    check=_fresh,
)
