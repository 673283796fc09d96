"""Whether the tokens of a run are tokens of its model."""

from __future__ import annotations

import numpy as np

from nanoserve_bench.plan import VOCABULARY, Manifest
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule
from nanoserve_bench.tables import Flags, Ints, TokenLists

MOST_IDS = 2**31
"""Where no vocabulary is recorded: more than any tokenizer has."""


def vocabulary(manifest: Manifest) -> int | None:
    """How many token ids the model has; None where nobody recorded it."""
    values = [fact.value for fact in manifest.facts if fact.name == VOCABULARY]
    known = [value for value in values if type(value) is int and value > 0]
    return min(known, default=None)


def _outside(tokens: TokenLists, size: int) -> Flags:
    """Which lists hold an id that is none."""
    wrong = np.concatenate([[0], np.cumsum((tokens.lists.flat < 0) | (tokens.lists.flat >= size))])
    found: Flags = np.diff(wrong[tokens.lists.bounds]) > 0
    return found


def _ids(evidence: Evidence, inspection: Inspection) -> None:
    trials = evidence.columns
    size = vocabulary(evidence.results.manifest)
    what = "the model has none recorded" if size is None else f"the model has {size} ids"
    measured = {trial.number: trial for trial in evidence.measured}
    inspection.saw(sum(len(trial.run.records) for trial in evidence.measured))
    sides: tuple[tuple[str, TokenLists, Ints], ...] = (
        ("prompt", trials.prompts, trials.prompt),
        ("output", trials.outputs, trials.output),
    )
    for name, tokens, places in sides:
        outside = _outside(tokens, size or MOST_IDS)
        for row in np.flatnonzero(outside[places]).tolist():
            trial = measured.get(int(trials.owner[row]))
            if trial is None:
                continue
            (ids,) = tokens.at(places[row : row + 1])
            position = next(n for n, i in enumerate(ids) if not 0 <= i < (size or MOST_IDS))
            request = trials.request(row)
            inspection.refuse_trial(
                trial,
                Flaw(
                    f"request {request} has the id {ids[position]} at position {position} of its "
                    f"{name}, which is no token ({what})",
                    request=request,
                    position=position,
                ),
            )


IDS = StudyRule(
    code="RUN024",
    name="ids-in-vocabulary",
    sentence="Every token id of prompts and outputs is one that the model has.",
    rationale=(
        "A padding of -1, or ids beyond the vocabulary, on both sides agree with each other, and "
        "no model said them. The sweep records how many ids the model has; where nobody did, an "
        "id must be at least 0 and below 2^31."
    ),
    remedy="Write the ids that the model was given and gave, and leave padding out.",
    check=_ids,
)
