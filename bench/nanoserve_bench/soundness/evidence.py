"""A study as the rules see it: trials with their runs, and the pairs whose ratios it will state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from nanoserve_bench.comparison import Comparison
from nanoserve_bench.errors import RunUnsound
from nanoserve_bench.figures import Figures
from nanoserve_bench.plan import Cell, Plan, PlannedComparison
from nanoserve_bench.records import SystemRun
from nanoserve_bench.results import ResultSet
from nanoserve_bench.runs import measured_blocks, runs_of
from nanoserve_bench.schema import RequestRow, SystemRow, TrialRow, stamp_words
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.trialset import TrialRecords, TrialSet

DOUBLING = "doubling"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial with everything that is known of it; `number` is its place in the trial set."""

    results: ResultSet
    number: int
    cell: Cell
    row: TrialRow
    launch: SystemRow
    run: SystemRun

    @property
    def block(self) -> int:
        """The block that it belongs to."""
        return self.row.block

    @property
    def stamps(self) -> frozenset[str]:
        """What its system says it stamps."""
        return stamp_words(self.launch.stamps)

    @cached_property
    def figures(self) -> Figures | None:
        """Its exact figures; None where the run cannot carry them."""
        try:
            return Figures.of(self.run)
        except RunUnsound:
            return None

    def line(self, file: str, request: str | None = None) -> int | None:
        """The line of its row in a file of the folder."""
        if file == TrialRow.FILE:
            return self.results.line_of(self.row)
        if file == SystemRow.FILE:
            return self.results.line_of(self.launch)
        if file == RequestRow.FILE and request is not None:
            if not isinstance(self.run.records, TrialRecords):
                raise TypeError("the run of a folder's trial is a view of its rows")
            return self.run.records.line(request)
        return None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two cells whose ratio the study will state: a planned comparison, or a doubling of slots.

    `kind` is the plan's `rival`, `revision` or `self`, or `doubling` for n and 2n slots of an arm.
    """

    kind: str
    planned: PlannedComparison | None
    baseline: Cell
    candidate: Cell
    baseline_trials: Mapping[int, Trial]
    candidate_trials: Mapping[int, Trial]

    @property
    def same_system(self) -> bool:
        """Whether both sides are the same thing, or the same system at another commit."""
        return self.kind != "rival"

    def blocks(self) -> Iterator[tuple[int, Trial, Trial]]:
        """The blocks that hold both sides: (block, baseline, candidate)."""
        for block in sorted(self.baseline_trials.keys() & self.candidate_trials.keys()):
            yield block, self.baseline_trials[block], self.candidate_trials[block]

    @cached_property
    def comparisons(self) -> Mapping[int, Comparison]:
        """The exact comparison of each block whose runs can carry one. Judged by nobody yet."""
        found = {}
        for block, below, above in self.blocks():
            if below.figures is not None and above.figures is not None:
                found[block] = Comparison.of(
                    below.run, above.run, figures=(below.figures, above.figures)
                )
        return found


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A study, taken apart.

    Attributes:
        results: The folder.
        columns: The requests and steps of every trial, for questions to all of them at once.
        trials: Every trial, warm-ups and replaced blocks included, in file order.
        measured: The trials that figures are made of.
        blocks: The measured blocks.
        pairs: Planned comparisons in the plan's order, then the doublings.
    """

    results: ResultSet
    columns: TrialSet
    trials: tuple[Trial, ...]
    measured: tuple[Trial, ...]
    blocks: tuple[int, ...]
    pairs: tuple[Pair, ...]

    @property
    def plan(self) -> Plan:
        """The promise that the study is held to."""
        return self.results.plan

    @cached_property
    def measured_ids(self) -> frozenset[int]:
        """Identities (`id`) of the measured trials."""
        return frozenset(map(id, self.measured))

    @cached_property
    def profile(self) -> Profile:
        """What rules need of every trial besides its requests, in the order of `columns`."""
        return Profile.of(self.columns, [trial.run for trial in self.trials])

    def same_work(self, baseline: Trial, candidate: Trial) -> bool:
        """Whether two trials surely ran the same requests and said the same.

        True proves equal prompts, lengths asked for, outputs and so output lengths, request by
        request; False proves nothing.
        """
        pair = (baseline.number, candidate.number)
        if pair not in self._same_work:
            self._same_work[pair] = self.profile.same_work(*pair)
        return self._same_work[pair]

    @cached_property
    def _same_work(self) -> dict[tuple[int, int], bool]:
        return {}

    @cached_property
    def by_cell(self) -> Mapping[str, Mapping[int, Trial]]:
        """The measured trials of each planned cell, by block."""
        found: dict[str, dict[int, Trial]] = {cell.id: {} for cell in self.plan.cells}
        for trial in self.measured:
            found[trial.cell.id][trial.block] = trial
        return found

    @classmethod
    def of(cls, results: ResultSet) -> Evidence:
        """Take a study apart."""
        columns = TrialSet.of(results)
        launches = {row.launch: row for row in results.systems}
        cells = {cell.id: cell for cell in results.plan.cells}
        trials = [
            Trial(
                results=results,
                number=number,
                cell=cells[trial.cell],
                row=trial,
                launch=launches[trial.launch],
                run=run,
            )
            for number, (trial, run) in enumerate(
                zip(results.trials, runs_of(results, columns), strict=True)
            )
        ]
        blocks = measured_blocks(results)
        counted = set(blocks)
        measured = tuple(t for t in trials if not t.row.warmup and t.block in counted)
        return cls(
            results=results,
            columns=columns,
            trials=tuple(trials),
            measured=measured,
            blocks=blocks,
            pairs=tuple(_pairs(results.plan, measured)),
        )


