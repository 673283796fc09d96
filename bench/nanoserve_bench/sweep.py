"""The sweep: block after block into a results folder, stopped and resumed at any moment.

The folder is the state. A start opens it (or makes it), runs the next block that the plan asks
for, writes it, and looks again; whatever ends a start, the next one goes on behind the last
complete block, on the same code and machine or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from nanoserve_bench import stopping
from nanoserve_bench.block import BlockRun, Study
from nanoserve_bench.contention import contention
from nanoserve_bench.errors import BenchError, PlanError
from nanoserve_bench.guards import exclusive, no_interrupt
from nanoserve_bench.plan import Fact, Plan, Start
from nanoserve_bench.progress import Progress
from nanoserve_bench.results import MANIFEST, PLAN, ResultSet, read
from nanoserve_bench.resume import machine_differences, plan_differences, stored
from nanoserve_bench.run_names import now
from nanoserve_bench.schema import TrialRow
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rules.stat_blocks import headline_half_width
from nanoserve_bench.stopping import NextBlock, RanBlock
from nanoserve_bench.summary import summarise
from nanoserve_bench.writer import ResultsWriter


def next_block(plan: Plan, trials: Sequence[TrialRow], *, narrow_enough: bool) -> NextBlock | None:
    """What the declared stopping rule asks for after these trials; None when the sweep is done."""
    replaces = {trial.block: trial.replaces for trial in trials}
    ran = [
        RanBlock(
            number=block,
            replaces=replaced,
            contended=contended_by(trials, block) is not None,
        )
        for block, replaced in replaces.items()
    ]
    return stopping.next_block(plan.blocks, ran, narrow_enough=narrow_enough)


def contended_by(trials: Iterable[TrialRow], block: int) -> str | None:
    """What disturbed a measured trial of a block; None where nothing did."""
    for trial in trials:
        if trial.block == block and not trial.warmup:
            reason = contention(trial)
            if reason is not None:
                return f"{trial.cell}: {reason}"
    return None


class Sweep:
    """A plan and the folder that it fills; `command` is what the ledger says it was started by."""

    def __init__(
        self,
        study: Study,
        folder: Path,
        *,
        facts: tuple[Fact, ...],
        command: str,
        progress: Progress,
    ) -> None:
        self._study = study
        self._folder = folder
        self._facts = facts
        self._command = command
        self._progress = progress

    def run(self) -> None:
        """Run every block that is missing, and close the study.

        Raises:
            PlanError: The folder belongs to another plan, code or machine.
            WorkerError: A worker failed. What was complete is kept.
            KeyboardInterrupt: Likewise.
        """
        if not (self._folder / MANIFEST).is_file():
            self._create()
        with exclusive(self._folder / PLAN):
            self._refuse_other_start()
            writer = ResultsWriter.resume(self._folder)
            if writer.manifest.complete:
                return
            self._enter_start(writer)
            try:
                self._run_blocks(writer)
            except KeyboardInterrupt:
                _record_end(writer, "interrupted")
                raise
            except BenchError as error:
                _record_end(writer, f"failed: {str(error).splitlines()[0]}")
                raise

    def _run_blocks(self, writer: ResultsWriter) -> None:
        plan = self._study.plan
        while True:
            results = read(self._folder, require_complete=False)
            chosen = next_block(plan, results.trials, narrow_enough=self._narrow_enough(results))
            if chosen is None:
                with no_interrupt():
                    writer.finish(summarise(results))
                return
            self._progress.start_block(
                chosen.ordinal,
                plan.blocks.most,
                left=chosen.left,
                again=chosen.replaces is not None,
            )
            rows = BlockRun(
                self._study, chosen.number, replaces=chosen.replaces, progress=self._progress
            ).run()
            with no_interrupt():
                writer.write_block(rows)
            disturbance = contended_by(rows.trials, chosen.number)
            self._progress.finish_block(chosen.ordinal, disturbance)

    def _narrow_enough(self, results: ResultSet) -> bool:
        target = results.plan.blocks.target_half_width
        if target is None:
            return False
        width = headline_half_width(Evidence.of(results).pairs)
        return width is not None and width <= target

    def _enter_start(self, writer: ResultsWriter) -> None:
        plan = self._study.plan
        writer.record_start(
            Start(
                started_at=now(),
                revision=plan.revision,
                dirty=plan.dirty,
                machine=self._study.machine,
                first_block=writer.manifest.blocks_done,
                outcome="running",
                command=self._command,
            )
        )

    def _refuse_other_start(self) -> None:
        plan, manifest = stored(self._folder)
        problems = [
            *plan_differences(plan, self._study.plan),
            *machine_differences(manifest, self._study.machine, self._facts),
        ]
        if problems:
            raise PlanError(
                f"{self._folder} was started otherwise and cannot go on like this:\n  "
                + "\n  ".join(problems)
                + "\nGive back what it was started with; or, to start anew, choose a --run-id or "
                "delete the folder."
            )

    def _create(self) -> None:
        """Make the folder under another name first: a kill in between leaves no half of one."""
        temporary = self._folder.with_name(f".{self._folder.name}.new")
        shutil.rmtree(temporary, ignore_errors=True)
        ResultsWriter.create(
            temporary, self._study.plan, machine=self._study.machine, facts=self._facts
        )
        try:
            temporary.rename(self._folder)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise PlanError(f"{self._folder} is in the way: {error}") from error


def _record_end(writer: ResultsWriter, outcome: str) -> None:
    """Enter a bad end into the ledger, unless the study was finished before it came."""
    if not writer.manifest.complete:
        writer.record_outcome(outcome)
