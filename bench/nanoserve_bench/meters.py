"""What the machine did during a trial, read from the kernel before and after it.

Read by the worker itself, outside the stamps. Where a system does not tell (anything but Linux for
the figures of the whole machine), the value is None.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from nanoserve_bench.protocol import Reading

_STAT = Path("/proc/stat")
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
MOST_SETTLE_S = 10.0
_LOOK_S = 0.25
_IDLE_SHARE = 0.05
"""Cores that a process which does nothing may use: a tick of the kernel's in a look."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineTimes:
    """CPU time of the whole machine since it started, over all cores."""

    busy_ns: int
    steal_ns: int


def parse_stat(text: str, ticks_per_s: int) -> MachineTimes:
    """From the text of `/proc/stat`: `cpu user nice system idle iowait irq softirq steal ...`."""
    _cpu, user, nice, system, _idle, _iowait, irq, softirq, steal, *_guest = text.split()
    tick_ns = 1_000_000_000 // ticks_per_s
    busy = sum(map(int, (user, nice, system, irq, softirq)))
    return MachineTimes(busy_ns=busy * tick_ns, steal_ns=int(steal) * tick_ns)


def machine_times() -> MachineTimes | None:
    """The counters of this machine; None where there are none."""
    if not _STAT.is_file():
        return None
    return parse_stat(_STAT.read_text("ascii"), os.sysconf("SC_CLK_TCK"))


def involuntary_switches() -> int | None:
    """How often a thread of this process was taken off its core so far."""
    try:
        import resource  # noqa: PLC0415 - the module does not exist on Windows
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def family_of(roots: Iterable[int]) -> tuple[psutil.Process, ...]:
    """Processes and all that descend from them, but for this one itself.

    Looks at every process of the machine, so it is done once, when a system has been loaded.
    """
    found: dict[int, psutil.Process] = {}
    for root in roots:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(root)
            found |= {member.pid: member for member in process.children(recursive=True)}
            found[root] = process
    found.pop(os.getpid(), None)
    return tuple(found.values())


def cpu_ns_of(processes: Iterable[psutil.Process]) -> int:
    """CPU time so far of processes that are still there."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return int(total * 1e9)


def settle(
    processes: Sequence[psutil.Process], *, sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Wait until processes do nothing; False where they still work after `MOST_SETTLE_S`.

    A server may spin for a second after its last request, for the next one, and would disturb
    whoever is measured then.
    """
    before_ns = cpu_ns_of(processes)
    for _ in range(round(MOST_SETTLE_S / _LOOK_S)):
        sleep(_LOOK_S)
        now_ns = cpu_ns_of(processes)
        if now_ns - before_ns <= _IDLE_SHARE * _LOOK_S * 1e9:
            return True
        before_ns = now_ns
    return False


class Meter:
    """Measures from its creation to `read`.

    Args:
        device: Torch device name.
        helpers: Processes whose work is the worker's: its children, or the server that it asks.
            Their memory is not measured, and then the worker's alone would mislead.
    """

    def __init__(self, device: str, helpers: Sequence[psutil.Process] = ()) -> None:
        self._device = device
        self._helpers = helpers
        self._peak_is_fresh = self._reset_peak()
        self._switches = involuntary_switches()
        self._helpers_ns = cpu_ns_of(helpers)
        self._machine = machine_times()
        self._cpu_ns = time.process_time_ns()

    def read(self) -> Reading:
        """The differences since creation, and the highest memory in between."""
        cpu_ns = time.process_time_ns() - self._cpu_ns
        machine, switches = machine_times(), involuntary_switches()
        # The kernel counts other processes in ticks, and one may have ended.
        cpu_ns += max(0, cpu_ns_of(self._helpers) - self._helpers_ns)
        steal_ns = other_cpu_ns = None
        if machine is not None and self._machine is not None:
            steal_ns = machine.steal_ns - self._machine.steal_ns
            # The kernel counts the machine in ticks: less than a tick may come out negative.
            other_cpu_ns = max(0, machine.busy_ns - self._machine.busy_ns - cpu_ns)
        return Reading(
            involuntary_switches=None
            if switches is None or self._switches is None
            else switches - self._switches,
            cpu_ns=cpu_ns,
            steal_ns=steal_ns,
            other_cpu_ns=other_cpu_ns,
            peak_memory_bytes=self._peak() if self._peak_is_fresh and not self._helpers else None,
        )

    def _device_memory(self) -> Any:
        """The accelerator's module of torch where it counts its peak; None elsewhere."""
        kind = self._device.partition(":")[0]
        return getattr(sys.modules.get("torch"), kind, None) if kind in {"cuda", "xpu"} else None

    def _reset_peak(self) -> bool:
        if self._device == "cpu":
            try:
                _CLEAR_REFS.write_text("5", "ascii")
            except OSError:
                return False
            return True
        memory = self._device_memory()
        if memory is None:
            return False
        memory.reset_peak_memory_stats(self._device)
        return True

    def _peak(self) -> int | None:
        if self._device != "cpu":
            return int(self._device_memory().max_memory_allocated(self._device))
        return peak_resident_bytes()


def peak_resident_bytes() -> int | None:
    """Most resident memory of this process since it started, or since a `Meter` was made."""
    if not _STATUS.is_file():
        return None
    for line in _STATUS.read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def load_average() -> float | None:
    """The machine's load over the last minute, in runnable threads."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
