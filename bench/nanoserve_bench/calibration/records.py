"""A calibration as it is kept: what was played back, how, and what came of it.

Everything is a count of simulated studies or a fact of the recording, so that every rate on a page
is derived from here, with the error that its number of studies leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from nanoserve_bench.statistics import share_interval

SCHEMA = 1
LEAST_PAIRS = 32
"""A source with fewer recorded pairs is not played back: it holds too little noise."""
JUDGED_PAIRS = 100
"""A source needs so many recorded pairs for the targets to be put to it."""
MOST_FALSE = 0.064
"""Largest share of A/A studies that may end in `faster` or `slower`: 5 % within the error of 1,000
studies."""
LEAST_HELD, MOST_HELD = 0.93, 0.98
"""How often the nominal 95 % interval has to hold the truth."""
DIGITS = 9
"""Decimals that are kept of what is no count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A share of simulated studies with its 95 % Monte Carlo interval (Clopper and Pearson)."""

    hits: int
    of: int

    @property
    def point(self) -> float:
        """The share."""
        return self.hits / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """What the share may be in the long run, given that so many studies were simulated."""
        return share_interval(self.hits, self.of)


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """A results folder that noise was taken from; its manifest digests every other file."""

    run_id: str
    manifest_sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFacts:
    """The recorded noise of one A/A pair of cells, over all folders of one machine that have it.

    Attributes:
        name: Names the source in the rows.
        system: System that was measured against itself.
        device: Torch device name.
        dtype: Of weights and activations.
        slots: Slots of both cells.
        workload: Name of the workload.
        machine: Fingerprint of the machine.
        run_ids: Folders, in the order in which they were measured.
        blocks: Recorded blocks, contended ones included.
        contended: Blocks that something disturbed: played back as a disturbance, never as a value.
        pairs: Undisturbed blocks: the A/A pairs.
        deviation: Standard deviation of the log ratios, candidate over baseline.
        mean: Mean of the log ratios, whose truth is 0.
        place: Mean log ratio of the trial that ran second over the one that ran first.
        ratio_correlation: Of the log ratio (second over first) with that of the block after it.
        level_correlation: Of the mean log throughput of a block with that of the block after it.
    """

    name: str
    system: str
    device: str
    dtype: str
    slots: int
    workload: str
    machine: str
    run_ids: tuple[str, ...]
    blocks: int
    contended: int
    pairs: int
    deviation: float
    mean: float
    place: float
    ratio_correlation: float
    level_correlation: float

    @property
    def judged(self) -> bool:
        """Whether there is enough noise for the targets to be put to it."""
        return self.pairs >= JUDGED_PAIRS


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A pair of cells with too few recorded pairs to be played back."""

    name: str
    pairs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """What came of the simulated studies of one kind: counts, out of `studies`.

    Attributes:
        source: The recorded noise.
        run_length: Consecutive recorded blocks that are played back together; 1 draws each block
            by itself, more keeps the dependence between neighbours.
        arms: `apart` takes both trials of the A/A pair from blocks of their own; in `shared` both
            ratios have the baseline's trial in common, as in a real block.
        least: Of the stopping rule.
        most: Of the stopping rule.
        target_half_width: Of the stopping rule; None runs `most` blocks.
        effect: True ratio of candidate over baseline; 1 is an A/A study.
        studies: Simulated studies.
        first_sha256: Digest of what the first studies ended in. They are simulated again, and have
            to end in the same, before the record is believed.
        refused: Studies with a disturbed block left that could not be run again within the limit:
            they state nothing, and are in none of the counts below.
        faster: Called faster.
        slower: Called slower.
        no_difference: Called no difference.
        undecided: Called undecided.
        bare_faster: Would have been called faster without the A/A envelope; a doubling, which has
            none, would have been called worth it.
        bare_slower: Likewise slower, or not worth it.
        held: The interval of the ratio held the truth.
        batch_held: That of the batch factor; None where the system does not tell its holds.
        slot_held: That of the per-slot-second factor.
        system_held: That of the system factor.
        request_held: That of the per-request-second factor.
        mean_blocks: Mean number of blocks that the ratio was made of.
        mean_half_width: Mean half-width of the interval of the ratio, in logs.
    """

    source: str
    run_length: int
    arms: str
    least: int
    most: int
    target_half_width: float | None
    effect: float
    studies: int
    first_sha256: str
    refused: int
    faster: int
    slower: int
    no_difference: int
    undecided: int
    bare_faster: int
    bare_slower: int
    held: int
    batch_held: int | None
    slot_held: int | None
    system_held: int
    request_held: int
    mean_blocks: float | None
    mean_half_width: float | None

    @property
    def stated(self) -> int:
        """Studies that stated a ratio."""
        return self.studies - self.refused

    def share(self, hits: int) -> Share:
        """A count as a share of the studies that stated a ratio."""
        return Share(hits=hits, of=self.stated)

    @property
    def meets(self) -> bool:
        """Whether the targets are met: coverage, and the false verdicts where nothing differs."""
        if not self.stated:
            return False
        called = self.share(self.faster + self.slower).point
        covered = LEAST_HELD <= self.share(self.held).point <= MOST_HELD
        return covered and (self.effect != 1 or called <= MOST_FALSE)


@dataclass(frozen=True, kw_only=True, slots=True)
class IntervalOutcomes:
    """How often one kind of interval held the truth of A/A studies of so many blocks.

    `first_sha256` is the digest of whether it did in the first ones, as in `Outcomes`.
    """

    source: str
    run_length: int
    blocks: int
    method: str
    studies: int
    first_sha256: str
    held: int
    mean_half_width: float

    @property
    def share(self) -> Share:
        """How often."""
        return Share(hits=self.held, of=self.studies)


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """`<name>.json`: everything that a calibration rests on and everything that it found."""

    schema: int
    name: str
    seed: int
    studies: int
    inputs: tuple[Input, ...]
    sources: tuple[SourceFacts, ...]
    left_out: tuple[LeftOut, ...]
    outcomes: tuple[Outcomes, ...]
    intervals: tuple[IntervalOutcomes, ...]

    @property
    def judged(self) -> tuple[Outcomes, ...]:
        """The outcomes that the targets are put to: of sources with enough pairs."""
        names = {source.name for source in self.sources if source.judged}
        return tuple(outcome for outcome in self.outcomes if outcome.source in names)

    @property
    def missed(self) -> tuple[Outcomes, ...]:
        """The judged outcomes that miss a target."""
        return tuple(outcome for outcome in self.judged if not outcome.meets)
