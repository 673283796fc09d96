"""Whether the prefix cache was in the state that the run declares."""

from __future__ import annotations

from collections.abc import Iterator

from nanoserve_bench.records import SystemRun, undeclared
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.soundness.rule import Flaw, RunRule
from nanoserve_bench.tables import Flags


def _cache(run: SystemRun) -> Iterator[Flaw]:
    state = undeclared(run.settings.cache or "unknown")
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
    on = profile.where([undeclared(s.cache or "") == "on" for s in profile.settings])
    beyond = (cached < 0) | (cached > trials.prompt_lengths)
    return profile.none((on & ~told) | (told & beyond) | (told & (cached != 0) & ~on))


CACHE = RunRule(
    code="RUN019",
    name="cache-as-declared",
    sentence="Cached tokens are told where the prefix cache is on, and are zero where it is off.",
    rationale=(
        "A prompt that was served from a cache was not computed. Several engines cache by default, "
        "so the count of the run outweighs the setting."
    ),
    remedy="Switch the cache off, or declare it on and record the cached tokens of every request.",
    check=_cache,
    clear=_all_as_declared,
)
