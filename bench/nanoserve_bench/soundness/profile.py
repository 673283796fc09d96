"""A study as the rules can ask it as a whole: what holds for each trial, of all at once.

A rule's `check` goes over the records of one run and words what is wrong. Its `clear`, beside it in
the same module, asks the same question of the columns of all trials: a trial that it clears has
nothing that `check` would find. So the records of a sound study are never made, and there is one
place that decides and words each refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nanoserve_bench.records import Settings, Shape, SystemRun
from nanoserve_bench.tables import Flags, Ints
from nanoserve_bench.trialset import TrialSet


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The columns of all trials, with what their runs add; arrays have one entry per trial."""

    trials: TrialSet
    serial: Flags
    slots: Ints
    logged: Flags
    settings: Sequence[Settings]

    @classmethod
    def of(cls, trials: TrialSet, runs: Sequence[SystemRun]) -> Profile:
        """The profile of the runs of a trial set."""
        return cls(
            trials=trials,
            serial=np.array([run.shape is Shape.SERIAL for run in runs], np.bool_),
            slots=np.array([run.slots for run in runs], np.int64),
            logged=np.array([run.steps is not None for run in runs], np.bool_),
            settings=[run.settings for run in runs],
        )

    def none(self, requests: Flags) -> Flags:
        """Trials of which no request is flagged."""
        return ~self.trials.any(requests)

    def all_or_none(self, name: str) -> Flags:
        """Trials whose requests all have something in a column, or all have nothing there."""
        count = self.trials.count(self.trials.known(name))
        whole: Flags = (count == 0) | (count == self.trials.counts)
        return whole

    def where(self, decide: list[bool]) -> Flags:
        """For each request what was decided for its trial."""
        return np.repeat(np.array(decide, np.bool_), self.trials.counts)

    def same_work(self, one: int, other: int) -> bool:
        """Whether two trials surely had the same requests and outputs, matched by prompt."""
        bounds, prompt, output = self.trials.bounds, self.trials.prompt, self.trials.output
        below, above = (slice(int(bounds[n]), int(bounds[n + 1])) for n in (one, other))
        if below.stop - below.start != above.stop - above.start:
            return False
        asked = self.trials.requests.whole("max_tokens")  # of two trials, not of the whole study
        asked_below, asked_above = (asked.part(p.start, p.stop) for p in (below, above))
        if np.array_equal(prompt[below], prompt[above]):
            return np.array_equal(output[below], output[above]) and np.array_equal(
                asked_below, asked_above
            )
        orders = [np.argsort(prompt[part], kind="stable") for part in (below, above)]
        prompts = prompt[below][orders[0]]
        return (
            bool((np.diff(prompts) > 0).all())  # distinct, so that there is one way to match them
            and np.array_equal(prompts, prompt[above][orders[1]])
            and np.array_equal(output[below][orders[0]], output[above][orders[1]])
            and np.array_equal(asked_below[orders[0]], asked_above[orders[1]])
        )
