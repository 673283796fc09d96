"""A block with fake systems in real workers: its rows, and the sweep around it."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from nanoserve_bench import sweep, systems
from nanoserve_bench.arrivals import offered
from nanoserve_bench.block import BlockRun, Study
from nanoserve_bench.errors import PlanError, WorkerError
from nanoserve_bench.load import LoadChoice
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.occupancy import split
from nanoserve_bench.plan import Blocks, Fact, Plan
from nanoserve_bench.planning import Choices, build_plan
from nanoserve_bench.results import MANIFEST, ResultSet, read
from nanoserve_bench.runs import TrialKey, assemble, measured_blocks
from nanoserve_bench.schema import SweepRow
from nanoserve_bench.soundness import judge_path
from nanoserve_bench.soundness.evidence import Pair
from nanoserve_bench.summary import summarise
from nanoserve_bench.sweep import Sweep, stored
from nanoserve_bench.workload import WARMUP_TOKENS, PromptBook, Vocabulary, planned
from nanoserve_bench.workload_file import WorkloadFile
from support import fake_systems as fake_systems_module

pytestmark = pytest.mark.usefixtures("fake_systems")
COMMAND = "nanoserve-bench sweep --arm fake"
MODEL = ModelFolder(
    name="none",
    path=Path("nowhere"),
    source="none",
    vocabulary=Vocabulary(size=200, special=frozenset({0})),
    tokenizer="none",
    weight_bytes=4096,
)

MEASURE_CEILINGS = BlockRun._measure_ceilings


@pytest.fixture(autouse=True)
def quiet_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ceilings, which would load torch in every block, and no neighbours of the tests."""
    monkeypatch.setattr(BlockRun, "_measure_ceilings", lambda *_: None)
    monkeypatch.setattr(sweep, "contention", lambda _: None)


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


def test_a_block_runs_every_cell_once_warm_and_in_the_planned_order() -> None:
    plan = plan_of("fake", "again=fake", "fake-batch", blocks=2, slots=(1, 4))
    rows = BlockRun(study_of(plan), 1, replaces=None, progress=Silent()).run()
    assert [t.cell for t in rows.trials if t.warmup] == list(plan.orders[1])
    assert [t.cell for t in rows.trials if not t.warmup] == list(plan.orders[1])
    assert [t.order for t in rows.trials] == list(range(8))
    assert [t.warmup for t in rows.trials] == [True] * 4 + [False] * 4
    for earlier, later in itertools.pairwise(rows.trials):
        assert later.started_ns >= earlier.started_ns + earlier.wall_ns
    assert {r.arm: r.launch for r in rows.systems} == {
        "fake": 3,
        "again": 4,
        "fake-batch": 5,
    }
    launches = {r.launch: r for r in rows.systems}
    assert all(launches[t.launch].arm == t.cell.split("/")[0] for t in rows.trials)


def test_dtypes_take_turns_with_workers_and_launches_of_their_own() -> None:
    plan = plan_of("fake", "again=fake", dtypes=("float32", "bfloat16"))
    progress = Silent()
    rows = BlockRun(study_of(plan), 0, replaces=None, progress=progress).run()
    assert sorted(row.launch for row in rows.systems) == [0, 1, 2, 3]
    dtypes = {row.launch: row.dtype for row in rows.systems}
    assert [t.cell for t in rows.trials if not t.warmup] == list(plan.orders[0])
    assert all(dtypes[t.launch] == t.cell.split("/")[2] for t in rows.trials)
    launched = [event.startswith("launching") for event in progress.events]
    # Both workers of one dtype, their trials, then those of the other.
    assert launched == ([True] * 2 + [False] * 4) * 2
    assert len({t.order for t in rows.trials}) == len(rows.trials) == 8


