"""What a sweep does next, and whether it may go on."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path

import pytest

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Blocks, Fact
from nanoserve_bench.results import PLAN, read
from nanoserve_bench.schema import TrialRow, token_digest
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rules.stat_blocks import headline_half_width
from nanoserve_bench.sweep import (
    NextBlock,
    contended_by,
    exclusive,
    machine_differences,
    next_block,
    no_interrupt,
    plan_differences,
    stored,
    unfinished,
)
from support.rebuild import BASE, change, engine, set_plan
from support.sound import study

S = 1_000_000_000
PLAN_OF_FOUR = dataclasses.replace(
    study().plan, blocks=Blocks(least=3, most=4, target_half_width=0.02, most_reruns=2)
)


def rows(
    block: int, *, contended: bool = False, replaces: int | None = None, warmup: bool = False
) -> TrialRow:
    return TrialRow(
        block=block,
        replaces=replaces,
        launch=0,
        cell="c",
        order=0,
        warmup=warmup,
        started_at="2026-11-30T00:00:00+00:00",
        started_ns=0,
        wall_ns=S,
        load_before=None,
        load_after=None,
        involuntary_switches=None,
        steal_ns=0,
        cpu_ns=S,
        other_cpu_ns=S if contended else 0,
        peak_memory_bytes=None,
    )


def following(*trials: TrialRow, narrow: bool = False) -> tuple[int, int | None] | None:
    chosen = next_block(PLAN_OF_FOUR, trials, narrow_enough=narrow)
    return None if chosen is None else (chosen.number, chosen.replaces)


def test_the_least_blocks_always_run() -> None:
    assert following() == (0, None)
    assert following(rows(0), narrow=True) == (1, None)
    assert following(rows(0), rows(1), narrow=True) == (2, None)


def test_further_blocks_run_until_the_intervals_are_narrow_or_there_are_the_most() -> None:
    three = (rows(0), rows(1), rows(2))
    assert following(*three, narrow=True) is None
    assert following(*three) == (3, None)
    assert following(*three, rows(3)) is None


def test_a_contended_block_is_run_again_after_the_least() -> None:
    assert following(rows(0, contended=True), rows(1)) == (2, None)
    assert following(rows(0, contended=True), rows(1), rows(2), narrow=True) == (3, 0)


def test_a_block_that_was_run_again_counts_no_more() -> None:
    trials = (rows(0, contended=True), rows(1), rows(2), rows(3, replaces=0))
    assert following(*trials, narrow=True) is None
    assert following(*trials) == (4, None)


def test_a_rerun_that_is_contended_is_run_again_itself_within_the_limit() -> None:
    trials = (
        rows(0, contended=True),
        rows(1),
        rows(2),
        rows(3, replaces=0, contended=True),
    )
    assert following(*trials, narrow=True) == (4, 3)
    exhausted = (*trials, rows(4, replaces=3, contended=True))
    assert following(*exhausted, narrow=True) is None


def test_a_contended_warm_up_disturbs_no_block() -> None:
    assert contended_by([rows(0, contended=True, warmup=True), rows(0)], 0) is None
    assert "c: other processes" in str(contended_by([rows(0, contended=True)], 0))


def test_the_least_number_is_a_next_block() -> None:
    first = NextBlock(number=0, replaces=None, ordinal=1, left=4)
    assert next_block(PLAN_OF_FOUR, (), narrow_enough=True) == first


@pytest.mark.parametrize(
    ("trials", "ordinal", "left"),
    [
        ((rows(0), rows(1)), 3, 2),
        ((rows(0), rows(1, contended=True), rows(2)), 2, 2),
        ((rows(0), rows(1, contended=True), rows(2), rows(3, replaces=1)), 4, 1),
        ((rows(0), rows(1), rows(2, contended=True), rows(3, replaces=2, contended=True)), 3, 2),
    ],
)
def test_people_count_fresh_blocks_and_a_block_run_again_keeps_its_number(
    trials: tuple[TrialRow, ...], ordinal: int, left: int
) -> None:
    chosen = next_block(PLAN_OF_FOUR, trials, narrow_enough=False)
    assert chosen is not None
    assert (chosen.ordinal, chosen.left) == (ordinal, left)


def test_the_widest_headline_interval_decides(tmp_path: Path) -> None:
    results = read(study().write(tmp_path / "run"))
    width = headline_half_width(Evidence.of(results).pairs)
    assert width is not None
    assert 0 < width < 0.2
    alone = dataclasses.replace(
        results, trials=tuple(trial for trial in results.trials if trial.block == 0)
    )
    assert headline_half_width(Evidence.of(alone).pairs) is None


@pytest.mark.parametrize("spoilt", [BASE, engine(4)])
@pytest.mark.parametrize(
    "values",
    [{"finished_ns": None}, {"output_sha256": token_digest(()), "output_tokens": 0}],
)
def test_a_block_without_a_ratio_is_never_narrow(
    tmp_path: Path, spoilt: str, values: dict[str, object]
) -> None:
    broken = study()
    for index, block in enumerate(broken.blocks):
        broken.blocks[index] = dataclasses.replace(block, outputs=(*block.outputs, ()))
    change(broken, "requests", cell=spoilt, blocks=[2], **values)
    results = read(broken.write(tmp_path / "run"))
    assert headline_half_width(Evidence.of(results).pairs) is None


def test_an_unfinished_sweep_of_the_same_plan_is_found_on_any_day_and_code(tmp_path: Path) -> None:
    wanted = study(run_id="today", blocks=1).plan
    assert unfinished(tmp_path / "nowhere", wanted) is None

    def lay(name: str, *, finish: bool = False, **values: object) -> Path:
        made = set_plan(study(run_id=name, blocks=1), **values)
        return made.write(tmp_path / name, finish=finish)

    lay("finished", finish=True)
    lay("of-more-blocks", blocks=dataclasses.replace(wanted.blocks, least=2, most=2))
    lay(".half-made.new")
    (tmp_path / "notes.txt").write_text("mine")
    (lay("damaged") / PLAN).write_text("{")
    assert unfinished(tmp_path, wanted) is None
    younger = "2026-01-01T00:00:01+00:00"
    other = lay("other-code", revision="f" * 40, dirty=True, created_at=younger)
    assert unfinished(tmp_path, wanted) == other
    same = lay("yesterday")
    assert unfinished(tmp_path, wanted) == same
    assert unfinished(tmp_path, dataclasses.replace(wanted, seed=45)) is None


def test_a_plan_that_is_only_younger_is_the_same() -> None:
    plan = study().plan
    later = dataclasses.replace(plan, created_at="2030-01-01T00:00:00+00:00")
    assert list(plan_differences(plan, later)) == []


def test_every_difference_of_a_plan_is_named() -> None:
    plan = study().plan
    other = dataclasses.replace(plan, seed=plan.seed + 1, revision="other", dirty=True)
    found = "\n".join(plan_differences(plan, other))
    assert f"seed: {plan.seed}, now {plan.seed + 1}" in found
    assert "revision" in found
    assert "dirty" in found


def test_another_machine_another_code_or_model_is_a_difference(tmp_path: Path) -> None:
    known = study()
    facts = (
        Fact(name="sources", value="abc"),
        Fact(name="threads", value=2),
        Fact(name="kernel", value="Linux 1"),
    )
    manifest = stored(dataclasses.replace(known, facts=facts).write(tmp_path / "run"))[1]
    assert list(machine_differences(manifest, manifest.machine, facts)) == []
    now = (
        Fact(name="sources", value="def"),
        Fact(name="threads", value=4),
        Fact(name="kernel", value="Linux 2"),
    )
    assert list(machine_differences(manifest, "elsewhere", now)) == [
        f"machine: {manifest.machine}, now elsewhere",
        "sources: abc, now def",
        "threads: 2, now 4",
    ]


def test_a_damaged_folder_is_told_apart_from_another_plan(tmp_path: Path) -> None:
    folder = study().write(tmp_path / "run")
    (folder / PLAN).write_text("{", "utf-8")
    with pytest.raises(PlanError, match="is damaged"):
        stored(folder)
    (folder / PLAN).unlink()
    with pytest.raises(PlanError, match="cannot be read"):
        stored(folder)


def test_one_sweep_at_a_time_fills_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{}")
    with (
        exclusive(path),
        pytest.raises(PlanError, match="another sweep is running"),
        exclusive(path),
    ):
        pass
    with exclusive(path):
        pass


def test_ctrl_c_waits_until_the_files_agree() -> None:
    written = []

    def write() -> None:
        with no_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            written.append("a block")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert written == ["a block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
