"""Whether two runs did the same work: the same requests, prompts, lengths and tokens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from nanoserve_bench.comparison import first_divergence
from nanoserve_bench.records import RunRecord, SystemRun
from nanoserve_bench.schema import DivergenceRow
from nanoserve_bench.soundness.evidence import Evidence, Pair
from nanoserve_bench.soundness.rule import Flaw, Inspection, PairRule, StudyRule


def matched(baseline: SystemRun, candidate: SystemRun) -> Iterator[tuple[RunRecord, RunRecord]]:
    """Requests of two runs that have the same prompt, by its ids and not by its row."""
    waiting: dict[tuple[int, ...], list[RunRecord]] = defaultdict(list)
    for record in reversed(baseline.records):
        waiting[record.prompt_ids].append(record)
    for record in candidate.records:
        if waiting[record.prompt_ids]:
            yield waiting[record.prompt_ids].pop(), record


def _request_count(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    below, above = len(baseline.records), len(candidate.records)
    if below != above:
        yield Flaw(f"the candidate ran {above} requests, the baseline {below}")


REQUEST_COUNT = PairRule(
    code="PAIR001",
    name="same-request-count",
    sentence="Both sides ran the same number of requests.",
    rationale="A ratio of two throughputs is about one workload, not about two.",
    remedy="Run the whole workload on both sides.",
    check=_request_count,
    about_work=True,
)


def _prompts(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    below = Counter(record.prompt_ids for record in baseline.records)
    above = Counter(record.prompt_ids for record in candidate.records)
    if below == above:
        return
    for record in candidate.records:
        if record.prompt_ids not in below:
            yield Flaw(
                f"the baseline never ran the prompt of request {record.request}",
                request=record.request,
                evidence=" ".join(map(str, record.prompt_ids[:16])),
            )
    missing = below - above
    if missing:
        prompt = next(iter(missing))
        yield Flaw(
            f"{missing.total()} prompt(s) of the baseline are not among the candidate's",
            evidence=" ".join(map(str, prompt[:16])),
        )


PROMPTS = PairRule(
    code="PAIR002",
    name="same-prompts",
    sentence="Both sides ran the same prompts, matched by their ids and not by their rows.",
    rationale="Another prompt is other work, even at the same length.",
    remedy="Give both sides the prompts of the block.",
    check=_prompts,
    about_work=True,
)


def _prompt_lengths(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    below = Counter(len(record.prompt_ids) for record in baseline.records)
    above = Counter(len(record.prompt_ids) for record in candidate.records)
    if below != above:
        yield Flaw(
            f"the prompts have {sum(n * c for n, c in above.items())} tokens in the candidate and "
            f"{sum(n * c for n, c in below.items())} in the baseline",
            evidence=f"candidate {dict(sorted(above.items()))}, baseline "
            f"{dict(sorted(below.items()))} (requests by prompt length)",
        )


PROMPT_LENGTHS = PairRule(
    code="PAIR003",
    name="same-prompt-lengths",
    sentence="The prompts have the same lengths on both sides.",
    rationale="A shorter prompt is a cheaper prefill.",
    remedy="Give both sides the prompts of the block, without truncation.",
    check=_prompt_lengths,
    about_work=True,
)


def _output_lengths(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    for below, above in matched(baseline, candidate):
        if len(below.output_ids) != len(above.output_ids):
            yield Flaw(
                f"request {above.request} has {len(above.output_ids)} output tokens, the baseline "
                f"{len(below.output_ids)}",
                request=above.request,
                position=min(len(above.output_ids), len(below.output_ids)),
            )
        elif below.max_tokens != above.max_tokens:
            yield Flaw(
                f"request {above.request} was asked for {above.max_tokens} tokens, the baseline "
                f"for {below.max_tokens}",
                request=above.request,
            )


OUTPUT_LENGTHS = PairRule(
    code="PAIR004",
    name="same-output-lengths",
    sentence="Matched requests have the same number of output tokens, and were asked for as many.",
    rationale="Shorter outputs drain earlier and leave the longer contexts to the other side.",
    remedy="Ask both sides for the same length under the same EOS setting.",
    check=_output_lengths,
    about_work=True,
)


def differing_outputs(
    baseline: SystemRun, candidate: SystemRun
) -> Iterator[tuple[RunRecord, RunRecord, int]]:
    """Matched requests whose outputs differ, with the first position at which they do."""
    for below, above in matched(baseline, candidate):
        position = first_divergence(below.output_ids, above.output_ids)
        if position is not None:
            yield below, above, position


def divergence_flaw(below: RunRecord, above: RunRecord, position: int, triage: str) -> Flaw:
    """The finding about a pair of outputs that differ."""
    ours, theirs = _at(above.output_ids, position), _at(below.output_ids, position)
    start = max(0, position - 4)
    return Flaw(
        f"request {above.request} differs from the baseline at position {position}: "
        f"{ours} instead of {theirs}; {triage}",
        request=above.request,
        position=position,
        evidence=(
            f"from position {start}: candidate "
            f"{' '.join(map(str, above.output_ids[start : position + 4]))} | baseline "
            f"{' '.join(map(str, below.output_ids[start : position + 4]))}"
        ),
    )


def _at(ids: tuple[int, ...], position: int) -> str:
    return f"token {ids[position]}" if position < len(ids) else "no token"


def _tokens(evidence: Evidence, inspection: Inspection) -> None:
    if not evidence.pairs:
        inspection.not_applicable = "the plan states no ratio"
    triaged = {
        (row.block, row.cell, row.reference_cell, row.request): row
        for row in evidence.results.divergences
    }
    found: set[tuple[int, str, str, str]] = set()
    for pair in evidence.pairs:
        for block, baseline, candidate in pair.blocks():
            inspection.saw(len(candidate.run.records))
            if evidence.same_work(baseline, candidate):
                continue
            for below, above, position in differing_outputs(baseline.run, candidate.run):
                key = (block, pair.candidate.id, pair.baseline.id, above.request)
                found.add(key)
                row = triaged.get(key)
                flaw = divergence_flaw(below, above, position, _triage(pair, row, position))
                inspection.refuse_pair(pair, flaw, block=block, file="requests.csv")
    # A block that was run again is in no pair, and keeps its triage.
    replaced = {trial.block for trial in evidence.trials} - set(evidence.blocks)
    for key, row in triaged.items():
        if key not in found and row.block not in replaced:
            inspection.refuse_study(
                f"a divergence of request {row.request} of {row.cell} from {row.reference_cell} is "
                f"recorded in block {row.block}, and no compared rows differ there",
                file=DivergenceRow.FILE,
                row=evidence.results.line_of(row),
            )


def _triage(pair: Pair, row: DivergenceRow | None, position: int) -> str:
    if row is None:
        return f"triage not recorded against {pair.baseline.id}"
    if row.position != position:
        return f"the recorded triage is of position {row.position} and not of this one"

    def number(value: float | None) -> str:
        return "not recorded" if value is None else f"{value:.6g}"

    return (
        f"triage: {row.kind}, logits {number(row.logit)} and {number(row.reference_logit)}, "
        f"top-2 margin {number(row.top2_margin)}, noise floor {number(row.noise_floor)}, later "
        f"agreement {number(row.later_agreement)}"
    )


TOKENS = StudyRule(
    code="PAIR005",
    name="same-output-tokens",
    sentence="Matched requests have exactly the same output tokens.",
    rationale=(
        "A speedup against a system that said something else is not a speedup. Decoding is greedy "
        "on both sides, so agreement is an equality of ids and no judgement. A difference is "
        "refused whatever its cause; the triage that the sweep recorded says whether it was a "
        "near-tie inside the reference's own noise or a bug, and 'not recorded' is refused like "
        "the rest."
    ),
    remedy="Read the triage in divergences.csv; a bug must be fixed, a near-tie acknowledged.",
    check=_tokens,
)


def tokens_between(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    """`TOKENS` for two runs outside of a study."""
    for below, above, position in differing_outputs(baseline, candidate):
        yield divergence_flaw(below, above, position, "triage not recorded")