def test_all_cells_of_a_block_run_the_same_prompts() -> None:
    plan = plan_of("fake", "again=fake", "fake-batch", slots=(1, 4))
    study = study_of(plan)
    rows = BlockRun(study, 0, replaces=None, progress=Silent()).run()
    by_trial: dict[tuple[str, bool], list[str]] = {}
    for row in rows.requests:
        by_trial.setdefault((row.cell, row.warmup), []).append(row.prompt_sha256)
    measured = {tuple(v) for (_, warmup), v in by_trial.items() if not warmup}
    assert len(measured) == 1
    warm = {digest for (_, warmup), v in by_trial.items() if warmup for digest in v}
    assert not warm & set(next(iter(measured)))
    assert len(by_trial["fake-batch/cpu/float32/4/day44", True]) == 4
    assert {r.max_tokens for r in rows.requests if r.warmup} == {WARMUP_TOKENS}
    assert {r.max_tokens for r in rows.requests if not r.warmup} == {16}


def test_each_request_asks_for_its_own_tokens_and_the_drain_is_seen(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake", "fake-batch", slots=(8,), workload="ragged")
    sweep_of(plan, tmp_path / "r").run()
    results = read(tmp_path / "r")
    (workload,) = results.plan.workloads
    assert workload == dataclasses.replace(planned("ragged", 44), slots=(8,))
    for cell in plan.cells:
        own = [r for r in results.requests if r.cell == cell.id]
        assert [(r.prompt_tokens, r.output_tokens) for r in own if not r.warmup] == [
            (one.prompt_tokens, one.new_tokens) for one in workload.lengths
        ]
        assert {r.max_tokens for r in own if r.warmup} == {WARMUP_TOKENS}
    run = assemble(results)[TrialKey(0, "fake-batch/cpu/float32/8/ragged", warmup=False)]
    where = split(run)
    assert where is not None
    assert where.drain_ns > 0
    assert where.starvation_ns == 0


def test_a_system_that_lingers_is_waited_for_after_each_of_its_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fake_systems_module.FakeBatch, "lingers", True)
    silent = Silent()
    BlockRun(
        study_of(plan_of("fake", "again=fake", "fake-batch", slots=(2,))),
        0,
        replaces=None,
        progress=silent,
    ).run()
    said = [event for event in silent.events if not event.startswith("launching")]
    waits = [place for place, event in enumerate(said) if event.startswith("waiting")]
    assert len(waits) == 2
    for place in waits:
        assert "fake-batch/" in said[place - 1]


def test_an_open_loop_reaches_its_worker_and_is_stamped_by_when_requests_were_due() -> None:
    load = LoadChoice(rates_per_s=(400.0,))
    plan = plan_of("fake", "again=fake", "fake-batch", slots=(2,), load=load)
    rows = BlockRun(study_of(plan), 0, replaces=None, progress=Silent()).run()
    workload = plan.workloads[1]
    own = [r for r in rows.requests if r.cell.endswith(workload.name)]
    measured = [r for r in own if not r.warmup]
    assert {r.cell for r in own} == {f"fake-batch/cpu/float32/2/{workload.name}"}
    first = measured[0].arrival_ns
    assert tuple(r.arrival_ns - first for r in measured) == offered(plan, workload, 0)
    assert all(r.submitted_ns >= r.arrival_ns for r in measured)
    # Warm-ups come all at once.
    warm = [r for r in own if r.warmup]
    assert len(warm) == 2
    assert max(r.arrival_ns - r.submitted_ns for r in warm) == 0


