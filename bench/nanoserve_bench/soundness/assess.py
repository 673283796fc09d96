"""From findings to what may be printed: estimates where nothing was refused, holes elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from nanoserve_bench.comparison import Comparison
from nanoserve_bench.figures import Figures
from nanoserve_bench.occupancy import split
from nanoserve_bench.plan import Cell
from nanoserve_bench.soundness.evidence import DOUBLING, Evidence, Pair, Trial, self_pairs
from nanoserve_bench.soundness.findings import Finding
from nanoserve_bench.soundness.physical import multiply_rate, read_rate
from nanoserve_bench.soundness.verdict import (
    RefusedCell,
    RefusedComparison,
    RefusedMarginal,
    SoundCell,
    SoundComparison,
    SoundMarginal,
)
from nanoserve_bench.statistics import (
    Estimate,
    compare_verdict,
    envelope,
    estimate,
    estimate_linear,
    outliers,
    worth_verdict,
)

Cells = Mapping[str, SoundCell | RefusedCell]
Comparisons = tuple[SoundComparison | RefusedComparison, ...]
Marginals = tuple[SoundMarginal | RefusedMarginal, ...]


def assess(evidence: Evidence, findings: Sequence[Finding]) -> tuple[Cells, Comparisons, Marginals]:
    """Everything that the study may state, and everything that it may not, with the reasons."""
    cells = {cell.id: _cell(cell, evidence, findings) for cell in evidence.plan.cells}
    reasons = {
        id(pair): tuple(f for f in findings if f.refuses_pair(pair.baseline, pair.candidate))
        for pair in evidence.pairs
    }
    comparisons: list[SoundComparison | RefusedComparison] = []
    marginals: list[SoundMarginal | RefusedMarginal] = []
    for pair in evidence.pairs:
        if pair.kind == DOUBLING:
            marginals.append(_marginal(pair, reasons[id(pair)]))
        else:
            comparisons.append(_comparison(pair, evidence.pairs, reasons))
    return cells, tuple(comparisons), tuple(marginals)


def _cell(cell: Cell, evidence: Evidence, findings: Sequence[Finding]) -> SoundCell | RefusedCell:
    refused = tuple(finding for finding in findings if finding.refuses_cell(cell))
    if refused:
        return RefusedCell(cell=cell, findings=refused)
    trials = list(evidence.by_cell[cell.id].values())
    figures = [_figures(trial) for trial in trials]

    def over(pick: Callable[[Figures], Fraction | None]) -> Estimate | None:
        return _estimate([pick(figure) for figure in figures])

    shares = [figure.queue_share for figure in figures if figure.queue_share is not None]
    read_share, matrix_share = _shares(cell, trials, evidence)
    splits = {trial.block: part for trial in trials if (part := split(trial.run)) is not None}
    return SoundCell(
        cell=cell,
        runs={trial.block: trial.run for trial in trials},
        throughput=estimate(figure.throughput for figure in figures),
        batch_occupancy=over(lambda figure: figure.batch_occupancy),
        tokens_per_slot_second=over(lambda figure: figure.tokens_per_slot_second),
        system_occupancy=estimate(figure.system_occupancy for figure in figures),
        tokens_per_request_second=estimate(f.tokens_per_request_second for f in figures),
        queue_share=estimate_linear(shares) if len(shares) == len(figures) else None,
        prefill=over(lambda figure: figure.prefill_s),
        ttft=over(lambda figure: figure.ttft_s),
        tpot=over(lambda figure: figure.tpot_s),
        e2el=estimate(figure.e2el_s for figure in figures),
        read_share=read_share,
        matrix_share=matrix_share,
        splits=splits if len(splits) == len(trials) else None,
        outliers=tuple(trials[i].block for i in outliers([f.throughput for f in figures])),
    )


def _figures(trial: Trial) -> Figures:
    return trial.figures or Figures.of(trial.run)  # raises, and says why there are none


def _shares(
    cell: Cell, trials: Sequence[Trial], evidence: Evidence
) -> tuple[Estimate | None, Estimate | None]:
    """Shares of the device's highest read bandwidth and of its highest matrix rate."""
    ceilings = [
        row
        for row in evidence.results.ceilings
        if (row.device, row.dtype) == (cell.device, cell.dtype)
    ]
    weights = [trial.launch.weight_bytes_per_step for trial in trials]
    if not ceilings or not all(weights):
        return None, None
    read = Fraction(max(row.read_bytes_per_s for row in ceilings))
    matrix = Fraction(max(row.matmul_flop_per_s for row in ceilings))
    runs = [(trial.run, size) for trial, size in zip(trials, weights, strict=True) if size]
    multiplied = [multiply_rate(run, size, cell.dtype) for run, size in runs]
    return (
        _estimate([read_rate(run, size) / read for run, size in runs]),
        _estimate([None if rate is None else rate / matrix for rate in multiplied]),
    )


