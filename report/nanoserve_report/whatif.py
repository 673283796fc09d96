"""What the what-if page computes from: the pairs that the gate found comparable, trial by trial.

A pair is offered where its ratio may be stated: a planned comparison that is sound, or a sound
doubling. No other pair of cells is, however alike they look, because what is compared is written
down before the first trial. The numbers are the integers of the trials; what the browser makes of
them is what this report makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nanoserve_bench.comparison import Comparison
from nanoserve_bench.plan import Cell
from nanoserve_bench.soundness import SoundCell, SoundMarginal
from nanoserve_bench.statistics import CONFIDENCE, Estimate, t_quantile
from nanoserve_report.figures.drawing import Value, csv_text
from nanoserve_report.setting import slug
from nanoserve_report.study import Study
from nanoserve_report.sweeps import Sweep
from nanoserve_report.views import common

PAIR_COLUMNS = (
    "run", "device", "dtype", "model", "workload", "kind", "candidate", "candidate_name",
    "baseline", "baseline_name", "slots_alike", "envelope_low", "envelope_high", "data",
)  # fmt: skip
TRIAL_COLUMNS = ("cell", "name", "block", "output_tokens", "wall_ns", "served_ns")
DOUBLING = "doubling"


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A pair that may be chosen, with what this report says of it.

    Attributes:
        sweep: Where it was measured.
        kind: The plan's kind of comparison, or `doubling`.
        candidate: The cell above the line.
        baseline: The cell below it.
        pairs: Its comparison in every block that has both sides.
        speedup: The ratio of the throughputs.
        batch_factor: Its first factor; None where a side does not tell its slots.
        slot_factor: Its second factor; likewise.
        envelope: How far the A/A pairs stray from 1; None for a doubling.
        verdict: What it may be called.
    """

    sweep: Sweep
    kind: str
    candidate: Cell
    baseline: Cell
    pairs: Mapping[int, Comparison]
    speedup: Estimate
    batch_factor: Estimate | None
    slot_factor: Estimate | None
    envelope: tuple[float, float] | None
    verdict: str


def offers(study: Study) -> tuple[Offer, ...]:
    """Every pair that may be chosen, in the order of the site (see `order`).

    So the page opens on the sweep that leads the site, and there on the pair its plan names first.
    The sweeps of a section stand together, newest first; then comes what is in no section, such as
    noise that was recorded for its own sake, newest first.
    """
    sections = (section for page in study.devices for section in page.sections)
    shown = [sweep for section in sections for sweep in reversed(section.sweeps)]
    placed = {(sweep.name, sweep.setting) for sweep in shown}
    rest = [
        sweep
        for folder in reversed(study.folders)
        for sweep in folder.sweeps
        if (sweep.name, sweep.setting) not in placed
    ]
    return tuple(offer for sweep in (*shown, *rest) for offer in _of_sweep(sweep))


def _of_sweep(sweep: Sweep) -> Iterator[Offer]:
    for pair in (*sweep.sound_rivals, *sweep.sound_selves):
        yield Offer(
            sweep=sweep,
            kind=pair.planned.kind,
            candidate=pair.candidate,
            baseline=pair.baseline,
            pairs=pair.pairs,
            speedup=pair.speedup,
            batch_factor=pair.batch_factor,
            slot_factor=pair.slot_factor,
            envelope=pair.envelope,
            verdict=pair.verdict,
        )
    for item in sweep.sound_marginals:
        yield _doubling(sweep, item)


def _doubling(sweep: Sweep, item: SoundMarginal) -> Offer:
    return Offer(
        sweep=sweep,
        kind=DOUBLING,
        candidate=item.upper,
        baseline=item.lower,
        pairs=item.pairs,
        speedup=item.product,
        batch_factor=item.batch_ratio,
        slot_factor=item.slot_ratio,
        envelope=None,
        verdict=item.verdict,
    )


def data_name(run: str) -> str:
    """The file of a run's trials, beside the list of pairs."""
    return f"{slug(run)}.csv"


def pairs_csv(found: tuple[Offer, ...]) -> str:
    """The list of pairs."""
    rows: list[tuple[Value, ...]] = []
    for offer in found:
        setting = offer.sweep.setting
        low, high = offer.envelope or (None, None)
        slots_alike = all(comparison.slots_alike for comparison in offer.pairs.values())
        rows.append(
            (
                offer.sweep.name, setting.device, setting.dtype, setting.model, setting.workload,
                offer.kind, offer.candidate.id, common.name_of(offer.candidate), offer.baseline.id,
                common.name_of(offer.baseline), int(slots_alike), low, high,
                data_name(offer.sweep.name),
            )
        )  # fmt: skip
    return csv_text(PAIR_COLUMNS, rows)


def trials_csv(sweeps: tuple[Sweep, ...]) -> str:
    """The trials of every sound cell of a folder, as the integers that were stamped."""
    return csv_text(
        TRIAL_COLUMNS,
        [
            (
                cell.cell.id, common.name_of(cell.cell), block, run.output_tokens, run.wall_ns,
                run.served_ns,
            )
            for sweep in sweeps
            for cell in sweep.sound_cells
            for block, run in sorted(cell.runs.items())
        ],
    )  # fmt: skip


def quantiles_csv(found: tuple[Offer, ...]) -> str:
    """Student's quantile for every number of blocks that an interval here is made of."""
    counts = {len(offer.pairs) for offer in found}
    for sweep in {id(offer.sweep): offer.sweep for offer in found}.values():
        counts |= {len(cell.runs) for cell in sweep.cells if isinstance(cell, SoundCell)}
    rows = [(n, t_quantile((1 + CONFIDENCE) / 2, n - 1)) for n in sorted(counts) if n > 1]
    return csv_text(("blocks", "t_quantile"), rows)
