"""A run of the speed table: rounds of arms, kept after every arm, gone on with after a stop.

One arm runs at a time and its worker is gone before the next is launched, so that no idle rival
keeps threads or memory. An arm that fails is a hole with its reason and costs no other arm
anything.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nanoserve_bench.errors import PlanError, WorkerError
from nanoserve_bench.faults import one_line
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.perf.arms import Arm
from nanoserve_bench.perf.costs import arm_s
from nanoserve_bench.perf.files import DOCUMENT, read_run, write_run
from nanoserve_bench.perf.measure import ArmRun, Ground, Spare
from nanoserve_bench.perf.records import Hole, PerfRun
from nanoserve_bench.progress import duration
from nanoserve_bench.systems import find_all
from nanoserve_bench.workload import PromptBook

RERUNS_A_ROUND = 4
_MUST_MATCH = ("machine", "sources", "model_source", "threads", "seed", "workloads", "orders")
"""What a run must share with its beginning to go on."""


def begin(folder: Path, planned: PerfRun) -> PerfRun:
    """The run to go on with: the one in the folder, or the planned one where there is none.

    Raises:
        PlanError: The folder holds a run that this one cannot go on with.
    """
    if not (folder / DOCUMENT).is_file():
        return planned
    stored = read_run(folder)
    if stored.complete:
        raise PlanError(f"{folder} holds a complete run: choose another --run-id")
    for name in _MUST_MATCH:
        if getattr(stored, name) != getattr(planned, name):
            raise PlanError(
                f"{folder} holds an unfinished run with other {name}, so it cannot go on: choose "
                "another --run-id, or delete the folder"
            )
    return stored


class Session:
    """Runs what is left of a run.

    Args:
        run: The run so far.
        folder: Where it is kept.
        model: The model, materialised.
        arms: All arms.
        say: Told what happens, a line at a time.
    """

    def __init__(
        self,
        run: PerfRun,
        folder: Path,
        *,
        model: ModelFolder,
        arms: Sequence[Arm],
        say: Callable[[str], None],
    ) -> None:
        self.run_so_far = run
        self._folder = folder
        self._arms = {arm.name: arm for arm in arms}
        self._say = say
        self._ground = Ground(
            model=model,
            machine=run.machine,
            threads=run.threads,
            workloads={workload.name: workload for workload in run.workloads},
            counts=tuple(sorted({cell.requests for arm in arms for cell in arm.cells})),
        )
        self._book = PromptBook(seed=run.seed, workloads=run.workloads, vocabulary=model.vocabulary)
        spent = sum(trial.attempt > 1 for trial in run.trials)
        self._spare = Spare(left=RERUNS_A_ROUND * len(run.orders) - spent)

    def run(self) -> PerfRun:
        """Run every arm of every round that has not been run, and keep what came of it."""
        self._look_for_systems()
        for number, order in enumerate(self.run_so_far.orders):
            for name in order:
                if f"{number}/{name}" not in self.run_so_far.done:
                    self._run_arm(number, self._arms[name])
        self._keep(complete=True)
        return self.run_so_far

    def left_s(self) -> float:
        """Expected seconds of what has not been run."""
        known = {hole.arm for hole in self.run_so_far.holes if hole.round is None}
        return sum(
            arm_s(self._arms[name], self._ground)
            for number, order in enumerate(self.run_so_far.orders)
            for name in order
            if f"{number}/{name}" not in self.run_so_far.done and name not in known
        )

    def _look_for_systems(self) -> None:
        """An arm whose system is not here is a hole before anything runs."""
        found = find_all()
        holes = [hole for hole in self.run_so_far.holes if hole.round is not None]
        for arm in self._arms.values():
            if not arm.system:
                continue
            if arm.system not in found:
                reason = f"no system is called {arm.system}"
            elif found[arm.system].system is None or found[arm.system].problem:
                reason = one_line(found[arm.system].problem)
            else:
                continue
            holes.append(Hole(round=None, arm=arm.name, reason=reason))
        self.run_so_far = dataclasses.replace(self.run_so_far, holes=tuple(holes))
        self._keep()

    def _run_arm(self, number: int, arm: Arm) -> None:
        label = f"round {number + 1} of {len(self.run_so_far.orders)}"
        if self._hopeless(arm):
            self._keep(done=f"{number}/{arm.name}")
            return
        self._say(f"{label}: {arm.name}; about {duration(self.left_s())} left")
        started = time.monotonic()
        running = ArmRun(
            self._ground,
            arm,
            number=number,
            prompts=dict(self._book.block(number)),
            spare=self._spare,
            say=lambda what: self._say(f"{label}:   {what}"),
        )
        holes = self.run_so_far.holes
        try:
            running.run()
        except WorkerError as error:
            reason = one_line(str(error))
            self._say(f"{label}: {arm.name} failed: {error}")
            holes = (*holes, Hole(round=number, arm=arm.name, reason=reason))
        self._say(f"{label}: {arm.name} took {duration(time.monotonic() - started)}")
        gathered, so_far = running.gathered, self.run_so_far
        self.run_so_far = dataclasses.replace(
            so_far,
            arms=(*so_far.arms, *gathered.arms),
            trials=(*so_far.trials, *gathered.trials),
            probes=(*so_far.probes, *gathered.probes),
            ceilings=(*so_far.ceilings, *gathered.ceilings),
            refusals=(*so_far.refusals, *gathered.refusals),
            holes=holes,
        )
        self._keep(done=f"{number}/{arm.name}")

    def _hopeless(self, arm: Arm) -> bool:
        """Absent, or a rival that failed before: it may take minutes to fail again."""
        return any(
            hole.arm == arm.name and (hole.round is None or arm.rival)
            for hole in self.run_so_far.holes
        )

    def _keep(self, *, done: str | None = None, complete: bool = False) -> None:
        so_far = self.run_so_far
        self.run_so_far = dataclasses.replace(
            so_far,
            done=so_far.done if done is None else (*so_far.done, done),
            complete=complete,
        )
        write_run(self._folder, self.run_so_far)