def doublings(plan: Plan) -> Iterator[tuple[Cell, Cell]]:
    """Cells of n and 2n slots of one arm, where the workload can fill 2n slots.

    An open-loop workload has none: its throughput is what was offered.
    """
    requests = {w.name: w.requests for w in plan.workloads if w.arrivals is None}
    cells = {(*_place(cell), cell.slots): cell for cell in plan.cells}
    for lower in plan.cells:
        upper = cells.get((*_place(lower), 2 * lower.slots))
        if upper is not None and requests.get(lower.workload, 0) >= upper.slots:
            yield lower, upper


def _place(cell: Cell) -> tuple[str, str, str, str, str]:
    return cell.arm, cell.device, cell.dtype, cell.workload, cell.model


def _pairs(plan: Plan, measured: Sequence[Trial]) -> Iterator[Pair]:
    by_cell: dict[str, dict[int, Trial]] = defaultdict(dict)
    for trial in measured:
        by_cell[trial.cell.id][trial.block] = trial
    cells = {cell.id: cell for cell in plan.cells}
    wanted: list[tuple[str, PlannedComparison | None, Cell, Cell]] = [
        (planned.kind, planned, cells[planned.baseline], cells[planned.candidate])
        for planned in plan.comparisons
        if planned.baseline in cells and planned.candidate in cells
    ]
    wanted += [(DOUBLING, None, lower, upper) for lower, upper in doublings(plan)]
    for kind, planned, baseline, candidate in wanted:
        yield Pair(
            kind=kind,
            planned=planned,
            baseline=baseline,
            candidate=candidate,
            baseline_trials=by_cell[baseline.id],
            candidate_trials=by_cell[candidate.id],
        )


def is_self_pair(pair: Pair) -> bool:
    """Whether a pair is the same system twice, so that its true ratio is 1.

    A pair declared `self` between two variants of a system states what the variant costs; it says
    nothing about the noise.
    """
    return pair.kind == "self" and all(
        (below.launch.system, below.launch.version, below.launch.revision)
        == (above.launch.system, above.launch.version, above.launch.revision)
        for _, below, above in pair.blocks()
    )


def self_pairs(cell: Cell, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """The A/A pairs that say how much noise there is around a cell."""
    place = (cell.device, cell.dtype, cell.workload)
    return tuple(
        pair
        for pair in pairs
        if is_self_pair(pair)
        and (pair.baseline.device, pair.baseline.dtype, pair.baseline.workload) == place
    )