def test_a_file_of_requests_is_dealt_out_and_the_gate_holds_it_to_that(tmp_path: Path) -> None:
    file = WorkloadFile(
        name="mine",
        sha256="abc",
        prompts=tuple((1 + n, 2) for n in range(12)),
        max_tokens=tuple(1 + n % 5 for n in range(12)),
    )
    plan = plan_of(
        "fake", "again=fake", "fake-batch", blocks=2, workload="mine", files={"mine": file}
    )
    study = study_of(plan, {"mine": file.prompts})
    folder = tmp_path / "r"
    Sweep(study, folder, facts=(), command="", progress=Silent()).run()
    results = read(folder)
    for block in range(2):
        own = [r for r in results.requests if r.block == block and r.cell.startswith("fake-batch")]
        ran = [results.prompts[r.prompt_sha256] for r in own if not r.warmup]
        assert ran == list(file.prompts[4 * block : 4 * block + 4])
        wanted = file.max_tokens[4 * block : 4 * block + 4]
        assert tuple(r.output_tokens for r in own if not r.warmup) == wanted
        # A warm-up asks for no more than its request will, or it may not fit where that does.
        assert [r.max_tokens for r in own if r.warmup] == [min(3, n) for n in wanted[:2]]
    assert "RUN020" not in {finding.rule for finding in judge_path(folder).findings}


def test_what_a_system_does_not_stamp_stays_empty() -> None:
    rows = BlockRun(
        study_of(plan_of("fake", "fake-untimed")), 0, replaces=None, progress=Silent()
    ).run()
    for row in rows.requests:
        timed = not row.cell.startswith("fake-untimed/")
        assert (row.first_token_ns is not None) is timed
        assert (row.token_ns is not None) is timed
    assert {r.arm: r.stamps for r in rows.systems} == {
        "fake": "holds first_token tokens",
        "fake-untimed": "holds",
        "fake-again": "holds first_token tokens",
    }
    assert rows.steps == ()


def test_a_divergence_is_looked_into_by_the_baseline() -> None:
    plan = plan_of("fake", "again=fake", "fake-wrong")
    rows = BlockRun(study_of(plan), 0, replaces=None, progress=Silent()).run()
    assert rows.divergences
    outputs = {row.request: row for row in rows.requests if row.cell.startswith("fake-wrong/")}
    for row in rows.divergences:
        assert (row.cell, row.reference_cell) == (
            "fake-wrong/cpu/float32/1/day44",
            "fake/cpu/float32/1/day44",
        )
        assert (row.position, row.kind, row.top2_margin) == (2, "bug", 1.0)
        assert row.token_id is not None
        assert row.reference_token_id is not None
        assert row.token_id == (row.reference_token_id + 1) % 200
        assert row.request in outputs
    wrong = {r.request for r in rows.divergences}
    assert 0 < len(wrong) < 8


def test_a_baseline_that_cannot_triage_records_nothing() -> None:
    plan = plan_of("fake-batch", "fake-wrong", slots=(1,))
    rows = BlockRun(study_of(plan), 0, replaces=None, progress=Silent()).run()
    assert rows.divergences == ()


def test_the_ceilings_are_measured_once_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockRun, "_measure_ceilings", MEASURE_CEILINGS)
    progress = Silent()
    rows = BlockRun(
        study_of(plan_of("fake", "fake-batch")), 0, replaces=None, progress=progress
    ).run()
    assert progress.events.count("ceilings") == 1
    (row,) = rows.ceilings
    assert (row.device, row.dtype, row.buffer_bytes) == ("cpu", "float32", 4096)
    assert row.read_bytes_per_s > 1e8
    assert row.matmul_flop_per_s > 1e8


def test_measuring_the_ceilings_burdens_no_arm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(
        BlockRun, "_measure_ceilings", lambda _, running: measured.append(running.worker.arm)
    )
    study = study_of(plan_of("fake", "again=fake", blocks=2))
    for block in range(2):
        BlockRun(study, block, replaces=None, progress=Silent()).run()
    assert sorted(measured) == ["again", "fake"]


def test_an_arm_that_cannot_measure_the_ceilings_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(
        BlockRun, "_measure_ceilings", lambda _, running: measured.append(running.worker.arm)
    )
    study = study_of(plan_of("fake", "a=fake-blind", "b=fake-blind", blocks=2))
    for block in range(2):
        BlockRun(study, block, replaces=None, progress=Silent()).run()
    assert set(measured) <= {"fake", "fake-again"}
    assert len(measured) == 2


