"""What a sweep does next."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.plan import Blocks
from nanoserve_bench.results import read
from nanoserve_bench.schema import TrialRow, token_digest
from nanoserve_bench.soundness.evidence import Evidence
from nanoserve_bench.soundness.rules.stat_blocks import headline_half_width
from nanoserve_bench.sweep import NextBlock, contended_by, next_block
from support.rebuild import BASE, change, engine
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
