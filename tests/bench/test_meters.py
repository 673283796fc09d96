"""What the machine did, read from the kernel."""

from __future__ import annotations

import itertools
import sys
import time

import pytest

from nanoserve_bench import meters
from nanoserve_bench.meters import MachineTimes, Meter, parse_stat

STAT = "cpu  100 5 30 900 7 2 3 11 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_busy_time_is_neither_idle_nor_waiting_nor_stolen() -> None:
    assert parse_stat(STAT, 100) == MachineTimes(
        busy_ns=(100 + 5 + 30 + 2 + 3) * 10_000_000, steal_ns=11 * 10_000_000
    )


def test_a_meter_reads_its_own_cpu_time() -> None:
    meter = Meter("cpu")
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    reading = meter.read()
    assert reading.cpu_ns is not None
    assert 50_000_000 <= reading.cpu_ns < 500_000_000


@pytest.mark.parametrize(
    ("used_ms", "looks", "settled"),
    [([0], 1, True), ([250, 250, 13, 12, 250], 4, True), ([20] * 100, 40, False)],
)
def test_processes_are_waited_for_until_they_do_nothing(
    used_ms: list[int], looks: int, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had spun for most of a second, or never stop."""
    used, slept = itertools.accumulate([0, *used_ms]), list[float]()
    monkeypatch.setattr(meters, "cpu_ns_of", lambda _: next(used) * 1_000_000)
    assert meters.settle((), sleep=slept.append) is settled
    assert slept == [0.25] * looks


@linux
def test_a_meter_reads_the_machine() -> None:
    meter = Meter("cpu")
    block = bytearray(64 * 2**20)
    del block
    reading = meter.read()
    assert reading.involuntary_switches is not None
    assert reading.other_cpu_ns is not None
    assert reading.steal_ns is not None
    assert reading.peak_memory_bytes is not None
    assert reading.peak_memory_bytes > 64 * 2**20


@linux
def test_the_peak_of_an_earlier_trial_does_not_count() -> None:
    block = bytearray(256 * 2**20)
    before = Meter("cpu").read().peak_memory_bytes
    del block
    after = Meter("cpu").read().peak_memory_bytes
    assert before is not None
    assert after is not None
    assert before - after > 200 * 2**20


def test_where_nothing_is_told_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "machine_times", lambda: None)
    monkeypatch.setattr(meters, "involuntary_switches", lambda: None)
    reading = Meter("mps").read()
    assert reading.involuntary_switches is None
    assert reading.steal_ns is None
    assert reading.other_cpu_ns is None
    assert reading.peak_memory_bytes is None
    assert reading.cpu_ns is not None


def test_others_are_what_the_machine_did_without_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter(
        [MachineTimes(busy_ns=0, steal_ns=1), MachineTimes(busy_ns=3_000_000_000, steal_ns=5)]
    )
    monkeypatch.setattr(meters, "machine_times", lambda: next(times))
    cpu = iter([1_000_000_000, 3_000_000_000])
    monkeypatch.setattr(meters.time, "process_time_ns", lambda: next(cpu))
    reading = Meter("cpu").read()
    assert (reading.cpu_ns, reading.other_cpu_ns, reading.steal_ns) == (2 * 10**9, 10**9, 4)
