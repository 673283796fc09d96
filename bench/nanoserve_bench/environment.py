"""The machine under the numbers: facts with units, and a fingerprint.

Nothing here names a host, a user or a path. What a machine does not tell is None, and shown as
such. The core imports no torch, so what only torch knows comes from `devices.probe`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from nanoserve_bench.plan import Fact

_LIBRARIES = (
    "nanoserve-bench",
    "nanoserve",
    "torch",
    "triton",
    "transformers",
    "tokenizers",
    "safetensors",
    "accelerate",
    "gguf",
    "numpy",
    "pandas",
    "scipy",
    "psutil",
)
_CPUINFO = Path("/proc/cpuinfo")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_OS_RELEASE = Path("/etc/os-release")
_MACHINE_ID = Path("/etc/machine-id")
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")


def _text(path: Path) -> str | None:
    """The text of a small system file; None where there is none to read."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _cpuinfo(*keys: str) -> str | None:
    for line in (_text(_CPUINFO) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in keys and value.strip():
            return value.strip()
    return None


def cpu_model() -> str:
    """The name of the CPU as the system gives it."""
    name = _cpuinfo("model name", "Model", "Hardware") or platform.processor()
    return " ".join((name or platform.machine() or "unknown CPU").split())


def instruction_sets() -> str | None:
    """The vector instructions that decide which kernels can run."""
    flags = (_cpuinfo("flags", "Features") or "").split()
    return " ".join(name for name in _INSTRUCTIONS if name in flags) or None


def usable_cores() -> int:
    """Physical cores that this process may use: affinity and a container's quota count."""
    logical = os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    if hasattr(os, "sched_getaffinity"):
        # An affinity mask counts logical cores; two of them may be one physical core.
        share = len(os.sched_getaffinity(0)) / logical
        physical = max(1, int(physical * share))
    quota, _, period = (_text(_CPU_QUOTA) or "max").partition(" ")
    if quota.isdigit() and period.isdigit():
        physical = max(1, min(physical, int(quota) // int(period)))
    return physical


def memory_bytes() -> int:
    """Memory of the machine, or of the container where that is less."""
    limit = _text(_MEMORY_LIMIT) or "max"
    total = psutil.virtual_memory().total
    return min(total, int(limit)) if limit.isdigit() else total


def os_name() -> str:
    """Name and version of the operating system."""
    for line in (_text(_OS_RELEASE) or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return f"{platform.system()} {platform.release()}"


def fingerprint(accelerators: Sequence[str]) -> str:
    """A name for this machine that survives a reboot and gives nothing of it away.

    Args:
        accelerators: Names of the devices beside the CPU.
    """
    parts = (
        platform.system(),
        platform.machine(),
        cpu_model(),
        str(psutil.cpu_count(logical=False)),
        str(round(psutil.virtual_memory().total / 2**30)),
        *sorted(accelerators),
        _text(_MACHINE_ID) or "",
    )
    return hashlib.sha256("\n".join(("nanoserve-bench", *parts)).encode()).hexdigest()[:16]


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def facts(*, threads: int) -> tuple[Fact, ...]:
    """What is known of machine and environment without torch.

    Args:
        threads: Compute threads that every worker gets.
    """
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return (
        Fact(name="cpu_model", value=cpu_model()),
        Fact(name="cpu_architecture", value=platform.machine()),
        Fact(name="cpu_instructions", value=instruction_sets()),
        Fact(name="physical_cores", value=psutil.cpu_count(logical=False), unit="cores"),
        Fact(name="logical_cores", value=os.cpu_count(), unit="cores"),
        Fact(name="usable_cores", value=usable_cores(), unit="cores"),
        Fact(name="threads", value=threads, unit="threads"),
        Fact(name="cpu_governor", value=_text(_GOVERNOR)),
        Fact(
            name="cpu_max_frequency",
            value=frequency.max if frequency is not None and frequency.max else None,
            unit="MHz",
        ),
        Fact(name="memory", value=memory_bytes(), unit="bytes"),
        Fact(name="swap", value=psutil.swap_memory().total, unit="bytes"),
        Fact(name="operating_system", value=os_name()),
        Fact(name="kernel", value=f"{platform.system()} {platform.release()}"),
        Fact(name="python", value=platform.python_version()),
        Fact(name="python_implementation", value=sys.implementation.name),
        *(Fact(name=f"version_{name}", value=_version(name)) for name in _LIBRARIES),
    )
