"""The command line: what it prints, and with which code it ends."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from nanoserve_bench import cli, devices
from nanoserve_bench.commands import preparing
from nanoserve_bench.commands import sweep as command
from nanoserve_bench.commands.choices import SweepOptions
from nanoserve_bench.commands.preparing import Prepared
from nanoserve_bench.errors import PlanError, WorkerError
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import Plan
from nanoserve_bench.run_names import free
from nanoserve_bench.soundness.rules.stat_ledger import MOST_EMPTY_STARTS
from nanoserve_bench.writer import ResultsWriter
from support.sound import study

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: exit code and everything printed."""

    def start(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["nanoserve-bench", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, captured.out + captured.err

    return start


def test_the_commands_of_the_design(run: Run) -> None:
    code, text = run("--help")
    assert code == 0
    for name in ("sweep", "check", "rules", "explain", "systems", "calibrate"):
        assert f"\n  {name} " in text


def test_the_help_of_a_sweep_tells_a_newcomer_what_it_does(run: Run) -> None:
    code, text = run("sweep", "--help")
    assert code == 0
    for words in ("runs blocks", "--quick", "--dry-run", "Examples", "Exit codes", "goes on"):
        assert words in text
    assert f"accepts {MOST_EMPTY_STARTS} starts that ended without one" in " ".join(text.split())


def test_systems_are_listed_with_the_reason_why_one_cannot_run(
    run: Run, fake_systems: None
) -> None:
    code, text = run("systems")
    assert code == 0
    for name in ("hf-generate", "hf-generate-untimed", "nanoserve", "fake"):
        assert f"\n{name} " in text
    assert "cannot run: ModuleNotFoundError" in text
    assert "no [run] here" in " ".join(text.split())
    assert "Traceback" not in text


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    run: Run, tiny: ModelFolder, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANOSERVE_CACHE", str(cache))
    code, text = run(
        *("sweep", "--dry-run", "--model", tiny.name, "--full", "--blocks", "3"),
        *("--device", "cpu", "--out", str(tmp_path / "results")),
    )
    assert code == 0
    assert "hf-generate-again/cpu/float32/1/day44x32" in text
    assert "nanoserve/cpu/float32/32/day44x32" in text
    assert "skipped: mps" in text
    assert "3 to 3 blocks" in text
    assert "-cpu-full-" in text
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("sweep", "--no-such-option"), 2, "No such option"),
        (("sweep", "--blocks", "0"), 2, "0 is not in the range"),
        (("sweep", "--workload", "day45"), 2, "'day45' is not one of"),
        (("sweep", "--full", "--workload", "day44"), 2, "give it or --workload, not both"),
        (("sweep", "--quick", "--blocks", "8"), 2, "give it or --blocks, not both"),
        (("sweep", "--run-id", "../elsewhere"), 2, "cannot name a file or a folder"),
        (("sweep", "--run-id", ""), 2, "cannot name a file or a folder"),
        (("perf", "--run-id", ".hidden"), 2, "cannot name a file or a folder"),
        (("perf", "--profile", "--dry-run", "--quick"), 2, "--quick, --dry-run is of the table"),
        (("perf", "--variant", "compiled kernels"), 2, "give --profile with it"),
        (("no-such-command",), 2, "No such command"),
    ],
)
def test_a_misuse_ends_with_two_and_a_message(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ended, text = run(*arguments)
    assert ended == code
    assert message in text


@pytest.mark.parametrize("name", ["sweep", "perf", "soak"])
def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(
    run: Run, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    code, text = run(name, "--model", "no-such-model", "--out", str(tmp_path / "file" / "results"))
    assert code == 2
    assert "nothing can be written into" in text
    assert "(Not a directory): choose another --out" in text


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PlanError("not like this"), 2, "not like this"),
        (WorkerError("it died"), 3, "it died\nWhat is complete is kept"),
        (OSError(28, "No space left on device"), 3, "No space left on device\nWhat is complete"),
        (KeyboardInterrupt(), 130, "goes on where it stopped"),
    ],
)
def test_each_bad_end_has_its_code_and_no_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(command, "prepare", fail)
    ended, text = run("sweep", "--dry-run")
    assert ended == code
    assert message in text
    assert "Traceback" not in text


def test_a_start_is_told_the_command_that_it_was_started_by(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = []

    def start(prepared: object, console: Console, *, command: str) -> None:
        told.append(command)
        raise PlanError("not today")

    monkeypatch.setattr(command, "prepare", lambda _: object())
    monkeypatch.setattr(command, "_run", start)
    assert run("sweep", "--quick", "--out", str(tmp_path / "results"))[0] == 2
    assert told == ["nanoserve-bench sweep --quick --out results"]


def test_the_module_is_the_command(command: Callable[..., subprocess.Popen[str]]) -> None:
    process = command("explain", "RUN010")
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "RUN010" in text


def test_a_run_id_that_is_taken_is_not_chosen_again(tmp_path: Path) -> None:
    assert free("stem", tmp_path) == "stem"
    study(blocks=1).write(tmp_path / "stem")
    assert free("stem", tmp_path) == "stem-2"
    study(blocks=1).write(tmp_path / "stem-2", finish=False)
    assert free("stem", tmp_path) == "stem-3"


def test_the_same_command_goes_on_on_another_day_and_not_on_other_code(
    tiny: ModelFolder, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANOSERVE_CACHE", str(cache))
    found = devices.probe()
    monkeypatch.setattr(devices, "probe", lambda: found)

    def prepare(out: Path, *more: str) -> Prepared:
        words = ("--model", tiny.name, "--slots", "1", "--device", "cpu", "--threads", "1")
        given = [*words, "--out", str(out), *more]
        return preparing.prepare(SweepOptions(**command.sweep.make_context("sweep", given).params))

    def interrupt(plan: Plan, out: Path) -> Path:
        folder = out / plan.run_id
        ResultsWriter.create(folder, plan, machine=now.study.machine, facts=now.facts)
        return folder

    now = prepare(tmp_path)
    of_yesterday = dataclasses.replace(
        now.study.plan, run_id="20260101-cpu-day44-0123456", created_at="2026-01-01T00:00:00+00:00"
    )
    folder = interrupt(of_yesterday, tmp_path)
    again = prepare(tmp_path)
    assert again.folder == folder
    assert again.study.plan.run_id == of_yesterday.run_id
    assert prepare(tmp_path, "--run-id", "chosen").folder == tmp_path / "chosen"
    assert prepare(tmp_path, "--seed", "45").folder.name == now.study.plan.run_id

    elsewhere = tmp_path / "elsewhere"
    interrupt(dataclasses.replace(of_yesterday, revision="f" * 40), elsewhere)
    refused = prepare(elsewhere)
    assert refused.folder.name == of_yesterday.run_id
    with pytest.raises(PlanError, match=r"revision: f+, now (.|\n)*choose a --run-id or delete"):
        command._run(refused, Console(file=io.StringIO()), command="")


def test_importing_the_package_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, nanoserve_bench, nanoserve_bench.cli\n"
        "sys.exit(', '.join({'torch', 'transformers', 'nanoserve'} & sys.modules.keys()) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_exported_name_is_there() -> None:
    import nanoserve_bench  # noqa: PLC0415

    for name in nanoserve_bench.__all__:
        assert getattr(nanoserve_bench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nanoserve_bench.nothing
