"""Whether the prefix cache was in the state that the run declares."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nanoserve_bench.records import SystemRun, undeclared
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.soundness.rule import Flaw, RunRule
from nanoserve_bench.tables import Flags

STATES = frozenset({"unknown", "off", "on"})
"""What a system may say of its prefix cache; a blank is unknown as well."""


def _cache(run: SystemRun) -> Iterator[Flaw]:
    state = undeclared(run.settings.cache or "unknown")
    if state not in STATES:
        yield Flaw(
            f"the prefix cache is declared {state!r}, which is neither off nor on",
            file="systems.csv",
        )
    for record in run.records:
        cached = record.cached_tokens
        if cached is None:
            if state == "on":
                yield Flaw(
                    f"request {record.request} does not say how much of its prompt was cached",
                    request=record.request,
                )
        elif not 0 <= cached <= len(record.prompt_ids):
            yield Flaw(
                f"request {record.request} has {cached} cached tokens in a prompt of "
                f"{len(record.prompt_ids)}",
                request=record.request,
            )
        elif cached and state != "on":
            yield Flaw(
                f"request {record.request} took {cached} tokens from a prefix cache that is "
                f"declared {state}",
                request=record.request,
            )


def _all_as_declared(profile: Profile) -> Flags:
    trials = profile.trials
    cached, told = trials.numbers("cached_tokens"), trials.known("cached_tokens")
    states = [undeclared(settings.cache or "unknown") for settings in profile.settings]
    on = profile.where([state == "on" for state in states])
    known = np.array([state in STATES for state in states], np.bool_)
    beyond = (cached < 0) | (cached > trials.prompt_lengths)
    return known & profile.none((on & ~told) | (told & beyond) | (told & (cached != 0) & ~on))


CACHE = RunRule(
    code="RUN019",
    name="cache-as-declared",
    sentence="Cached tokens are told where the prefix cache is on, and are zero where it is off.",
    rationale=(
        "A prompt that was served from a cache was not computed. Several engines cache by default, "
        "so the count of the run outweighs the setting. A state that is neither off nor on is not "
        "known to be off; whether an unknown one may be compared is for PAIR010."
    ),
    remedy="Switch the cache off, or declare it on and record the cached tokens of every request.",
    check=_cache,
    clear=_all_as_declared,
)
