"""Devices: each measured, or skipped with its reason."""

from __future__ import annotations

import subprocess

import pytest

from nanoserve_bench import devices
from nanoserve_bench.devices import Device, Probe, choose, driver_facts, probe
from nanoserve_bench.errors import PlanError

FOUND = (
    Device(name="cpu", hardware="A CPU", problem=None),
    Device(name="cuda:0", hardware="A card", problem=None),
    Device(name="mps", hardware=None, problem="this build of torch does not support it"),
)


def test_every_device_that_works_is_measured_and_the_others_say_why() -> None:
    measured, skipped = choose(FOUND, ())
    assert measured == ("cpu", "cuda:0")
    assert [(s.device, s.reason) for s in skipped] == [
        ("mps", "this build of torch does not support it")
    ]


def test_a_device_that_is_not_chosen_says_so() -> None:
    measured, skipped = choose(FOUND, ("cpu",))
    assert measured == ("cpu",)
    assert ("cuda:0", "not chosen for this sweep") in [(s.device, s.reason) for s in skipped]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("mps", "cannot be measured: this build"), ("tpu", "no device is called 'tpu'.*cpu")],
)
def test_a_device_that_cannot_be_measured_is_refused(wanted: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        choose(FOUND, (wanted,))


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (
            "ModuleNotFoundError: No module named 'torch'",
            r"^torch is not installed, and measuring needs it: `pip install [^\n]*`$",
        ),
        (
            "OSError: libc10.so is damaged",
            r"^torch does not start here, [^\n]*libc10.so is damaged$",
        ),
    ],
)
def test_without_torch_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, last: str, words: str
) -> None:
    """Not a traceback: `sweep`, `perf` and `soak` all ask here first."""
    done = subprocess.CompletedProcess(
        [], 1, stdout="", stderr=f"Traceback:\n  import torch\n{last}\n"
    )
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(PlanError, match=words):
        probe()


def test_the_probe_finds_this_cpu_and_says_what_it_did_not_find() -> None:
    found = probe()
    named = {device.name.partition(":")[0]: device for device in found.devices}
    assert named.keys() == {"cpu", "cuda", "mps", "xpu"}
    assert named["cpu"].problem is None
    assert named["cpu"].hardware
    assert all((d.hardware is None) == (d.problem is not None) for d in found.devices)
    facts = {fact.name: fact.value for fact in found.facts}
    assert str(facts["torch_build"]).startswith("2.")
    assert {"torch_blas", "torch_cpu_capability", "torch_onednn"} <= facts.keys()


def test_accelerators_are_what_there_is_beside_the_cpu() -> None:
    assert Probe(devices=FOUND, facts=()).accelerators == ("A card",)


def test_a_torch_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="No module named 'torch'")
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(PlanError, match=r"pip install nanoserve-bench\[run\](.|\n)*No module"):
        probe()


def test_a_driver_tells_its_version_and_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.shutil, "which", lambda _: "nvidia-smi")
    answer = (
        "0, 580.1, 1980, 2619, 700.00, 31, Enabled\n1, 580.1, [N/A], 2619, 700.00, [N/A], [N/A]\n"
    )
    done = subprocess.CompletedProcess([], 0, stdout=answer, stderr="")
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: done)
    facts = {fact.name: (fact.value, fact.unit) for fact in driver_facts()}
    assert facts["cuda_0_driver"] == ("580.1", "")
    assert facts["cuda_0_max_sm_clock"] == (1980.0, "MHz")
    assert facts["cuda_1_max_sm_clock"] == (None, "MHz")
    assert facts["cuda_1_power_limit"] == (700.0, "W")
    assert facts["cuda_0_temperature_at_start"] == (31.0, "C")
    assert facts["cuda_1_temperature_at_start"] == (None, "C")
    assert facts["cuda_0_ecc"] == ("Enabled", "")
    assert facts["cuda_1_ecc"] == (None, "")


def test_without_a_driver_there_are_no_facts_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.shutil, "which", lambda _: None)
    assert driver_facts() == ()


@pytest.mark.parametrize(
    "answer",
    ["No devices were found\n", "", "0, 580.1, 1980, 2619, 700.00, 31, Enabled, more\n", "\n"],
)
def test_a_driver_that_says_something_else_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(devices.shutil, "which", lambda _: "nvidia-smi")
    done = subprocess.CompletedProcess([], 0, stdout=answer, stderr="")
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: done)
    assert driver_facts() == ()