def speedup(pair: Pair) -> Estimate:
    """The ratio of the throughputs over the blocks of a pair."""
    return estimate(comparison.speedup for comparison in pair.comparisons.values())


def _comparison(
    pair: Pair, pairs: Sequence[Pair], reasons: Mapping[int, tuple[Finding, ...]]
) -> SoundComparison | RefusedComparison:
    if pair.planned is None:
        raise TypeError("a doubling is not a planned comparison")
    refused = reasons[id(pair)]
    noise = self_pairs(pair.candidate, pairs)
    sound_noise = [twin for twin in noise if not reasons[id(twin)]]
    if not refused and not sound_noise:
        refused = tuple(finding for twin in noise for finding in reasons[id(twin)])
    if refused:
        return RefusedComparison(
            planned=pair.planned,
            baseline=pair.baseline,
            candidate=pair.candidate,
            findings=refused,
        )
    around_one = envelope(speedup(twin) for twin in sound_noise)
    whole = speedup(pair)

    def over(pick: Callable[[Comparison], Fraction | None]) -> Estimate | None:
        return _estimate([pick(comparison) for comparison in pair.comparisons.values()])

    return SoundComparison(
        planned=pair.planned,
        baseline=pair.baseline,
        candidate=pair.candidate,
        pairs=pair.comparisons,
        speedup=whole,
        batch_factor=over(lambda c: c.batch_factor),
        slot_factor=over(lambda c: c.slot_factor),
        system_factor=over(lambda c: c.system_factor),
        request_factor=over(lambda c: c.request_factor),
        prefill_ratio=over(lambda c: c.prefill_ratio),
        ttft_ratio=over(lambda c: c.ttft_ratio),
        tpot_ratio=over(lambda c: c.tpot_ratio),
        e2el_ratio=over(lambda c: c.e2el_ratio),
        envelope=around_one,
        verdict=compare_verdict(whole, around_one),
    )


def _marginal(pair: Pair, refused: tuple[Finding, ...]) -> SoundMarginal | RefusedMarginal:
    lower, upper = pair.baseline, pair.candidate
    if refused:
        return RefusedMarginal(lower=lower, upper=upper, findings=refused)
    product = speedup(pair)
    comparisons = pair.comparisons.values()
    return SoundMarginal(
        arm=lower.arm,
        device=lower.device,
        dtype=lower.dtype,
        workload=lower.workload,
        slots=lower.slots,
        lower=lower,
        upper=upper,
        pairs=pair.comparisons,
        batch_ratio=_estimate([comparison.batch_factor for comparison in comparisons]),
        slot_ratio=_estimate([comparison.slot_factor for comparison in comparisons]),
        product=product,
        verdict=worth_verdict(product),
    )


def _estimate(values: Sequence[Fraction | None]) -> Estimate | None:
    """A hole in one block is a hole in the whole."""
    known = [value for value in values if value is not None and value > 0]
    return estimate(known) if known and len(known) == len(values) else None
