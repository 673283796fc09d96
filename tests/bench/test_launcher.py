"""Worker processes: what they answer, and what becomes of them when they do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nanoserve_bench.errors import WorkerError
from nanoserve_bench.launcher import Worker, environment_of
from nanoserve_bench.protocol import Ceilings, Launch, Trial, TrialResult
from support.fake_systems import answer, install_elsewhere

pytestmark = pytest.mark.usefixtures("fake_systems")
TRIAL = Trial(slots=1, prompts=((1, 2, 3), (4, 5, 6)), max_tokens=(4, 4))
MakeLaunch = Callable[..., Launch]


@contextmanager
def started(launch: Launch) -> Iterator[Worker]:
    worker = Worker(launch, arm="an-arm")
    try:
        worker.describe()
        yield worker
    finally:
        worker.kill()


def test_a_worker_answers_trial_after_trial(make_launch: MakeLaunch) -> None:
    with started(make_launch("fake")) as worker:
        for _ in range(2):
            result = worker.ask(TRIAL, TrialResult, timeout_s=60)
            assert [r.output_ids for r in result.records] == [answer(p, 4) for p in TRIAL.prompts]
            assert result.reading.cpu_ns is not None
            assert result.reading.cpu_ns > 0
        worker.close()
    assert worker._process.returncode == 0


def test_what_libraries_print_does_not_reach_the_protocol(make_launch: MakeLaunch) -> None:
    with started(make_launch("fake-chatty")) as worker:
        for _ in range(2):
            assert len(worker.ask(TRIAL, TrialResult, timeout_s=60).records) == 2


def test_threads_stand_in_the_environment_of_the_worker(make_launch: MakeLaunch) -> None:
    worker = Worker(make_launch("fake"), arm="an-arm")
    try:
        assert worker.describe().threads == 1
    finally:
        worker.kill()
    variables = environment_of(threads=3)
    assert {variables[n] for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")} == {"3"}


@pytest.mark.skipif(os.name == "nt", reason="the bridge to another interpreter is a symlink")
def test_a_worker_runs_in_the_interpreter_that_its_system_names(
    make_launch: MakeLaunch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This package comes along, and none of the libraries that are installed here."""
    home = tmp_path / "elsewhere"
    monkeypatch.setenv("FAKE_INTERPRETER", install_elsewhere(home))
    worker = Worker(make_launch("fake-elsewhere"), arm="an-arm")
    try:
        description = worker.describe()
        assert description.attention == str(home)
        assert description.kernel_path == ""
        assert len(worker.ask(TRIAL, TrialResult, timeout_s=60).records) == 2
        worker.close()
    finally:
        worker.kill()


def test_an_interpreter_that_is_not_there_is_a_failure_of_the_arm(
    make_launch: MakeLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_INTERPRETER", "/no/such/python")
    with pytest.raises(WorkerError, match=r"an-arm.*/no/such/python"):
        Worker(make_launch("fake-elsewhere"), arm="an-arm")


def test_a_death_is_told_with_the_last_words(make_launch: MakeLaunch) -> None:
    with started(make_launch("fake-dying")) as worker, pytest.raises(WorkerError) as error:
        worker.ask(TRIAL, TrialResult, timeout_s=60)
    assert "an-arm (cpu) ended with exit code 7 during Trial" in str(error.value)
    assert "the last words of a dying system" in str(error.value)


def test_a_hang_is_ended(make_launch: MakeLaunch) -> None:
    with started(make_launch("fake-hanging")) as worker:
        with pytest.raises(WorkerError, match=r"did not answer Trial in 0\.5 s"):
            worker.ask(TRIAL, TrialResult, timeout_s=0.5)
        assert worker._process.poll() is not None


def test_rubbish_in_the_protocol_is_found_out(make_launch: MakeLaunch) -> None:
    with (
        started(make_launch("fake-rubbish")) as worker,
        pytest.raises(WorkerError, match=r"not a message.*rubbish"),
    ):
        worker.ask(TRIAL, TrialResult, timeout_s=60)


def test_a_system_that_raises_is_told_with_its_traceback(make_launch: MakeLaunch) -> None:
    with (
        started(make_launch("fake-raising")) as worker,
        pytest.raises(WorkerError, match=r"could not carry out Trial(.|\n)*out of something"),
    ):
        worker.ask(TRIAL, TrialResult, timeout_s=60)


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        ("fake-unwritable", r"its Description cannot be written.*complex"),
        ("fake-mistyped", r"not a message \(Description\.threads: '2' is not <class 'int'>"),
    ],
)
def test_a_description_of_the_wrong_form_is_told_by_name(
    make_launch: MakeLaunch, system: str, reason: str
) -> None:
    worker = Worker(make_launch(system), arm="an-arm")
    try:
        with pytest.raises(WorkerError, match=reason):
            worker.describe()
    finally:
        worker.kill()


def test_the_work_of_children_is_the_workers_own(make_launch: MakeLaunch) -> None:
    with started(make_launch("fake-parental")) as worker:
        reading = worker.ask(TRIAL, TrialResult, timeout_s=60).reading
        assert reading.cpu_ns is not None
        assert reading.cpu_ns >= 200_000_000  # the kernel counts in ticks
        assert reading.peak_memory_bytes is None


def test_an_answer_of_another_kind_is_found_out(make_launch: MakeLaunch) -> None:
    with (
        started(make_launch("fake")) as worker,
        pytest.raises(WorkerError, match="answered Trial with TrialResult"),
    ):
        worker.ask(TRIAL, Ceilings, timeout_s=60)


def test_a_system_that_cannot_be_loaded_says_why(make_launch: MakeLaunch) -> None:
    worker = Worker(make_launch("fake-missing"), arm="an-arm")
    try:
        with pytest.raises(WorkerError, match="no_such_module"):
            worker.describe()
    finally:
        worker.kill()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_a_worker_does_not_outlive_a_sweep_that_was_killed(tmp_path: Path) -> None:
    """Even in the middle of a trial that would take ten minutes."""
    program = tmp_path / "sweep.py"
    program.write_text(
        "from nanoserve_bench.launcher import Worker\n"
        "from nanoserve_bench.protocol import Launch, Trial, TrialResult\n"
        "worker = Worker(Launch(system='fake-hanging', machine='m', device='cpu', "
        "dtype='float32', threads=1, model_name='', model_path='', most_slots=1, longest=1), "
        "arm='a')\n"
        "worker.describe()\n"
        "print(worker._process.pid, flush=True)\n"
        "worker.ask(Trial(slots=1, prompts=((1,),), max_tokens=(1,)), TrialResult, timeout_s=600)\n"
    )
    sweep = subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert sweep.stdout is not None
    pid = int(sweep.stdout.readline())
    time.sleep(0.2)
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.wait()
    sweep.stdout.close()
    for _ in range(100):
        if not _alive(pid):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the worker went on")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    # An orphan that nobody reaps stays as a zombie: it runs no more.
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
