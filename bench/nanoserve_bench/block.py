"""One block of a sweep: launch the workers, warm up, measure the ceilings, run every cell once.

Cells of one device and dtype share the time in which their workers are up. One worker is active at
a time; the others, and this process, sleep on their pipes. Every block relaunches everything, so
that no block inherits another's memory, threads or luck.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nanoserve_bench import timeouts
from nanoserve_bench.arrivals import offered
from nanoserve_bench.launcher import Worker
from nanoserve_bench.meters import load_average
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import Arm, Cell, Plan
from nanoserve_bench.progress import Progress
from nanoserve_bench.protocol import (
    Ceilings,
    Description,
    Divergence,
    Launch,
    MeasureCeilings,
    Settle,
    Settled,
    Triage,
    Trial,
    TrialResult,
)
from nanoserve_bench.schema import (
    CeilingRow,
    DivergenceRow,
    RequestRow,
    StepRow,
    SystemRow,
    TrialRow,
    token_digest,
)
from nanoserve_bench.systems import find
from nanoserve_bench.workload import WARMUP_TOKENS, PromptBook
from nanoserve_bench.writer import BlockRows


@dataclass(frozen=True, kw_only=True)
class Study:
    """What all blocks of a sweep share.

    `engines` has the folder of the engine of each arm that runs a revision of its own.
    """

    plan: Plan
    model: ModelFolder
    machine: str
    threads: int
    prompts: PromptBook
    engines: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Running:
    """A launched worker, and how its launch is called in the files."""

    worker: Worker
    launch: int
    description: Description


@dataclass(frozen=True, kw_only=True, slots=True)
class _Done:
    """A measured cell, kept until its outputs have been held against its baseline's."""

    cell: Cell
    result: TrialResult


