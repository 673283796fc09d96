"""Whether a run did anything, and whether every request got what was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from nanoserve_bench.records import SystemRun
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rule import Flaw, Inspection, RunRule, StudyRule

GOOD_REASONS = frozenset({"length", "stop"})


def _empty(run: SystemRun) -> Iterator[Flaw]:
    if not run.records:
        yield Flaw("the run has no requests, so it measured nothing")
    elif not run.output_tokens:
        yield Flaw(f"{len(run.records)} requests produced no output token at all")
    elif all(record.finished_ns is not None for record in run.records):
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
)


def _counts_match(evidence: Evidence, inspection: Inspection) -> None:
    for trial in evidence.measured:
        for row, record in zip(trial.rows, trial.run.records, strict=True):
            for column, said, there in (
                ("output_tokens", row.output_tokens, len(record.output_ids)),
                ("prompt_tokens", row.prompt_tokens, len(record.prompt_ids)),
            ):
                if said != there:
                    inspection.refuse_trial(
                        trial,
                        Flaw(
                            f"request {row.request}: {column} says {said}, and {there} ids are "
                            "there",
                            request=row.request,
                        ),
                    )
        inspection.saw(len(trial.rows))


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
    parts = (decoding or "").split(";")
    ids = [part.removeprefix("eos=") for part in parts if part.startswith("eos=")]
    return "ignore_eos" in parts, frozenset(
        int(text) for part in ids for text in part.split(",") if text.isdigit()
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
        if ends and not ignored:
            early = next((i for i, t in enumerate(record.output_ids[:-1]) if t in ends), None)
            if early is not None:
                yield Flaw(
                    f"request {record.request} goes on behind the EOS id "
                    f"{record.output_ids[early]}",
                    request=record.request,
                    position=early,
                )


EOS = RunRule(
    code="RUN008",
    name="eos-as-declared",
    sentence="Outputs end where the declared decoding says that they end.",
    rationale=(
        "An output that ends by length has exactly the tokens that were asked for, and one that "
        "ends early says stop; where EOS is honoured, nothing stands behind an id that the "
        "decoding declares as EOS (eos=0,2). A pad, a doubled EOS or a silent early end would all "
        "count as tokens that somebody paid for."
    ),
    remedy="Give the EOS setting to the system in the way it really obeys, on both sides.",
    check=_eos,
)
