"""`calibrate`: what it prints, which folders it takes, and with which code it ends."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nanoserve_bench.calibration import document, noise, simulate
from nanoserve_bench.calibration.records import Calibration
from nanoserve_bench.commands import calibrate as command
from nanoserve_bench.soundness import judge_path
from nanoserve_bench.soundness.verdict import Verdict
from support import sound


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a study of eight A/A pairs, and a smaller one beside it."""
    home = tmp_path_factory.mktemp("checkout")
    for run_id, blocks in (("20260101-cpu-day44-0123456", 8), ("20260102-cpu-day44-0123456", 2)):
        made = sound.study(run_id=run_id, blocks=blocks)
        made.write(home / "bench" / "results" / run_id)
    return home


@pytest.fixture(scope="module")
def record(home: Path) -> Calibration:
    verdict = judge_path(home / "bench" / "results" / "20260101-cpu-day44-0123456")
    order = simulate.Order(name="default", seed=44, studies=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "LEAST_PAIRS", 8)
        return simulate.calibrate(order, [verdict], tell=lambda _: None)


@pytest.fixture
def judged(home: Path, record: Calibration, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Work in the checkout, and let ten studies stand for a thousand; what was judged."""
    seen: list[str | None] = []

    def few(order: simulate.Order, verdicts: list[Verdict], *, tell: simulate.Told) -> Calibration:
        assert order.studies == 2000
        seen.extend(verdict.run_id for verdict in verdicts)
        tell("simulated")
        return dataclasses.replace(record, name=order.name, seed=order.seed)

    monkeypatch.chdir(home)
    monkeypatch.setattr(command, "simulate_all", few)
    return seen


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.calibrate, arguments)


def test_all_folders_then_those_of_the_record(
    judged: list[str | None], record: Calibration, tmp_path: Path
) -> None:
    first = run("--out", str(tmp_path))
    assert judged == ["20260101-cpu-day44-0123456", "20260102-cpu-day44-0123456"]
    assert "default.json: written" in first.output
    judged.clear()
    again = run("--out", str(tmp_path))
    assert judged == [item.run_id for item in record.inputs] == ["20260101-cpu-day44-0123456"]
    assert "default.json: reproduced to the byte" in again.output
    assert document.read(tmp_path / "default.json") == (record, ())


def test_a_record_that_cannot_be_read_is_not_reproduced(
    judged: list[str | None], tmp_path: Path
) -> None:
    (tmp_path / "default.json").write_text("{}")
    found = run("--out", str(tmp_path))
    assert isinstance(found.exception, simulate.CalibrationError)
    assert "cannot be reproduced" in str(found.exception)
    assert judged == []


@pytest.mark.parametrize(
    ("pairs", "held", "code", "words"),
    [
        (8, 10, command.EXIT_MISSED, "no source has enough pairs for them"),
        (100, 9, command.EXIT_MISSED, "missed by hf-generate"),
    ],
)
def test_targets_that_are_not_met_end_with_1(
    judged: list[str | None],
    record: Calibration,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pairs: int,
    held: int,
    code: int,
    words: str,
) -> None:
    facts = dataclasses.replace(record.sources[0], pairs=pairs)
    rows = tuple(dataclasses.replace(row, held=held) for row in record.outcomes)
    changed = dataclasses.replace(record, sources=(facts,), outcomes=rows)
    monkeypatch.setattr(command, "simulate_all", lambda *_, **__: changed)
    found = run("--out", str(tmp_path))
    assert found.exit_code == code
    assert words in " ".join(found.output.split())


def test_targets_that_are_met_end_with_0_and_every_column_is_whole(
    judged: list[str | None],
    record: Calibration,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    facts = dataclasses.replace(record.sources[0], pairs=100)
    row = dataclasses.replace(
        record.outcomes[0], studies=1000, refused=0, faster=10, slower=10, no_difference=0,
        undecided=980, held=951, arms="shared", target_half_width=0.02, most=24, run_length=8,
    )  # fmt: skip
    few = dataclasses.replace(facts, name="few", pairs=99)
    other = dataclasses.replace(row, source="few", held=900)
    changed = dataclasses.replace(record, sources=(facts, few), outcomes=(row, other))
    monkeypatch.setattr(command, "simulate_all", lambda *_, **__: changed)
    found = run("--out", str(tmp_path))
    assert found.exit_code == command.EXIT_MET
    assert "not put to 1 more kinds, whose coverage goes down to 90.0%" in found.output
    assert "met by all 1 kinds of study" in found.output
    assert "95.1% ±1.4" in found.output
    assert "\N{HORIZONTAL ELLIPSIS}" not in found.output


@pytest.mark.parametrize("name", ["../x", "a/b", "=x"])
def test_a_name_that_names_no_file_is_refused(name: str) -> None:
    found = run("--name", name)
    assert found.exit_code == 2
    assert "cannot name a file" in found.output
