"""The noise of real blocks: what two trials of the same system show in one block, and its order.

Only sound A/A pairs are taken, the same system twice. A block that something disturbed is kept as a
disturbance without a value: a sound study never counts one, it only runs it again.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nanoserve_bench.calibration.records import DIGITS, LEAST_PAIRS, LeftOut, SourceFacts
from nanoserve_bench.contention import contention
from nanoserve_bench.figures import Figures
from nanoserve_bench.records import SystemRun
from nanoserve_bench.soundness.verdict import SoundComparison, Verdict
from nanoserve_bench.statistics import log_of


class Logs(NamedTuple):
    """Logs of a trial's figures, or of the ratio of two; None where a system tells no holds."""

    throughput: float
    batch: float | None
    slot: float | None
    system: float
    request: float

    def over(self, other: Logs) -> Logs:
        """The log ratios of this trial over another."""
        return Logs(*(_minus(one, two) for one, two in zip(self, other, strict=True)))  # type: ignore[arg-type]


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedBlock:
    """The two trials of an A/A pair in the order in which they ran; none where disturbed.

    `forward` says whether the baseline ran first.
    """

    trials: tuple[Logs, Logs] | None
    forward: bool

    @property
    def ratio(self) -> Logs | None:
        """The second trial over the first."""
        return None if self.trials is None else self.trials[1].over(self.trials[0])


Stretch = tuple[RecordedBlock, ...]
"""All blocks of one folder, in the order in which they ran."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Recorded noise of one kind, with its facts."""

    facts: SourceFacts
    stretches: tuple[Stretch, ...]


def sources(verdicts: Iterable[Verdict]) -> tuple[tuple[Source, ...], tuple[LeftOut, ...]]:
    """The noise of every A/A pair in judged folders, and the pairs that are too few.

    Folders are read in the order in which they were planned; those of one machine that measured
    the same pair make one source, and a stretch never reaches from one folder into the next.
    """
    grouped: dict[tuple[str, ...], list[tuple[str, SoundComparison, Stretch]]] = defaultdict(list)
    for verdict in sorted(verdicts, key=_planned):
        for pair in _self_pairs(verdict):
            cell = pair.baseline
            key = (
                f"{cell.system}/{cell.device}/{cell.dtype}/{cell.slots}/{cell.workload}",
                verdict.results.manifest.machine if verdict.results is not None else "",
            )
            grouped[key].append((verdict.run_id or "", pair, _stretch(verdict, pair)))
    found, left_out = [], []
    for (cell_name, machine), entries in sorted(grouped.items()):
        name = f"{cell_name}@{machine.removeprefix('sha256:')[:8]}"
        stretches = tuple(stretch for _, _, stretch in entries)
        pairs = sum(block.trials is not None for stretch in stretches for block in stretch)
        if pairs < LEAST_PAIRS:
            left_out.append(LeftOut(name=name, pairs=pairs))
            continue
        facts = _facts(name, machine, [run for run, _, _ in entries], entries[0][1], stretches)
        found.append(Source(facts=facts, stretches=stretches))
    return tuple(found), tuple(left_out)


def _planned(verdict: Verdict) -> tuple[str, str]:
    return (
        "" if verdict.results is None else verdict.results.plan.created_at,
        verdict.run_id or "",
    )


def _self_pairs(verdict: Verdict) -> list[SoundComparison]:
    """The sound pairs of one thing with itself: not with a variant, revision or setting of it."""
    if verdict.results is None:
        return []
    ran = {
        arm.name: (arm.system, arm.revision, frozenset(arm.options))
        for arm in verdict.results.plan.arms
    }
    return [
        pair
        for pair in verdict.comparisons
        if isinstance(pair, SoundComparison)
        and pair.planned.kind == "self"
        and ran[pair.baseline.arm] == ran[pair.candidate.arm]
    ]


def _stretch(verdict: Verdict, pair: SoundComparison) -> Stretch:
    if verdict.results is None:
        raise TypeError("a folder without rows has no sound pair")
    cells = {pair.baseline.id, pair.candidate.id}
    trials = [t for t in verdict.results.trials if not t.warmup]
    disturbed = {trial.block for trial in trials if contention(trial) is not None}
    places = {(t.block, t.cell): t.order for t in trials if t.cell in cells}
    blocks = []
    for block in sorted({trial.block for trial in trials}):
        forward = places[block, pair.baseline.id] < places[block, pair.candidate.id]
        ratio = pair.pairs.get(block)
        if ratio is None or block in disturbed:
            blocks.append(RecordedBlock(trials=None, forward=forward))
            continue
        below, above = _logs(ratio.baseline), _logs(ratio.candidate)
        in_order = (below, above) if forward else (above, below)
        blocks.append(RecordedBlock(trials=in_order, forward=forward))
    return tuple(blocks)


def _logs(run: SystemRun) -> Logs:
    figures = Figures.of(run)
    batch, slot = figures.batch_occupancy, figures.tokens_per_slot_second
    return Logs(
        throughput=log_of(figures.throughput),
        batch=None if batch is None else log_of(batch),
        slot=None if slot is None else log_of(slot),
        system=log_of(figures.system_occupancy),
        request=log_of(figures.tokens_per_request_second),
    )


def _facts(
    name: str,
    machine: str,
    run_ids: Sequence[str],
    pair: SoundComparison,
    stretches: Sequence[Stretch],
) -> SourceFacts:
    known = [block for stretch in stretches for block in stretch if block.trials is not None]
    in_place = [ratio.throughput for block in known if (ratio := block.ratio) is not None]
    ratios = [
        value if block.forward else -value for value, block in zip(in_place, known, strict=True)
    ]
    cell = pair.baseline
    return SourceFacts(
        name=name,
        system=cell.system,
        device=cell.device,
        dtype=cell.dtype,
        slots=cell.slots,
        workload=cell.workload,
        machine=machine,
        run_ids=tuple(run_ids),
        blocks=sum(len(stretch) for stretch in stretches),
        contended=sum(block.trials is None for stretch in stretches for block in stretch),
        pairs=len(known),
        deviation=round(statistics.stdev(ratios), DIGITS),
        mean=round(statistics.fmean(ratios), DIGITS),
        place=round(statistics.fmean(in_place), DIGITS),
        ratio_correlation=_correlation([[_ratio(b) for b in s] for s in stretches]),
        level_correlation=_correlation([[_level(b) for b in s] for s in stretches]),
    )


def _ratio(block: RecordedBlock) -> float | None:
    ratio = block.ratio
    return None if ratio is None else ratio.throughput


def _level(block: RecordedBlock) -> float | None:
    if block.trials is None:
        return None
    return (block.trials[0].throughput + block.trials[1].throughput) / 2


def _correlation(series: Iterable[Sequence[float | None]]) -> float:
    """Correlation of neighbours inside each series, about the series' own mean.

    0 where nothing varies, which depends on nothing.
    """
    products = squares = 0.0
    for values in series:
        known = [value for value in values if value is not None]
        mean = statistics.fmean(known) if known else 0.0
        squares += sum((value - mean) ** 2 for value in known)
        for one, following in itertools.pairwise(values):
            if one is not None and following is not None:
                products += (one - mean) * (following - mean)
    return round(products / squares, DIGITS) if squares else 0.0
