"""Whether a run did anything, and whether every request got what was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nanoserve_bench.records import SystemRun
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.soundness.rule import Flaw, Inspection, RunRule, StudyRule
from nanoserve_bench.tables import Flags

GOOD_REASONS = frozenset({"length", "stop"})


def _empty(run: SystemRun) -> Iterator[Flaw]:
    if not run.records:
        yield Flaw("the run has no requests, so it measured nothing")
    elif not run.output_tokens:
        yield Flaw(f"{len(run.records)} requests produced no output token at all")
    elif not run.totals.unfinished:
        start, finish = run.started_ns, run.finished_ns
        if finish <= start:
            yield Flaw(
                f"the wall is {finish - start} ns: last finish {finish}, first arrival {start}"
            )


EMPTY = RunRule(
    code="RUN001",
    name="run-not-empty",
    sentence="A run has requests, output tokens and a wall above zero.",
    rationale="A gate that is green when nothing ran is the commonest one there is.",
    remedy="Look into the worker's log: the trial did not run.",
    check=_empty,
    file="trials.csv",
)


def _failed(run: SystemRun) -> Iterator[Flaw]:
    for record in run.records:
        if record.finish_reason not in GOOD_REASONS or record.error:
            yield Flaw(
                f"request {record.request} failed: {record.finish_reason}",
                request=record.request,
                evidence=record.error,
            )
        elif not record.output_ids:
            yield Flaw(
                f"request {record.request} says {record.finish_reason} and has no output token",
                request=record.request,
            )


def _none_failed(profile: Profile) -> Flags:
    requests = profile.trials.requests
    return profile.none(
        ~requests.coded("finish_reason").having(GOOD_REASONS)
        | ~requests.coded("error").having({None})
        | (profile.trials.output_lengths == 0)
    )


FAILED = RunRule(
    code="RUN002",
    name="requests-succeed",
    sentence="Every request of a measured run succeeds and returns at least one token.",
    rationale=(
        "A failed request costs little time and enters every mean as if it had been fast. Finish "
        "reasons other than length and stop are failures, whatever their stamps say."
    ),
    remedy="Fix the failure and measure again; leaving the request out is not a repair.",
    check=_failed,
    clear=_none_failed,
)


def _output_as_asked(run: SystemRun) -> Iterator[Flaw]:
    for record in run.records:
        count = len(record.output_ids)
        if count > record.max_tokens:
            yield Flaw(
                f"request {record.request} has {count} output tokens, {record.max_tokens} were "
                "asked for",
                request=record.request,
                position=record.max_tokens,
            )
        if record.token_ns is not None and len(record.token_ns) != count:
            yield Flaw(
                f"request {record.request} has {len(record.token_ns)} token stamps for {count} "
                "output tokens",
                request=record.request,
            )
        if record.discarded_tokens < 0:
            yield Flaw(
                f"request {record.request} discarded {record.discarded_tokens} tokens",
                request=record.request,
            )


def _all_as_asked(profile: Profile) -> Flags:
    trials = profile.trials
    count, stamps = trials.output_lengths, trials.requests.lists("token_ns").lengths
    return profile.none(
        (count > trials.numbers("max_tokens"))
        | (trials.known("token_ns") & (stamps != count))
        | (trials.numbers("discarded_tokens") < 0)
    )


OUTPUT_AS_ASKED = RunRule(
    code="RUN006",
    name="output-as-asked",
    sentence="No request has more output tokens than were asked for, and each has its own stamp.",
    rationale=(
        "Padding, a chunk of three tokens stamped as one, or what a static batch generated beyond "
        "a request's length would all count as throughput."
    ),
    remedy="Count the token ids of the output; what lies beyond a request is discarded_tokens.",
    check=_output_as_asked,
    clear=_all_as_asked,
)


def _counts_match(evidence: Evidence, inspection: Inspection) -> None:
    trials = evidence.columns
    counts = (
        ("output_tokens", trials.numbers("output_tokens"), trials.output_lengths),
        ("prompt_tokens", trials.numbers("prompt_tokens"), trials.prompt_lengths),
    )
    measured = {trial.number: trial for trial in evidence.measured}
    inspection.saw(sum(len(trial.run.records) for trial in evidence.measured))
    for column, said, there in counts:
        for place in np.flatnonzero(said != there).tolist():
            trial = measured.get(int(trials.owner[place]))
            if trial is not None:
                request = trials.request(place)
                inspection.refuse_trial(
                    trial,
                    Flaw(
                        f"request {request}: {column} says {said[place]}, and {there[place]} ids "
                        "are there",
                        request=request,
                    ),
                )


COUNTS_MATCH = StudyRule(
    code="RUN007",
    name="counts-match-ids",
    sentence="Token counts in requests.csv equal the number of ids of the lists that they name.",
    rationale="A benchmark that counts max_tokens in place of tokens is fast at doing nothing.",
    remedy="Write the length of the token lists.",
    check=_counts_match,
)


def declared_eos(decoding: str | None) -> tuple[bool, frozenset[int]]:
    """Whether EOS is ignored, and which ids are declared as EOS.

    Read from a canonical decoding text, such as `greedy;ignore_eos` or `greedy;eos=0,2`.
    """
    parts = decoding.split(";") if decoding else []
    ids = [part.removeprefix("eos=") for part in parts if part.startswith("eos=")]
    return "ignore_eos" in parts, frozenset(
        int(text) for part in ids for text in part.split(",") if text.strip().isdigit()
    )


def _eos(run: SystemRun) -> Iterator[Flaw]:
    ignored, ends = declared_eos(run.settings.decoding)
    for record in run.records:
        count = len(record.output_ids)
        if record.finish_reason == "length" and count != record.max_tokens:
            yield Flaw(
                f"request {record.request} ended by length at {count} tokens, and "
                f"{record.max_tokens} were asked for",
                request=record.request,
                position=count,
            )
        if record.finish_reason == "stop" and count < record.max_tokens:
            stopped = f"request {record.request} stopped at {count} tokens of {record.max_tokens}"
            if ignored:
                yield Flaw(
                    f"{stopped}, and the decoding ignores EOS: nothing may end an output early",
                    request=record.request,
                    position=count,
                )
            elif not ends:
                yield Flaw(
                    f"{stopped}, and the decoding declares no EOS that could have ended it",
                    request=record.request,
                    position=count,
                )
            elif count and record.output_ids[-1] not in ends:
                yield Flaw(
                    f"{stopped} with {record.output_ids[-1]}, which the decoding does not declare "
                    "as EOS",
                    request=record.request,
                    position=count - 1,
                )
        if ends and not ignored:
            early = next((i for i, t in enumerate(record.output_ids[:-1]) if t in ends), None)
            if early is not None:
                yield Flaw(
                    f"request {record.request} goes on behind the EOS id "
                    f"{record.output_ids[early]}",
                    request=record.request,
                    position=early,
                )


def _all_end_as_declared(profile: Profile) -> Flags:
    trials = profile.trials
    reason = trials.requests.coded("finish_reason")
    short = trials.output_lengths < trials.numbers("max_tokens")
    differs = trials.output_lengths != trials.numbers("max_tokens")
    declared = [declared_eos(settings.decoding) for settings in profile.settings]
    looked_for = np.array([bool(ends) and not ignored for ignored, ends in declared], np.bool_)
    return ~looked_for & profile.none(
        (reason.having({"length"}) & differs) | (reason.having({"stop"}) & short)
    )


EOS = RunRule(
    code="RUN008",
    name="eos-as-declared",
    sentence="Outputs end where the declared decoding says that they end.",
    rationale=(
        "An output that ends by length has exactly the tokens that were asked for, and one that "
        "ends early says stop, which nothing may where EOS is ignored; where EOS is honoured, an "
        "early end is an id that the decoding declares as EOS (eos=0,2), and nothing stands behind "
        "one. A pad, a doubled EOS or a silent early end would all count as tokens that somebody "
        "paid for."
    ),
    remedy="Give the EOS setting to the system in the way it really obeys, on both sides.",
    check=_eos,
    clear=_all_end_as_declared,
)
