"""Facts about the machine, and what they must not give away."""

from __future__ import annotations

import getpass
import platform
import re
from pathlib import Path

import psutil
import pytest

from nanoserve_bench import environment
from nanoserve_bench.environment import (
    cpu_model,
    facts,
    fingerprint,
    memory_bytes,
    usable_cores,
)


def test_the_fingerprint_stays_and_depends_on_the_accelerators() -> None:
    assert fingerprint(("A card",)) == fingerprint(("A card",))
    assert fingerprint(("A card", "B card")) == fingerprint(("B card", "A card"))
    assert fingerprint(("A card",)) != fingerprint(())
    assert re.fullmatch(r"[0-9a-f]{16}", fingerprint(()))


def test_another_cpu_or_another_machine_of_its_kind_has_another_fingerprint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = fingerprint(())
    identity = tmp_path / "machine-id"
    identity.write_text("somewhere else\n")
    monkeypatch.setattr(environment, "_MACHINE_ID", identity)
    there = fingerprint(())
    assert there != here
    monkeypatch.setattr(environment, "cpu_model", lambda: "Another CPU")
    assert fingerprint(()) != there


def test_facts_are_named_once_and_have_units() -> None:
    found = facts(threads=2)
    names = [fact.name for fact in found]
    assert len(names) == len(set(names))
    units = {fact.name: fact.unit for fact in found}
    assert units["memory"] == "bytes"
    assert units["usable_cores"] == "cores"
    values = {fact.name: fact.value for fact in found}
    assert values["threads"] == 2
    assert values["python"] == platform.python_version()
    assert values["version_psutil"] == psutil.__version__


def test_facts_give_neither_host_nor_user_nor_path_away() -> None:
    text = " ".join(str(fact.value) for fact in facts(threads=1))
    for secret in (platform.node(), getpass.getuser(), str(Path.home()), str(Path.cwd())):
        if len(secret) > 3:
            assert secret not in text


def test_a_container_has_the_cores_and_the_memory_of_its_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quota, limit = tmp_path / "cpu.max", tmp_path / "memory.max"
    monkeypatch.setattr(environment, "_CPU_QUOTA", quota)
    monkeypatch.setattr(environment, "_MEMORY_LIMIT", limit)
    monkeypatch.setattr(environment.psutil, "cpu_count", lambda logical: 8)
    monkeypatch.setattr(environment.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    quota.write_text("max 100000\n")
    limit.write_text("max\n")
    assert usable_cores() == 8
    assert memory_bytes() == psutil.virtual_memory().total
    quota.write_text("300000 100000\n")
    limit.write_text("1048576\n")
    assert usable_cores() == 3
    assert memory_bytes() == 2**20
    quota.write_text("50000 100000\n")
    assert usable_cores() == 1


def test_two_logical_cores_of_one_physical_core_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environment, "_CPU_QUOTA", tmp_path / "none")
    monkeypatch.setattr(environment.psutil, "cpu_count", lambda logical: 4)
    monkeypatch.setattr(environment.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert usable_cores() == 4
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert usable_cores() == 1


def test_what_cannot_be_read_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("_CPUINFO", "_GOVERNOR", "_OS_RELEASE"):
        monkeypatch.setattr(environment, name, tmp_path / "none")
    values = {fact.name: fact.value for fact in facts(threads=1)}
    assert values["cpu_governor"] is None
    assert values["cpu_instructions"] is None
    assert cpu_model()
