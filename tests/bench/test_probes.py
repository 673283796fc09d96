"""What a probe is asked and answers, read at either end as the record that it has to be."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict, dataclass
from types import SimpleNamespace

import pytest

from nanoserve_bench import probes
from nanoserve_bench.errors import WorkerError
from nanoserve_bench.faults import one_line
from nanoserve_bench.probes import Phase, ProfiledRows, carry_out, run_probe

ANSWER = ProfiledRows(rows=2, phases=(Phase(name="step", samples_ns=(3, 4)),))


@dataclass(frozen=True, kw_only=True)
class Order:
    rows: tuple[int, ...]
    kernel: str | None


def asked(monkeypatch: pytest.MonkeyPatch, *, stdout: str = "", code: int = 0) -> ProfiledRows:
    """What is made of a process that wrote this."""
    done = SimpleNamespace(stdout=stdout, stderr="last words", returncode=code)
    monkeypatch.setattr(probes.subprocess, "run", lambda *_, **__: done)
    order = Order(rows=(1,), kernel=None)
    return run_probe("a_probe", order, ProfiledRows, threads=1, timeout_s=1.0)


def test_the_last_line_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    written = json.dumps(asdict(ANSWER))
    assert asked(monkeypatch, stdout=f"a library says hello\n{written}\n") == ANSWER


@pytest.mark.parametrize(
    ("stdout", "code", "message"),
    [
        ("", 0, r"a_probe ended with exit code 0:\nlast words"),
        ("{}", 3, r"a_probe ended with exit code 3:\nlast words"),
        ("hello", 0, "no answer: .*is not JSON"),
        ('{"rows": 2}', 0, "no answer: .*column phases: is missing"),
        ('{"rows": 2.5, "phases": []}', 0, r"no answer: .*column rows: is not int \(value '2.5'\)"),
    ],
)
def test_anything_else_is_said(
    monkeypatch: pytest.MonkeyPatch, stdout: str, code: int, message: str
) -> None:
    with pytest.raises(WorkerError, match=message):
        asked(monkeypatch, stdout=stdout, code=code)


def test_a_probe_reads_its_order_and_writes_its_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders: list[Order] = []

    def probe(order: Order) -> ProfiledRows:
        orders.append(order)
        return ANSWER

    monkeypatch.setattr(sys, "stdin", io.StringIO('{"rows": [1, 8], "kernel": null}'))
    carry_out(Order, probe)
    assert orders == [Order(rows=(1, 8), kernel=None)]
    assert asked(monkeypatch, stdout=capsys.readouterr().out) == ANSWER

    monkeypatch.setattr(sys, "stdin", io.StringIO('{"rows": 1, "kernel": null}'))
    with pytest.raises(SystemExit, match="rows: is not a list"):
        carry_out(Order, probe)
    assert len(orders) == 1


def test_a_long_reason_keeps_its_end_on_one_line() -> None:
    assert one_line("it\n  broke") == "it broke"
    long = one_line("Traceback\n" + "x" * 500 + "\nValueError: why")
    assert long.startswith("... ")
    assert long.endswith("x ValueError: why")
    assert len(long) == 404
