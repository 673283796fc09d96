"""A whole calibration: every source, every kind of study, counted.

Each simulated study has a random source of its own, seeded by what it is and its number, so that
counts depend neither on the order of the work nor on what else is simulated.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from nanoserve_bench.calibration import intervals
from nanoserve_bench.calibration.noise import Source, sources
from nanoserve_bench.calibration.records import (
    DIGITS,
    SCHEMA,
    Calibration,
    Input,
    IntervalOutcomes,
    Outcomes,
)
from nanoserve_bench.calibration.study import Arms, Setup, Stated, simulate
from nanoserve_bench.calibration.tape import Tape
from nanoserve_bench.errors import BenchError
from nanoserve_bench.plan import Blocks
from nanoserve_bench.results import MANIFEST
from nanoserve_bench.soundness.verdict import Verdict
from nanoserve_bench.statistics import Outcome
from nanoserve_bench.stopping import DEFAULT_BLOCKS, stopping_rule

DEFAULT_STUDIES = 2000
LEAST_STUDIES = 1000
RULES: tuple[Blocks, ...] = (
    stopping_rule(DEFAULT_BLOCKS, DEFAULT_BLOCKS, None),
    stopping_rule(8, 24, 0.02),
)
"""The default plan, and one that may stop early."""
RUN_LENGTHS = (1, 8)
"""Each block by itself, and as many neighbours in a row as the default study has blocks."""
EFFECTS = (1.0, 1.05)
INTERVAL_BLOCKS = (5, 8, 16)
REPLAYED = 20
"""So many studies of each kind are simulated again before a record is believed."""

Told = Callable[[str], None]


class CalibrationError(BenchError):
    """Folders that no calibration can be made of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What was asked for."""

    name: str
    seed: int
    studies: int


def calibrate(order: Order, verdicts: Sequence[Verdict], *, tell: Told) -> Calibration:
    """Simulate everything.

    Args:
        order: Name, seed, and number of studies of each kind.
        verdicts: Judged folders; those without a sound A/A pair are not among the inputs.
        tell: Is told what is simulated next.

    Raises:
        CalibrationError: No folder has enough A/A pairs.
    """
    found, left_out = sources(verdicts)
    if not found:
        few = "; ".join(f"{item.name} has {item.pairs}" for item in left_out)
        raise CalibrationError(
            "no A/A pair was measured often enough to play its noise back"
            f"{f' ({few})' if few else ''}. Measure one: nanoserve-bench sweep --arm "
            "hf-generate --arm again=hf-generate --blocks 102"
        )
    used = {run_id for source in found for run_id in source.facts.run_ids}
    outcomes: list[Outcomes] = []
    compared: list[IntervalOutcomes] = []
    for source in found:
        tell(f"{source.facts.name}: {source.facts.pairs} A/A pairs")
        outcomes += [count(setup, order) for setup in setups(source)]
        compared += compare_intervals(source, order)
    return Calibration(
        schema=SCHEMA,
        name=order.name,
        seed=order.seed,
        studies=order.studies,
        inputs=tuple(sorted(_inputs(verdicts, used), key=lambda item: item.run_id)),
        sources=tuple(source.facts for source in found),
        left_out=left_out,
        outcomes=tuple(outcomes),
        intervals=tuple(compared),
    )


def _inputs(verdicts: Iterable[Verdict], used: set[str]) -> Iterator[Input]:
    for verdict in verdicts:
        if verdict.run_id in used and verdict.run_id is not None:
            digest = sha256((verdict.path / MANIFEST).read_bytes()).hexdigest()
            yield Input(run_id=verdict.run_id, manifest_sha256=digest)


def setups(source: Source) -> Iterator[Setup]:
    """Every kind of study that is simulated from a source.

    The A/A arm shares the baseline in a real study; that this matters little is shown where there
    is enough noise.
    """
    arms = (Arms.APART, Arms.SHARED) if source.facts.judged else (Arms.APART,)
    for arm in arms:
        for rule in RULES:
            for run_length in RUN_LENGTHS:
                for effect in EFFECTS:
                    yield Setup(
                        source=source, run_length=run_length, arms=arm, rule=rule, effect=effect
                    )


def count(setup: Setup, order: Order) -> Outcomes:
    """Simulate one kind of study as often as asked."""
    facts, rule = setup.source.facts, setup.rule
    kind = (
        f"{order.seed}/{facts.name}/{setup.run_length}/{setup.arms}/{rule.least}-{rule.most}-"
        f"{rule.target_half_width}/{setup.effect}"
    )
    ended = [simulate(setup, _random(f"{kind}/{index}")) for index in range(order.studies)]
    stated = [study for study in ended if study is not None]
    words = Counter(study.verdict for study in stated)
    bare = Counter(study.bare for study in stated)
    throughput, batch, slot, system, request = (_held(stated, figure) for figure in range(5))
    return Outcomes(
        source=facts.name,
        run_length=setup.run_length,
        arms=setup.arms.value,
        least=rule.least,
        most=rule.most,
        target_half_width=rule.target_half_width,
        effect=setup.effect,
        studies=order.studies,
        refused=len(ended) - len(stated),
        faster=words[Outcome.FASTER],
        slower=words[Outcome.SLOWER],
        no_difference=words[Outcome.NO_DIFFERENCE],
        undecided=words[Outcome.UNDECIDED],
        bare_faster=bare[Outcome.FASTER],
        bare_slower=bare[Outcome.SLOWER],
        first_sha256=_digest(
            None if study is None else (study.verdict.value, study.bare.value, study.held)
            for study in ended[:REPLAYED]
        ),
        held=throughput or 0,
        batch_held=batch,
        slot_held=slot,
        system_held=system or 0,
        request_held=request or 0,
        mean_blocks=_mean([s.blocks for s in stated]) if stated else None,
        mean_half_width=_mean([s.half_width for s in stated]) if stated else None,
    )


def _digest(ended: Iterable[object]) -> str:
    """Of what some studies ended in: words and whether truths were held, no float among them."""
    return sha256(repr(list(ended)).encode()).hexdigest()


def _held(stated: Sequence[Stated], figure: int) -> int | None:
    known = [study.held[figure] for study in stated]
    return None if None in known else sum(held is True for held in known)


def compare_intervals(source: Source, order: Order) -> Iterator[IntervalOutcomes]:
    """How the intervals compare, on A/A ratios in mirrored order."""
    for run_length in RUN_LENGTHS:
        for blocks in INTERVAL_BLOCKS:
            kind = f"{order.seed}/intervals/{source.facts.name}/{run_length}/{blocks}"
            drawn = [
                _ratios(source, run_length, blocks, _random(f"{kind}/{index}"))
                for index in range(order.studies)
            ]
            for name, method in intervals.METHODS.items():
                found = [method(values) for values in drawn]
                hits = [low <= 0.0 <= high for low, high in found]
                yield IntervalOutcomes(
                    source=source.facts.name,
                    run_length=run_length,
                    blocks=blocks,
                    method=name,
                    studies=order.studies,
                    first_sha256=_digest(hits[:REPLAYED]),
                    held=sum(hits),
                    mean_half_width=_mean([(high - low) / 2 for low, high in found]),
                )


def _mean(values: Sequence[float]) -> float:
    """Rounded, so that the last bit of a library's logarithm changes no byte of a record."""
    return round(statistics.fmean(values), DIGITS)


def _ratios(source: Source, run_length: int, blocks: int, rng: random.Random) -> list[float]:
    tape = Tape(source, run_length, rng)
    values: list[float] = []
    forward = True
    for block in range(blocks):
        forward = rng.random() < 0.5 if block % 2 == 0 else not forward
        first, second = tape.undisturbed_pair()
        ratio = second.over(first).throughput
        values.append(ratio if forward else -ratio)
    return values


def _random(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - nothing secret
