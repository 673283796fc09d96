"""One simulated study: its blocks, its stopping rule, its estimates and its verdict.

Nothing is computed here that a real study computes elsewhere: the orders, the stopping rule, the
estimates, the envelope and the verdict are the project's own functions, fed with recorded noise.
The only refusal that is simulated is the one for contention, so that every other false verdict
which the noise holds is counted.

In a real block three trials run: baseline, A/A arm and candidate, and both ratios share the
baseline. A recorded block holds two. For three trials c, a and b of one block that differ only in
their noise, D = c - b and S = a - b have the same variance V and the covariance V / 2. The recorded
pair is D, and S = D / 2 + sqrt(3) / 2 D', where D' is the pair of another recorded block: that has
just this variance and covariance.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum

from nanoserve_bench import stopping
from nanoserve_bench.calibration.noise import Logs, Source
from nanoserve_bench.calibration.tape import Tape
from nanoserve_bench.ordering import orders
from nanoserve_bench.plan import Blocks, Cell
from nanoserve_bench.statistics import Estimate, Outcome, compare_verdict, envelope, estimate
from nanoserve_bench.stopping import RanBlock

NO_ENVELOPE = (1.0, 1.0)


class Arms(StrEnum):
    """What the A/A arm has in common with the baseline; see `records.Outcomes`."""

    APART = "apart"
    SHARED = "shared"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What kind of study is simulated; the fields are those of `records.Outcomes`."""

    source: Source
    run_length: int
    arms: Arms
    rule: Blocks
    effect: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """What a simulated study stated.

    Attributes:
        verdict: With the envelope of its own A/A arm.
        bare: Without an envelope.
        held: For the ratio and each of its factors in the order of `Logs`: whether the interval
            holds the truth; None for a factor that does not exist.
        blocks: Blocks that the ratio is made of.
        half_width: Of the interval of the ratio, in logs.
    """

    verdict: Outcome
    bare: Outcome
    held: tuple[bool | None, ...]
    blocks: int
    half_width: float


def _cell(arm: str) -> Cell:
    return Cell(
        id=arm, arm=arm, system="any", device="any", dtype="any", slots=1, workload="any",
        model="any",
    )  # fmt: skip


BASELINE, AGAIN, CANDIDATE = (_cell(arm) for arm in ("baseline", "again", "candidate"))


def simulate(setup: Setup, rng: random.Random) -> Stated | None:
    """Run one study; None where a disturbed block is left, so that nothing is stated."""
    player = _Player(setup, rng)
    ran: list[RanBlock] = []
    while chosen := stopping.next_block(setup.rule, ran, narrow_enough=player.narrow(ran)):
        disturbed = player.play(chosen.number)
        ran.append(RanBlock(number=chosen.number, replaces=chosen.replaces, contended=disturbed))
    return None if stopping.disturbed(ran) else player.state(ran)


class _Player:
    """The blocks of one study, as they are played."""

    def __init__(self, setup: Setup, rng: random.Random) -> None:
        self._setup = setup
        seed = int(rng.random() * 2**53)
        most = setup.rule.most + setup.rule.most_reruns
        self._orders = tuple(orders((BASELINE, AGAIN, CANDIDATE), most, seed))
        self._tape = Tape(setup.source, setup.run_length, rng)
        self._other = Tape(setup.source, setup.run_length, rng)
        self._ratios: dict[int, Logs] = {}
        self._selves: dict[int, float] = {}

    def play(self, block: int) -> bool:
        """Play a block; whether something disturbed it."""
        order = self._orders[block]
        pair = self._tape.pair()
        if pair is None:
            return True
        ran = dict(zip((arm for arm in order if arm != AGAIN.id), pair, strict=True))
        twice = (arm for arm in order if arm != CANDIDATE.id)
        twin = dict(zip(twice, self._other.undisturbed_pair(), strict=True))
        ratio = ran[CANDIDATE.id].over(ran[BASELINE.id])
        itself = twin[AGAIN.id].over(twin[BASELINE.id]).throughput
        if self._setup.arms is Arms.SHARED:
            itself = ratio.throughput / 2 + math.sqrt(3) / 2 * itself
        self._ratios[block], self._selves[block] = ratio, itself
        return False

    def narrow(self, ran: list[RanBlock]) -> bool:
        """Whether the interval is narrow enough to stop, where the rule asks for that."""
        target = self._setup.rule.target_half_width
        if target is None or len(ran) < self._setup.rule.least or stopping.disturbed(ran):
            return False
        return self._speedup(ran).relative_half_width <= target

    def state(self, ran: list[RanBlock]) -> Stated:
        """What the study states once it has stopped."""
        counted = stopping.counted(ran)
        speedup = self._speedup(ran)
        twin = estimate(math.exp(self._selves[block]) for block in counted)
        truths = _truths(self._setup.effect)
        return Stated(
            verdict=compare_verdict(speedup, envelope([twin])),
            bare=compare_verdict(speedup, NO_ENVELOPE),
            held=tuple(self._holds(counted, figure, truth) for figure, truth in enumerate(truths)),
            blocks=len(counted),
            half_width=math.log(speedup.high / speedup.low) / 2,
        )

    def _speedup(self, ran: list[RanBlock]) -> Estimate:
        effect = self._setup.effect
        counted = stopping.counted(ran)
        return estimate(effect * math.exp(self._ratios[block].throughput) for block in counted)

    def _holds(self, counted: tuple[int, ...], figure: int, truth: float) -> bool | None:
        values = [self._ratios[block][figure] for block in counted]
        known = [truth * math.exp(value) for value in values if value is not None]
        if len(known) < len(values):
            return None
        found = estimate(known)
        return found.low <= truth <= found.high


def _truths(effect: float) -> tuple[float, ...]:
    """True ratios in the order of `Logs`: what a faster step changes, and what it does not."""
    return tuple(Logs(throughput=effect, batch=1.0, slot=effect, system=1.0, request=effect))  # type: ignore[arg-type]
