"""The Python of the tutorials runs, and prints what the page says that it prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def blocks(root: Path) -> list[tuple[str, str]]:
    found = BLOCK.findall((root / "docs/tutorials/judge-your-own.md").read_text("utf-8"))
    assert [language for language, _ in found] == ["python", "text", "python"]
    return found


def execute(code: str, names: dict[str, Any]) -> None:
    exec(code, names)  # noqa: S102 - the page is ours


def test_two_runs_in_a_notebook(
    blocks: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (_, pair), (_, printed), (_, refused) = blocks
    names: dict[str, Any] = {}
    execute(pair, names)
    assert capsys.readouterr().out == printed
    execute(refused, names)
    said = capsys.readouterr().out
    assert "PAIR005" in said
    assert "position 1" in said