class BlockRun:
    """Runs one block and gathers its rows."""

    def __init__(
        self, study: Study, block: int, *, replaces: int | None, progress: Progress
    ) -> None:
        self._study = study
        self._block = block
        self._replaces = replaces
        self._progress = progress
        self._cells = {cell.id: cell for cell in study.plan.cells}
        self._arms = {arm.name: arm for arm in study.plan.arms}
        self._workloads = {workload.name: workload for workload in study.plan.workloads}
        self._prompts = study.prompts.block(block)
        self._order = 0
        self._systems: list[SystemRow] = []
        self._ceilings: list[CeilingRow] = []
        self._trials: list[TrialRow] = []
        self._requests: list[RequestRow] = []
        self._steps: list[StepRow] = []
        self._divergences: list[DivergenceRow] = []
        self._token_lists: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])

    def run(self) -> BlockRows:
        """Run it.

        Raises:
            WorkerError: A worker failed; the block is lost.
        """
        ordered = [self._cells[cell] for cell in self._study.plan.orders[self._block]]
        grounds = dict.fromkeys((cell.device, cell.dtype) for cell in ordered)
        for device, dtype in grounds:
            self._run_ground([c for c in ordered if (c.device, c.dtype) == (device, dtype)])
        prompts, outputs = self._token_lists
        return BlockRows(
            systems=tuple(self._systems),
            ceilings=tuple(self._ceilings),
            trials=tuple(self._trials),
            requests=tuple(self._requests),
            steps=tuple(self._steps),
            prompts=tuple(prompts),
            outputs=tuple(outputs),
            divergences=tuple(self._divergences),
        )

    def _run_ground(self, cells: Sequence[Cell]) -> None:
        """All cells of one device and dtype."""
        with ExitStack() as stack:
            running: dict[str, _Running] = {}
            for name in dict.fromkeys(cell.arm for cell in cells):
                running[name] = self._launch(self._arms[name], cells, stack)
            for cell in cells:
                self._run_cell(running[cell.arm], cell, warmup=True)
            # Whoever runs first measures them: in mirrored orders that is not always the same.
            able = next(c for c in cells if find(self._arms[c.arm].system).measures_ceilings)
            self._measure_ceilings(running[able.arm])
            done = {
                cell.id: _Done(cell=cell, result=self._run_cell(running[cell.arm], cell))
                for cell in cells
            }
            self._look_into_divergences(running, done)
            for entry in running.values():
                entry.worker.close()

    def _launch(self, arm: Arm, cells: Sequence[Cell], stack: ExitStack) -> _Running:
        own = [cell for cell in cells if cell.arm == arm.name]
        workloads = [self._workloads[cell.workload] for cell in own]
        device, dtype = own[0].device, own[0].dtype
        launch = Launch(
            system=arm.system,
            machine=self._study.machine,
            device=device,
            dtype=dtype,
            threads=self._study.threads,
            model_name=self._study.model.name,
            model_path=str(self._study.model.path),
            most_slots=max(cell.slots for cell in own),
            longest=max(workload.longest for workload in workloads),
            options=arm.options,
        )
        self._progress.start(f"launching {arm.name} on {device}")
        worker = Worker(launch, arm=arm.name, engine=self._study.engines.get(arm.name))
        stack.callback(worker.kill)
        description = worker.describe()
        number = self._launch_number(arm, device, dtype)
        self._systems.append(self._system_row(number, arm, launch, description))
        self._progress.finish_launch()
        return _Running(worker=worker, launch=number, description=description)

    def _launch_number(self, arm: Arm, device: str, dtype: str) -> int:
        """The same however often the sweep was interrupted: counted by the plan."""
        plan = self._study.plan
        grounds = list(dict.fromkeys((cell.device, cell.dtype) for cell in plan.cells))
        within = grounds.index((device, dtype)) * len(plan.arms) + plan.arms.index(arm)
        return self._block * len(grounds) * len(plan.arms) + within

    def _run_cell(self, running: _Running, cell: Cell, *, warmup: bool = False) -> TrialResult:
        prompts = self._prompts[cell.workload]
        wanted = prompts.wanted
        due = offered(self._study.plan, self._workloads[cell.workload], self._block)
        if warmup:
            due = ()
            wanted = tuple(min(WARMUP_TOKENS, tokens) for tokens in wanted[: cell.slots])
        trial = Trial(
            slots=cell.slots,
            prompts=prompts.warmup[: cell.slots] if warmup else prompts.measured,
            max_tokens=wanted,
            due_ns=due,
        )
        self._progress.start(f"{'warming up' if warmup else 'running'} {cell.id}")
        timeout_s = timeouts.trial_s(sum(trial.max_tokens)) + max(due, default=0) / 1e9
        load_before = load_average()
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        started_ns = time.monotonic_ns()
        result = running.worker.ask(trial, TrialResult, timeout_s=timeout_s)
        wall_ns = time.monotonic_ns() - started_ns
        reading = result.reading
        self._trials.append(
            TrialRow(
                block=self._block,
                replaces=self._replaces,
                launch=running.launch,
                cell=cell.id,
                order=self._order,
                warmup=warmup,
                started_at=started_at,
                started_ns=started_ns,
                wall_ns=wall_ns,
                load_before=load_before,
                load_after=load_average(),
                involuntary_switches=reading.involuntary_switches,
                steal_ns=reading.steal_ns,
                cpu_ns=reading.cpu_ns,
                other_cpu_ns=reading.other_cpu_ns,
                peak_memory_bytes=reading.peak_memory_bytes,
            )
        )
        self._order += 1
        self._keep(cell, result, warmup=warmup)
        self._progress.finish_trial(cell.id, wall_ns / 1e9, warmup=warmup)
        if find(cell.system).lingers:
            self._progress.start(f"waiting until {cell.arm} does nothing")
            running.worker.ask(Settle(), Settled, timeout_s=timeouts.SETTLE_S)
        return result

    def _keep(self, cell: Cell, result: TrialResult, *, warmup: bool) -> None:
        prompts, outputs = self._token_lists
        for record in result.records:
            prompts.append(record.prompt_ids)
            outputs.append(record.output_ids)
            self._requests.append(
                RequestRow(
                    block=self._block,
                    cell=cell.id,
                    warmup=warmup,
                    request=record.request,
                    prompt_sha256=token_digest(record.prompt_ids),
                    prompt_tokens=len(record.prompt_ids),
                    max_tokens=record.max_tokens,
                    output_tokens=len(record.output_ids),
                    discarded_tokens=record.discarded_tokens,
                    cached_tokens=record.cached_tokens,
                    arrival_ns=record.arrival_ns,
                    submitted_ns=record.submitted_ns,
                    holds_ns=record.holds,
                    first_token_ns=record.first_token_ns,
                    finished_ns=record.finished_ns,
                    token_ns=record.token_ns,
                    finish_reason=record.finish_reason,
                    error=record.error or None,
                    output_sha256=token_digest(record.output_ids),
                )
            )
        self._steps += [
            StepRow(block=self._block, cell=cell.id, warmup=warmup, step=number, **step._asdict())
            for number, step in enumerate(result.steps or ())
        ]

    def _measure_ceilings(self, running: _Running) -> None:
        launch = running.worker.launch
        self._progress.start(f"measuring what {launch.device} can do")
        buffer_bytes = self._study.model.weight_bytes
        ceilings = running.worker.ask(
            MeasureCeilings(buffer_bytes=buffer_bytes), Ceilings, timeout_s=timeouts.CEILINGS_S
        )
        self._ceilings.append(
            CeilingRow(
                block=self._block,
                device=launch.device,
                dtype=launch.dtype,
                buffer_bytes=buffer_bytes,
                read_bytes_per_s=ceilings.read_bytes_per_s,
                matmul_flop_per_s=ceilings.matmul_flop_per_s,
            )
        )
        self._progress.finish_ceilings()

    def _look_into_divergences(self, running: dict[str, _Running], done: dict[str, _Done]) -> None:
        """Have the baseline look into every output that differs from its own, while it is up."""
        for planned in self._study.plan.comparisons:
            if planned.baseline not in done or planned.candidate not in done:
                continue
            reference, other = done[planned.baseline], done[planned.candidate]
            worker = running[reference.cell.arm].worker
            if not find(worker.launch.system).triages:
                continue  # the gate refuses the pair, and says that nothing was recorded
            for request, divergence in _divergences(reference.result, other.result):
                self._progress.start(f"looking into request {request} of {other.cell.id}")
                triage = worker.ask(divergence, Triage, timeout_s=timeouts.TRIAGE_S)
                self._divergences.append(
                    self._divergence_row(reference.cell, other.cell, request, divergence, triage)
                )

    def _divergence_row(
        self, reference: Cell, cell: Cell, request: str, divergence: Divergence, triage: Triage
    ) -> DivergenceRow:
        token_id, reference_token_id = divergence.tokens_at(triage.position)
        return DivergenceRow(
            block=self._block,
            cell=cell.id,
            reference_cell=reference.id,
            request=request,
            position=triage.position,
            token_id=token_id,
            reference_token_id=reference_token_id,
            text=triage.text,
            reference_text=triage.reference_text,
            logit=triage.logit,
            reference_logit=triage.reference_logit,
            top2_margin=triage.top2_margin,
            noise_floor=triage.noise_floor,
            later_agreement=triage.later_agreement,
            kind=triage.kind,
        )

    def _system_row(
        self, number: int, arm: Arm, launch: Launch, description: Description
    ) -> SystemRow:
        return SystemRow(
            launch=number,
            block=self._block,
            arm=arm.name,
            system=arm.system,
            version=description.version,
            revision=description.revision,
            shape=description.shape,
            stamps=" ".join(description.stamps) or None,
            machine=launch.machine,
            device=launch.device,
            device_name=description.device_name,
            dtype=description.dtype,
            matmul_precision=description.matmul_precision,
            threads=description.threads,
            weights=description.weights,
            weight_bytes_per_step=description.weight_bytes_per_step,
            tokenizer=description.tokenizer,
            attention=description.attention,
            cache=description.cache,
            decoding=description.decoding,
            kernel_path=description.kernel_path,
            libraries=";".join(f"{name}={version}" for name, version in description.libraries),
        )


def _divergences(reference: TrialResult, other: TrialResult) -> Iterator[tuple[str, Divergence]]:
    """Requests with the same prompt and other tokens, matched by prompt and not by row."""
    by_prompt = {record.prompt_ids: record.output_ids for record in reference.records}
    for record in other.records:
        expected = by_prompt.get(record.prompt_ids)
        if expected is not None and expected != record.output_ids:
            yield (
                record.request,
                Divergence(
                    prompt_ids=record.prompt_ids,
                    output_ids=record.output_ids,
                    reference_ids=expected,
                ),
            )