def test_a_sweep_writes_a_folder_that_reads_back_whole(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake", "fake-batch", blocks=2)
    sweep_of(plan, tmp_path / "r").run()
    results = read(tmp_path / "r")
    assert results.manifest.complete
    assert measured_blocks(results) == (0, 1)
    (start,) = results.manifest.ledger
    assert (start.outcome, start.command) == ("completed", COMMAND)
    assert len(assemble(results)) == 2 * 2 * len(plan.cells)
    assert [row.cell for row in results.sweep] == [cell.id for cell in plan.cells]
    assert len({row.launch for row in results.systems}) == 6
    for run in assemble(results).values():
        assert run.identity_gaps() == (0, 0)


def test_a_finished_sweep_is_left_alone(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake")
    sweep_of(plan, tmp_path / "r").run()
    before = (tmp_path / "r" / MANIFEST).read_bytes()
    again = Silent()
    sweep_of(plan, tmp_path / "r", again).run()
    assert again.events == []
    assert (tmp_path / "r" / MANIFEST).read_bytes() == before


def test_a_failed_worker_ends_the_sweep_and_the_next_start_goes_on(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake", blocks=2)
    progress = Silent()

    class Failing(Silent):
        def begin(self, ordinal: int) -> None:
            if ordinal == 2:
                raise WorkerError("the worker of fake (cpu) died\nwith a long story")

    with pytest.raises(WorkerError):
        sweep_of(plan, tmp_path / "r", Failing()).run()
    manifest = stored(tmp_path / "r")[1]
    assert manifest.blocks_done == 1
    assert manifest.ledger[-1].outcome == "failed: the worker of fake (cpu) died"
    sweep_of(plan, tmp_path / "r", progress).run()
    assert [event for event in progress.events if event.startswith("block")] == [
        "block 2 of 2, 1 left"
    ]
    ledger = read(tmp_path / "r").manifest.ledger
    assert [(start.first_block, start.outcome) for start in ledger] == [
        (0, "failed: the worker of fake (cpu) died"),
        (1, "completed"),
    ]


@pytest.mark.parametrize("arm", ["fake-dying", "fake-raising", "fake-rubbish"])
def test_a_system_that_fails_leaves_no_worker_and_no_block(tmp_path: Path, arm: str) -> None:
    plan = plan_of("fake", "again=fake", arm)
    with pytest.raises(WorkerError, match=arm):
        sweep_of(plan, tmp_path / "r").run()
    children = psutil.Process().children(recursive=True)
    assert not [child for child in children if "nanoserve_bench.worker" in child.cmdline()]
    manifest = stored(tmp_path / "r")[1]
    assert (manifest.blocks_done, manifest.complete) == (0, False)
    assert manifest.ledger[0].outcome.startswith(f"failed: the worker of {arm} (cpu)")


def test_ctrl_c_is_an_interruption_in_the_ledger(tmp_path: Path) -> None:
    class Pressed(Silent):
        def start(self, what: str) -> None:
            if what.startswith("running"):
                raise KeyboardInterrupt

    plan = plan_of("fake", "again=fake")
    with pytest.raises(KeyboardInterrupt):
        sweep_of(plan, tmp_path / "r", Pressed()).run()
    assert stored(tmp_path / "r")[1].ledger[0].outcome == "interrupted"
    sweep_of(plan, tmp_path / "r").run()
    assert read(tmp_path / "r").manifest.complete


def test_ctrl_c_while_a_sweep_is_closed_leaves_a_finished_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(results: ResultSet) -> tuple[SweepRow, ...]:
        os.kill(os.getpid(), signal.SIGINT)
        return summarise(results)

    plan = plan_of("fake", "again=fake")
    monkeypatch.setattr(sweep, "summarise", press)
    with pytest.raises(KeyboardInterrupt):
        sweep_of(plan, tmp_path / "r").run()
    results = read(tmp_path / "r")
    assert [start.outcome for start in results.manifest.ledger] == ["completed"]
    assert [row.cell for row in results.sweep] == [cell.id for cell in plan.cells]
    before = (tmp_path / "r" / MANIFEST).read_bytes()
    sweep_of(plan, tmp_path / "r").run()
    assert (tmp_path / "r" / MANIFEST).read_bytes() == before


def test_another_plan_machine_or_code_does_not_go_on(tmp_path: Path) -> None:
    plan = plan_of("fake", "again=fake", blocks=2)
    sources = (Fact(name="sources", value="abc"),)

    class Pressed(Silent):
        def begin(self, ordinal: int) -> None:
            raise KeyboardInterrupt(ordinal)

    with pytest.raises(KeyboardInterrupt):
        sweep_of(plan, tmp_path / "r", Pressed(), sources).run()
    before = (tmp_path / "r" / MANIFEST).read_bytes()
    longer = plan_of("fake", "again=fake", blocks=3)
    with pytest.raises(PlanError, match="blocks:"):
        sweep_of(longer, tmp_path / "r", facts=sources).run()
    with pytest.raises(PlanError, match="sources: abc, now def"):
        sweep_of(plan, tmp_path / "r", facts=(Fact(name="sources", value="def"),)).run()
    moved = Sweep(
        dataclasses.replace(study_of(plan), machine="another machine"),
        tmp_path / "r",
        facts=sources,
        command=COMMAND,
        progress=Silent(),
    )
    with pytest.raises(PlanError, match="machine: a machine, now another machine"):
        moved.run()
    assert (tmp_path / "r" / MANIFEST).read_bytes() == before


def test_a_contended_block_is_kept_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sweep, "contention", lambda trial: "a neighbour" if trial.block == 0 else None
    )
    plan = plan_of("fake", "again=fake", blocks=2)
    progress = Silent()
    sweep_of(plan, tmp_path / "r", progress).run()
    assert [event for event in progress.events if event.startswith("block")] == [
        "block 1 of 2, 2 left",
        "block 1 was disturbed",
        "block 2 of 2, 1 left",
        "block 1 again, 1 left",
    ]
    results = read(tmp_path / "r")
    assert measured_blocks(results) == (1, 2)
    assert {(t.block, t.replaces) for t in results.trials} == {(0, None), (1, None), (2, 0)}
    prompts = [{r.prompt_sha256 for r in results.requests if r.block == b} for b in range(3)]
    assert not prompts[0] & prompts[2]
    ran = [t.cell for t in results.trials if t.block == 2 and not t.warmup]
    assert ran == list(plan.orders[2])


@pytest.mark.parametrize(("width", "blocks"), [(None, 2), (0.03, 2), (0.01, 1)])
def test_a_sweep_goes_on_until_its_intervals_are_known_to_be_narrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: float | None, blocks: int
) -> None:
    def widest(pairs: Sequence[Pair]) -> float | None:
        assert [pair.kind for pair in pairs if pair.kind != "doubling"] == ["self", "rival"]
        return width

    monkeypatch.setattr(sweep, "headline_half_width", widest)
    rule = Blocks(least=1, most=2, target_half_width=0.02, most_reruns=1)
    plan = dataclasses.replace(plan_of("fake", "again=fake", "fake-batch", blocks=2), blocks=rule)
    sweep_of(plan, tmp_path / "r").run()
    assert read(tmp_path / "r").manifest.blocks_done == blocks


def test_a_folder_that_is_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "notes.txt").write_text("mine")
    with pytest.raises(PlanError, match="is in the way"):
        sweep_of(plan_of("fake", "again=fake"), tmp_path / "r").run()
    assert (tmp_path / "r" / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
