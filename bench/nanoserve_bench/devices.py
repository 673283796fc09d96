"""Which devices there are: each one is measured, or skipped with its reason."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from nanoserve_bench.errors import PlanError
from nanoserve_bench.launcher import environment_of
from nanoserve_bench.plan import Fact, SkippedDevice

_PROBE_TIMEOUT_S = 300
_DRIVER_QUERY = (
    "index,driver_version,clocks.max.sm,clocks.max.memory,power.limit,temperature.gpu,"
    "ecc.mode.current"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device that was looked for.

    Attributes:
        name: Torch device name.
        hardware: Name of the hardware; None where it cannot be used.
        problem: Why it cannot be used; None where it can.
    """

    name: str
    hardware: str | None
    problem: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What torch found: devices, and facts about its build and the cards."""

    devices: tuple[Device, ...]
    facts: tuple[Fact, ...]

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Hardware beside the CPU."""
        return tuple(
            device.hardware
            for device in self.devices
            if device.name != "cpu" and device.hardware is not None
        )


def probe() -> Probe:
    """Ask torch, in a process of its own, what there is and whether it can multiply.

    Raises:
        PlanError: torch is not installed or does not start.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nanoserve_bench.systems.probe"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_TIMEOUT_S,
            env=environment_of(threads=1),
        )
    except subprocess.TimeoutExpired:
        raise PlanError(f"torch did not start in {_PROBE_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise PlanError(_no_torch(done.stderr))
    found = json.loads(done.stdout.splitlines()[-1])
    return Probe(
        devices=tuple(
            Device(name=name, hardware=hardware, problem=problem)
            for name, hardware, problem in found["devices"]
        ),
        facts=(
            *(Fact(name=name, value=value, unit=unit) for name, value, unit in found["facts"]),
            *driver_facts(),
        ),
    )


def _no_torch(stderr: str) -> str:
    """What to do; and what torch said last, unless it is only not there."""
    last = stderr.strip().rpartition("\n")[2]
    if last == "ModuleNotFoundError: No module named 'torch'":
        return "torch is not installed, and measuring needs it: `pip install nanoserve-bench[run]`"
    return (
        "torch does not start here, and measuring needs it (`pip install nanoserve-bench[run]`): "
        f"{last or 'it said nothing'}"
    )


def driver_facts() -> tuple[Fact, ...]:
    """What the driver of NVIDIA cards says; nothing where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    try:
        done = subprocess.run(  # noqa: S603 - the driver's own tool
            [tool, f"--query-gpu={_DRIVER_QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    facts = []
    for line in done.stdout.splitlines():
        values = [part.strip() for part in line.split(",")]
        if len(values) != len(_DRIVER_QUERY.split(",")):
            continue  # a message of the tool, and no card
        index, driver, sm_clock, memory_clock, power, temperature, ecc = values
        facts += [
            Fact(name=f"cuda_{index}_driver", value=driver),
            Fact(name=f"cuda_{index}_max_sm_clock", value=_number(sm_clock), unit="MHz"),
            Fact(name=f"cuda_{index}_max_memory_clock", value=_number(memory_clock), unit="MHz"),
            Fact(name=f"cuda_{index}_power_limit", value=_number(power), unit="W"),
            Fact(name=f"cuda_{index}_temperature_at_start", value=_number(temperature), unit="C"),
            Fact(name=f"cuda_{index}_ecc", value=None if ecc.startswith("[") else ecc),
        ]
    return tuple(facts)


def _number(text: str) -> float | None:
    """A figure of the driver's; `[N/A]` where the card does not tell."""
    try:
        return float(text)
    except ValueError:
        return None


def choose(
    devices: Sequence[Device], wanted: Sequence[str]
) -> tuple[tuple[str, ...], tuple[SkippedDevice, ...]]:
    """Split devices into those to measure and those to skip, each of these with its reason.

    Args:
        devices: What was found.
        wanted: Names that were asked for; empty asks for every device that works.

    Raises:
        PlanError: A device that was asked for is not there or cannot be used.
    """
    named = {device.name: device for device in devices}
    for name in wanted:
        if name not in named:
            raise PlanError(f"no device is called {name!r}; there are: {', '.join(named)}")
        if named[name].problem is not None:
            raise PlanError(f"device {name} cannot be measured: {named[name].problem}")
    measured = tuple(
        device.name
        for device in devices
        if device.problem is None and (not wanted or device.name in wanted)
    )
    skipped = tuple(
        SkippedDevice(device=device.name, reason=device.problem or "not chosen for this sweep")
        for device in devices
        if device.name not in measured
    )
    return measured, skipped
