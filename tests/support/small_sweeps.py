"""Small sweeps of fake systems in real workers, and a progress that remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nanoserve_bench import systems
from nanoserve_bench.block import Study
from nanoserve_bench.load import LoadChoice
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import Fact, Plan
from nanoserve_bench.planning import Choices, build_plan
from nanoserve_bench.sweep import Sweep
from nanoserve_bench.workload import PromptBook, Vocabulary
from nanoserve_bench.workload_file import WorkloadFile

COMMAND = "nanoserve-bench sweep --arm fake"
MODEL = ModelFolder(
    name="none",
    path=Path("nowhere"),
    source="none",
    vocabulary=Vocabulary(size=200, special=frozenset({0})),
    tokenizer="none",
    weight_bytes=4096,
)


class Silent:
    """A progress that keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def start(self, what: str) -> None:
        self.events.append(what)

    def finish_launch(self) -> None:
        pass

    def finish_trial(self, cell: str, wall_s: float, *, warmup: bool) -> None:
        assert wall_s > 0, (cell, warmup)

    def finish_ceilings(self) -> None:
        self.events.append("ceilings")

    def start_block(self, ordinal: int, planned: int, *, left: int, again: bool) -> None:
        self.events.append(f"block {ordinal}{' again' if again else f' of {planned}'}, {left} left")
        self.begin(ordinal)

    def begin(self, ordinal: int) -> None:
        """What a test does when a block begins."""

    def finish_block(self, ordinal: int, contention: str | None) -> None:
        if contention is not None:
            self.events.append(f"block {ordinal} was disturbed")


def plan_of(
    *arms: str,
    blocks: int = 1,
    slots: tuple[int, ...] = (2,),
    dtypes: tuple[str, ...] = ("float32",),
    workload: str = "day44",
    files: Mapping[str, WorkloadFile] | None = None,
    load: LoadChoice | None = None,
) -> Plan:
    return build_plan(
        Choices(
            arms=arms,
            workloads=(workload,),
            least_blocks=blocks,
            most_blocks=blocks,
            slots=slots,
            dtypes=dtypes,
            load=load,
        ),
        run_id="r",
        created_at="2020-01-01T00:00:00+00:00",
        model="none",
        devices=("cpu",),
        skipped_devices=(),
        revision=None,
        dirty=None,
        find_system=systems.find,
        files=files,
    )


def study_of(plan: Plan, given: Mapping[str, Sequence[tuple[int, ...]]] | None = None) -> Study:
    return Study(
        plan=plan,
        model=MODEL,
        machine="a machine",
        threads=1,
        prompts=PromptBook(
            seed=1, workloads=plan.workloads, vocabulary=MODEL.vocabulary, given=given
        ),
    )


def sweep_of(
    plan: Plan, folder: Path, progress: Silent | None = None, facts: tuple[Fact, ...] = ()
) -> Sweep:
    return Sweep(
        study_of(plan), folder, facts=facts, command=COMMAND, progress=progress or Silent()
    )
