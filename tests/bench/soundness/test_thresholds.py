"""Where the documented thresholds lie: just inside is accepted, just outside refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nanoserve_bench.soundness import SoundCell, SoundComparison, Verdict, judge_path
from nanoserve_bench.soundness.rules.run_ceiling import LEAST_BUFFER, MARGIN, MOST_SPREAD
from nanoserve_bench.soundness.rules.stat_contention import LEAST_CPU_SHARE
from nanoserve_bench.soundness.rules.stat_ledger import MOST_EMPTY_STARTS
from support.mutants.base import ledger
from support.rebuild import AGAIN, BASE, change, engine, replace, rerun, rows_of
from support.sound import MS, Study, study


def codes(made: Study, path: Path) -> set[str]:
    return {finding.rule for finding in verdict(made, path).findings}


def verdict(made: Study, path: Path) -> Verdict:
    return judge_path(made.write(path / "run"))


@pytest.mark.parametrize(
    ("wall", "refused"),
    [
        (lambda inside: (inside + 49 * MS) / 0.98, False),
        (lambda inside: (inside + 51 * MS) / 0.98, True),
        (lambda inside: inside, False),
        (lambda inside: inside - 1, True),
    ],
)
def test_the_parents_wall_may_exceed_the_requests_by_50_ms_and_2_percent(
    wall: Callable[[int], float], refused: bool, tmp_path: Path
) -> None:
    made = study()
    last = max(made.blocks[0].trials, key=lambda trial: trial.order)  # nothing comes after it
    rows = rows_of(made.blocks[0], "requests", last)
    inside = max(r.finished_ns for r in rows) - min(r.arrival_ns for r in rows)
    change(made, "trials", cell=last.cell, blocks=[0], wall_ns=round(wall(inside)))
    assert codes(made, tmp_path) == ({"RUN014"} if refused else set())


def test_the_wall_of_a_warm_up_is_held_too(tmp_path: Path) -> None:
    made = study()
    warm = next(trial for trial in made.blocks[0].trials if trial.warmup)
    assert made.edit(
        "trials",
        lambda row: replace(row, wall_ns=row.wall_ns // 2),
        where=lambda row: row.warmup and row.cell == warm.cell,
        blocks=[0],
    )
    assert "RUN014" in codes(made, tmp_path)


@pytest.mark.parametrize(("times", "refused"), [(0.99, False), (1.01, True)])
def test_a_run_may_read_up_to_the_margin_times_the_highest_ceiling(
    times: float, refused: bool, tmp_path: Path
) -> None:
    made = study(spread=0.002)
    highest = max(row.read_bytes_per_s for block in made.blocks for row in block.ceilings)
    step_s = 37.0e-3
    enough = highest * float(MARGIN) * step_s * times
    for index, block in enumerate(made.blocks):
        rows = tuple(replace(row, buffer_bytes=10**10) for row in block.ceilings)
        systems = tuple(
            replace(row, weight_bytes_per_step=round(enough)) if row.arm == "nanoserve" else row
            for row in block.systems
        )
        made.blocks[index] = replace(block, ceilings=rows, systems=systems)
    found = [
        f for f in verdict(made, tmp_path).findings if f.rule == "RUN018" and f.cell == engine(1)
    ]
    assert bool(found) == refused


@pytest.mark.parametrize(
    ("column", "value", "refused"),
    [
        ("read_bytes_per_s", 0.99 * MOST_SPREAD, False),
        ("read_bytes_per_s", 1.05 * MOST_SPREAD, True),
        ("buffer_bytes", 1.01 * LEAST_BUFFER, False),
        ("buffer_bytes", 0.99 * LEAST_BUFFER, True),
    ],
)
def test_what_a_ceiling_must_be(column: str, value: float, refused: bool, tmp_path: Path) -> None:
    made = study()
    block = made.blocks[3]
    usual = sorted(b.ceilings[0].read_bytes_per_s for b in made.blocks)[4]
    whole = usual if column == "read_bytes_per_s" else 538_000_000
    new = value * whole if column == "read_bytes_per_s" else round(value * whole)
    made.blocks[3] = replace(block, ceilings=(replace(block.ceilings[0], **{column: new}),))
    assert codes(made, tmp_path) == ({"RUN018"} if refused else set())


@pytest.mark.parametrize(
    ("column", "share", "refused"),
    [
        ("cpu_ns", LEAST_CPU_SHARE + 0.01, False),
        ("cpu_ns", LEAST_CPU_SHARE - 0.01, True),
        ("other_cpu_ns", 0.09, False),
        ("other_cpu_ns", 0.11, True),
        ("steal_ns", 0.04, False),
        ("steal_ns", 0.06, True),
    ],
)
def test_how_much_may_disturb_a_trial(
    column: str, share: float, refused: bool, tmp_path: Path
) -> None:
    made = change(study(), "trials", cell=BASE, **{column: lambda row: round(row.wall_ns * share)})
    assert codes(made, tmp_path) == ({"STAT004"} if refused else set())


@pytest.mark.parametrize(
    ("column", "value", "refused"),
    [("cpu_ns", None, False), ("other_cpu_ns", None, False), ("steal_ns", -1, True),
     ("involuntary_switches", -1, True), ("involuntary_switches", 0, False),
     ("cpu_ns", -1, True)],
)  # fmt: skip
def test_one_reading_is_enough_and_a_negative_one_is_none(
    column: str, value: int | None, refused: bool, tmp_path: Path
) -> None:
    made = change(study(), "trials", cell=BASE, **{column: value})
    assert codes(made, tmp_path) == ({"STAT004"} if refused else set())


def test_a_card_may_leave_the_cpu_idle(tmp_path: Path) -> None:
    made = change(study(device="cuda:0"), "trials", cpu_ns=lambda row: row.wall_ns // 10)
    assert codes(made, tmp_path) == set()


@pytest.mark.parametrize(
    ("empty", "refused"), [(MOST_EMPTY_STARTS, False), (MOST_EMPTY_STARTS + 1, True)]
)
def test_a_few_starts_may_end_before_a_block_is_done(
    empty: int, refused: bool, tmp_path: Path
) -> None:
    made = ledger(*[{}] * (empty + 1))
    assert codes(made, tmp_path) == ({"STAT006"} if refused else set())


def test_a_last_start_may_find_everything_measured(tmp_path: Path) -> None:
    assert codes(ledger({}, {"first_block": 8}), tmp_path) == set()


def test_a_last_start_beyond_the_end_is_refused(tmp_path: Path) -> None:
    assert codes(ledger({}, {"first_block": 9}), tmp_path) == {"STAT006"}


def test_a_first_start_in_the_middle_is_refused(tmp_path: Path) -> None:
    assert codes(ledger({"first_block": 1}), tmp_path) == {"STAT006"}


@pytest.mark.parametrize(("blocks", "refused"), [(4, True), (5, False)])
def test_a_ratio_needs_five_blocks_and_a_cell_what_was_promised(
    blocks: int, refused: bool, tmp_path: Path
) -> None:
    found = verdict(study(blocks=blocks), tmp_path)
    assert {f.rule for f in found.findings} == ({"STAT001"} if refused else set())
    assert all(hasattr(cell, "throughput") for cell in found.cells.values())
    assert all(hasattr(pair, "speedup") != refused for pair in found.comparisons)


def test_one_block_has_no_interval_and_so_no_cell(tmp_path: Path) -> None:
    found = verdict(study(blocks=1), tmp_path)
    assert not any(hasattr(cell, "throughput") for cell in found.cells.values())


@pytest.mark.parametrize(("factor", "refused"), [(1.028, False), (1.035, True)])
def test_an_a_a_may_differ_by_the_equivalence_margin(
    factor: float, refused: bool, tmp_path: Path
) -> None:
    made = rerun(study(), [AGAIN], step_ms=lambda _trial, _rows: 62.0 * factor)
    assert codes(made, tmp_path) == ({"STAT005"} if refused else set())


@pytest.mark.parametrize(("factor", "refused"), [(1.04, False), (1.06, True)])
def test_a_first_block_may_be_five_percent_slower(
    factor: float, refused: bool, tmp_path: Path
) -> None:
    made = rerun(
        study(),
        [engine(4)],
        step_ms=lambda trial, rows: (34.0 + 3 * rows) * (factor if trial.block == 0 else 1),
    )
    assert codes(made, tmp_path) == ({"STAT003"} if refused else set())


def test_a_first_block_that_is_faster_is_no_cold_start(tmp_path: Path) -> None:
    made = rerun(
        study(),
        [engine(4)],
        step_ms=lambda trial, rows: (34.0 + 3 * rows) * (0.8 if trial.block == 0 else 1),
    )
    assert codes(made, tmp_path) == set()


def test_an_outlier_is_flagged_and_never_dropped(tmp_path: Path) -> None:
    """A block 30 % slower than the rest keeps its part in the cell and in its ratio."""

    def cell_of(slower: float, name: str) -> tuple[Verdict, SoundCell]:
        made = rerun(
            study(),
            [engine(4)],
            step_ms=lambda trial, rows: (34.0 + 3 * rows) * (slower if trial.block == 5 else 1),
        )
        found = verdict(made, tmp_path / name)
        cell = found.cells[engine(4)]
        assert found.ok
        assert isinstance(cell, SoundCell)
        return found, cell

    _, steady = cell_of(1.0, "steady")
    found, cell = cell_of(1.3, "outlying")
    assert (steady.outliers, cell.outliers) == ((), (5,))
    assert cell.throughput.n == len(cell.runs) == 8
    assert cell.throughput.point == pytest.approx(steady.throughput.point / 1.3 ** (1 / 8))
    (pair,) = (p for p in found.comparisons if p.candidate.id == engine(4))
    assert isinstance(pair, SoundComparison)
    assert 5 in pair.pairs
