"""The source document's claims set beside what was measured here: reproduced, refuted, not tried.

Each word is computed from verdicts by a rule that the page prints beside it. The claims are about
the CPU and the `day44` workload unless they say otherwise; a claim for which nothing sound was
measured is not tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nanoserve_report import judgements, noise, spread
from nanoserve_report.judgements import ENGINE, Ground, Judged
from nanoserve_report.study import Section, Study

WORKLOAD = "day44"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim, the rule that judges it, and how it came out here."""

    name: str
    quote: str
    rule: str
    word: str
    finding: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A claim before it is judged: its words, the rule in words, and what judges by it."""

    name: str
    quote: str
    rule: str
    judge: Callable[[Ground], Judged]


CLAIMS = (
    Asked(
        name="Same speed at one slot",
        quote="At one slot this engine and transformers are the same speed",
        rule="reproduced if the ratio at one slot is no difference; refuted if faster or slower",
        judge=judgements.same_speed,
    ),
    Asked(
        name="The knee is at four slots",
        quote="The knee is at four slots and it goes backwards at eight.",
        rule=(
            "reproduced if 1 to 2 and 2 to 4 slots are worth it and 4 to 8 is not; refuted if any "
            "of the three is the opposite"
        ),
        judge=judgements.knee,
    ),
    Asked(
        name="The same tokens",
        quote="all four slot counts agreed with transformers token for token on the real model",
        rule=(
            "reproduced if the gate passes every slot count against the baseline; refuted if a "
            "token differs"
        ),
        judge=judgements.same_tokens,
    ),
    Asked(
        name="Occupancy is not batch size",
        quote=(
            "the one-slot run printed an occupancy of 4.83, which is impossible for a single row"
        ),
        rule="reproduced if one slot reads a batch of 1 and a system occupancy above 1.5",
        judge=judgements.gotcha,
    ),
    Asked(
        name="The mean batch is the slot count",
        quote="The mean batch came out at exactly the slot count, and that is a result.",
        rule="reproduced if every slot count's batch occupancy is within 1 % of it",
        judge=judgements.mean_batch,
    ),
    Asked(
        name="A row more is arithmetic, not a free ride",
        quote=(
            "CPU fp32 GEMMs are compute-bound, so a row added to the batch is arithmetic that was "
            "not being done before rather than arithmetic riding along in a memory-bound gap."
        ),
        rule=(
            "reproduced if at two slots the engine uses more of the matrix rate than of the read "
            "bandwidth; refuted if less; undecided where the intervals overlap"
        ),
        judge=judgements.arithmetic,
    ),
    Asked(
        name="A stamp from inside changes nothing",
        quote=(
            "It stamps, returns the scores untouched, and the generation being measured is the "
            "generation that would have happened anyway."
        ),
        rule=(
            "reproduced if generate without the stamp is no different from generate with it; "
            "refuted if it is faster or slower"
        ),
        judge=judgements.stamping,
    ),
    Asked(
        name="Company costs the prefill",
        quote=(
            "put HF\u2019s TTFT next to this engine\u2019s prefill (1.09x, 1.05x, 0.99x, 0.74x "
            "across the sweep)"
        ),
        rule=(
            "reproduced if the ratio at the most slots lies wholly below the one at one slot; "
            "refuted if it does not lie below"
        ),
        judge=judgements.prefill,
    ),
    Asked(
        name="The doublings reproduce, the headline wanders",
        quote=(
            "The baseline is the noisy half, and the marginal numbers are the ones that reproduce."
        ),
        rule=(
            "at least three sweeps; reproduced if every doubling keeps its verdict and the "
            f"headline spreads more than {noise.NOISIER:g} times as much as the doublings (in the "
            "logs), in part if it does and a verdict changes; refuted if the doublings spread as "
            "much or more"
        ),
        judge=judgements.reproduction,
    ),
    Asked(
        name="The engine repeats within 3 %",
        quote=(
            "this engine\u2019s own throughput at each slot count repeated within 3% every time "
            "(3.96 / 4.01 / 3.88 at four slots)"
        ),
        rule=(
            f"at least {spread.LEAST_SWEEPS} sweeps; reproduced if at no slot count the throughput "
            f"differs by more than a factor of {judgements.REPEATS}; refuted if at one it does"
        ),
        judge=judgements.repeats,
    ),
    Asked(
        name="The baseline is the noisy half",
        quote="the headline speedup inherits all of the baseline\u2019s noise",
        rule=(
            "reproduced if the baseline's throughput scatters from block to block more than "
            f"{noise.NOISIER:g} times as much as the engine's, over all sweeps; refuted if the "
            "engine's scatters so much more"
        ),
        judge=judgements.noisy_half,
    ),
    Asked(
        name="On a card the second factor stays near 1",
        quote=(
            "On a card [...] the second factor stays near 1.0, and the batch gain flows through "
            "almost undiluted."
        ),
        rule=(
            "reproduced if every doubling on a card keeps a second factor of at least "
            f"{judgements.FREE_RIDE}; refuted if one lies wholly below"
        ),
        judge=judgements.card,
    ),
)
"""In the order of the document."""


def concern(study: Study) -> bool:
    """Whether the claims are about this study: its engine takes part, or nothing has been run."""
    plans = [folder.plan for folder in study.folders if folder.plan is not None]
    return not plans or any(arm.system == ENGINE for plan in plans for arm in plan.arms)


def section_of(study: Study) -> Section | None:
    """The section that the claims are put to: the day's workload on a CPU, most sweeps first."""
    sections = [
        section
        for section in study.sections
        if (section.setting.device, section.setting.workload) == ("cpu", WORKLOAD)
        and section.lead.sound_cells
    ]
    return max(sections, key=lambda section: len(section.sweeps), default=None)


def judge(study: Study) -> tuple[Claim, ...]:
    """All claims, in the order of the document."""
    ground = Ground(study=study, section=section_of(study))
    claims = []
    for asked in CLAIMS:
        word, finding = asked.judge(ground)
        claims.append(
            Claim(name=asked.name, quote=asked.quote, rule=asked.rule, word=word, finding=finding)
        )
    return tuple(claims)
