"""The Python of the tutorials runs, and prints what the page says that it prints."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from nanoserve_bench.protocol import Launch, Trial

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def blocks(root: Path) -> list[tuple[str, str]]:
    found = BLOCK.findall((root / "docs/tutorials/judge-your-own.md").read_text("utf-8"))
    assert [language for language, _ in found] == ["python", "text", "python", "python"]
    return found


def execute(code: str, names: dict[str, Any]) -> None:
    exec(code, names)  # noqa: S102 - the page is ours


def test_two_runs_in_a_notebook(
    blocks: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (_, pair), (_, printed), (_, refused), _ = blocks
    names: dict[str, Any] = {}
    execute(pair, names)
    assert capsys.readouterr().out == printed
    execute(refused, names)
    said = capsys.readouterr().out
    assert "PAIR005" in said
    assert "position 1" in said


def test_an_engine_in_the_sweep(
    blocks: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Model:
        def weights_digest(self) -> str:
            return "sha256:" + "a" * 64

        def weight_bytes(self) -> int:
            return 1

        def generate(self, prompt: list[int], max_tokens: int) -> list[int]:
            return [sum(prompt)] * max_tokens

    engine = types.ModuleType("my_engine")
    engine.load = lambda path, threads: Model()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_engine", engine)
    monkeypatch.setattr("nanoserve_bench.systems.version", {"my-engine": "1.0"}.__getitem__)
    names: dict[str, Any] = {"__name__": "my_package.bench"}
    execute(blocks[-1][1], names)
    system = names["MyEngine"](
        Launch(
            system="my-engine",
            machine="a machine",
            device="cpu",
            dtype="float32",
            threads=1,
            model_name="a model",
            model_path="model",
            most_slots=1,
            longest=8,
        )
    )
    assert system.describe().version == "1.0"
    run = system.run(Trial(slots=1, prompts=((1, 2), (3, 4)), max_tokens=2))
    assert [record.output_ids for record in run.records] == [(3, 3), (7, 7)]
