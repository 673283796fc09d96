"""One arm in one round: launch its worker, warm up, run its trials, see what disturbed them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nanoserve_bench import timeouts
from nanoserve_bench.contention import disturbance
from nanoserve_bench.launcher import Worker
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.perf.arms import Arm, Cell
from nanoserve_bench.perf.records import (
    ArmReport,
    Ceiling,
    PerfTrial,
    PrefixDigest,
    Refusal,
    StepProbe,
)
from nanoserve_bench.perf.sameness import prefix_digests
from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.probes import StepsAnswer, StepsOrder, run_probe
from nanoserve_bench.protocol import (
    Ceilings,
    Description,
    Launch,
    MeasureCeilings,
    Trial,
    TrialResult,
)
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.soundness.catalogue import RUN_RULES
from nanoserve_bench.workload import WARMUP_TOKENS, BlockPrompts

MOST_ATTEMPTS = 3
"""Of one trial, while the run has attempts to spare."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What all arms of a run share.

    Attributes:
        workloads: By name.
        counts: Numbers of requests after which outputs are digested: those of all cells.
    """

    model: ModelFolder
    machine: str
    threads: int
    workloads: dict[str, WorkloadPlan]
    counts: tuple[int, ...]


@dataclass(kw_only=True)
class Spare:
    """Trials that may still be run again because something disturbed them."""

    left: int

    def take(self) -> bool:
        """Whether there was one left."""
        self.left -= 1
        return self.left >= 0


@dataclass(kw_only=True)
class Gathered:
    """What an arm gave in a round, up to where it failed."""

    arms: list[ArmReport] = field(default_factory=list)
    trials: list[PerfTrial] = field(default_factory=list)
    probes: list[StepProbe] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


class ArmRun:
    """Runs one arm in one round; whatever happens, `gathered` holds what was measured.

    Args:
        ground: What all arms share.
        arm: The arm.
        number: The round.
        prompts: The round's prompts, by workload.
        spare: Trials that may be run again.
        say: Told what is about to run.
    """

    def __init__(
        self,
        ground: Ground,
        arm: Arm,
        *,
        number: int,
        prompts: dict[str, BlockPrompts],
        spare: Spare,
        say: Callable[[str], None],
    ) -> None:
        self._ground = ground
        self._arm = arm
        self._round = number
        self._prompts = prompts
        self._spare = spare
        self._say = say
        self.gathered = Gathered()

    def run(self) -> None:
        """Run it.

        Raises:
            WorkerError: The worker failed.
        """
        order = -1 if self._round % 2 else 1
        for cells in self._arm.launches()[::order]:
            if self._arm.system:
                self._run_worker(cells[::order])
            else:
                for cell in cells[::order]:
                    self._repeat(cell, self._probe)

    def _run_worker(self, cells: Sequence[Cell]) -> None:
        launch = self._launch(cells)
        self._say(f"launching {self._arm.name}")
        worker = Worker(launch, arm=self._arm.name)
        try:
            description = worker.describe()
            self._report(launch, description)
            for cell in cells:
                self._run_cell(worker, description, cell)
            if self._arm.ceilings:
                self._measure_ceilings(worker)
            worker.close()
        finally:
            worker.kill()

    def _launch(self, cells: Sequence[Cell]) -> Launch:
        workloads = [self._ground.workloads[cell.workload] for cell in cells]
        return Launch(
            system=self._arm.system,
            machine=self._ground.machine,
            device="cpu",
            dtype="float32",
            threads=self._ground.threads,
            model_name=self._ground.model.name,
            model_path=str(self._ground.model.path),
            most_slots=max(cell.slots for cell in cells),
            longest=max(w.prompt_tokens + w.new_tokens for w in workloads),
        )

    def _report(self, launch: Launch, description: Description) -> None:
        self.gathered.arms.append(
            ArmReport(
                round=self._round,
                arm=self._arm.name,
                system=launch.system,
                version=description.version,
                revision=description.revision,
                device_name=description.device_name,
                attention=description.attention,
                kernel_path=description.kernel_path,
                weight_bytes_per_step=description.weight_bytes_per_step,
                libraries=";".join(f"{name}={version}" for name, version in description.libraries),
                settings=description.settings(launch),
            )
        )

    def _run_cell(self, worker: Worker, description: Description, cell: Cell) -> None:
        prompts = self._prompts[cell.workload]
        tokens = self._ground.workloads[cell.workload].new_tokens
        cold, warm = prompts.warmup[: cell.slots], prompts.measured[: cell.requests]
        warmup = Trial(
            slots=cell.slots, prompts=cold, max_tokens=(min(WARMUP_TOKENS, tokens),) * len(cold)
        )
        self._say(f"{self._arm.name}: warming up {_words(cell)}")
        worker.ask(warmup, TrialResult, timeout_s=_timeout_s(warmup))
        trial = Trial(slots=cell.slots, prompts=warm, max_tokens=(tokens,) * len(warm))

        def run(cell: Cell, attempt: int) -> str | None:
            started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
            started_ns = time.monotonic_ns()
            result = worker.ask(trial, TrialResult, timeout_s=_timeout_s(trial))
            seen_ns = time.monotonic_ns() - started_ns
            reading = result.reading
            disturbed = disturbance(
                wall_ns=seen_ns, other_cpu_ns=reading.other_cpu_ns, steal_ns=reading.steal_ns
            )
            run = SystemRun(
                system=self._arm.name,
                shape=Shape(description.shape),
                slots=cell.slots,
                records=result.records,
                settings=description.settings(worker.launch),
                steps=result.steps,
            )
            self._keep(
                cell, run, result, attempt=attempt, started_at=started_at, disturbed=disturbed
            )
            return disturbed

        self._repeat(cell, run)

    def _repeat(self, cell: Cell, run: Callable[[Cell, int], str | None]) -> None:
        """Run a trial until nothing disturbs it, or there are no attempts left."""
        for attempt in range(1, MOST_ATTEMPTS + 1):
            self._say(f"{self._arm.name}: {_words(cell)}" + (" again" if attempt > 1 else ""))
            disturbed = run(cell, attempt)
            if disturbed is None:
                return
            self._say(f"{self._arm.name}: {_words(cell)}: {disturbed}")
            if attempt == MOST_ATTEMPTS or not self._spare.take():
                return

    def _keep(
        self,
        cell: Cell,
        run: SystemRun,
        result: TrialResult,
        *,
        attempt: int,
        started_at: str,
        disturbed: str | None,
    ) -> None:
        flaws = list(flaws_of(run))
        self.gathered.refusals += [
            Refusal(
                round=self._round,
                arm=self._arm.name,
                workload=cell.workload,
                slots=cell.slots,
                attempt=attempt,
                rule=code,
                message=" ".join(message.split()),
            )
            for code, message in flaws
        ]
        if flaws and any(record.finished_ns is None for record in run.records):
            return  # there is no wall to keep
        steps, steps_ns = full_steps(run)
        prefills = [record.prefill_ns for record in run.records]
        known = [ns for ns in prefills if ns is not None]
        reading = result.reading
        self.gathered.trials.append(
            PerfTrial(
                round=self._round,
                arm=self._arm.name,
                workload=cell.workload,
                slots=cell.slots,
                attempt=attempt,
                started_at=started_at,
                requests=len(run.records),
                output_tokens=run.output_tokens,
                wall_ns=run.wall_ns,
                served_ns=run.served_ns,
                full_steps=steps,
                full_steps_ns=steps_ns,
                prefill_ns=sum(known) if known and len(known) == len(prefills) else None,
                cpu_ns=reading.cpu_ns,
                other_cpu_ns=reading.other_cpu_ns,
                steal_ns=reading.steal_ns,
                peak_memory_bytes=reading.peak_memory_bytes,
                disturbed=disturbed,
                outputs=self._digests(run),
            )
        )

    def _digests(self, run: SystemRun) -> tuple[PrefixDigest, ...]:
        """Of the outputs in the order of the prompts, whatever order the system answered in."""
        place = {record.prompt_ids: record.output_ids for record in run.records}
        prompts = [
            prompt
            for block in self._prompts.values()
            for prompt in block.measured
            if prompt in place
        ]
        return prefix_digests([place[prompt] for prompt in prompts], self._ground.counts)

    def _measure_ceilings(self, worker: Worker) -> None:
        self._say(f"{self._arm.name}: what the machine can do")
        size = self._ground.model.weight_bytes
        ceilings = worker.ask(
            MeasureCeilings(buffer_bytes=size), Ceilings, timeout_s=timeouts.CEILINGS_S
        )
        self.gathered.ceilings.append(
            Ceiling(
                round=self._round,
                arm=self._arm.name,
                buffer_bytes=size,
                read_bytes_per_s=ceilings.read_bytes_per_s,
                matmul_flop_per_s=ceilings.matmul_flop_per_s,
            )
        )

    def _probe(self, cell: Cell, attempt: int) -> str | None:
        workload, prompts = self._ground.workloads[cell.workload], self._prompts[cell.workload]
        answer = run_probe(
            "step_probe",
            StepsOrder(
                model_path=str(self._ground.model.path),
                slots=cell.slots,
                longest=workload.prompt_tokens + workload.new_tokens,
                max_tokens=workload.new_tokens,
                prompts=prompts.measured[: cell.requests],
                warmup=prompts.warmup[: cell.slots],
            ),
            StepsAnswer,
            threads=self._ground.threads,
            timeout_s=timeouts.trial_s(cell.requests * workload.new_tokens),
        )
        disturbed = disturbance(
            wall_ns=answer.wall_ns, other_cpu_ns=answer.other_cpu_ns, steal_ns=answer.steal_ns
        )
        self.gathered.probes.append(
            StepProbe(
                round=self._round,
                slots=cell.slots,
                attempt=attempt,
                kernel_path=answer.kernel_path,
                steps=answer.steps,
                steps_ns=answer.steps_ns,
                model_ns=answer.model_ns,
                peak_memory_bytes=answer.peak_memory_bytes,
                weight_bytes=answer.weight_bytes,
                pool_bytes=answer.pool_bytes,
                disturbed=disturbed,
            )
        )
        return disturbed


def _words(cell: Cell) -> str:
    slots = "1 slot" if cell.slots == 1 else f"{cell.slots} slots"
    return f"{cell.requests} x {cell.workload}, {slots}"


def _timeout_s(trial: Trial) -> float:
    return timeouts.trial_s(sum(map(len, trial.prompts)) + sum(trial.max_tokens))


def flaws_of(run: SystemRun) -> Iterator[tuple[str, str]]:
    """Code and message of everything that the gate's rules for one run find."""
    for rule in RUN_RULES:
        try:
            if rule.exempt(run) is None:
                for flaw in rule.check(run):
                    yield rule.code, flaw.message
        except Exception as error:  # noqa: BLE001 - fail closed, as in the judge
            yield rule.code, f"could not be applied: {type(error).__name__}: {error}"
    for record in run.records:
        if len(record.output_ids) != record.max_tokens:
            yield (
                "length",
                (
                    f"request {record.request} gave {len(record.output_ids)} tokens, and "
                    f"{record.max_tokens} were asked for"
                ),
            )


def full_steps(run: SystemRun) -> tuple[int | None, int | None]:
    """Decode steps in which every slot advanced and no prompt was computed: count and time.

    A serial system tells no steps, but the gaps between its tokens are just that.
    """
    if run.shape is Shape.SERIAL:
        if any(record.token_ns is None for record in run.records):
            return None, None
        gaps: Sequence[int] = [gap for record in run.records for gap in record.itl_ns]
    elif run.steps is None:
        return None, None
    else:
        gaps = [
            later.start_ns - step.start_ns
            for step, later in zip(run.steps, run.steps[1:], strict=False)
            if step.decode_rows == run.slots and not step.prefill_rows
        ]
    return (len(gaps), sum(gaps)) if gaps else (None, None)
