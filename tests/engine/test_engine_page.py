"""The Python of the engine's page runs, and prints what the page says that it prints."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from nanoserve import SamplingParams

PAGE = Path(__file__).parents[2] / "docs/engine.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.weights
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str]):
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    assert [language for language, _ in blocks] == ["python", "text"] * 3
    names: dict[str, Any] = {}
    for (_, code), (_, printed) in zip(blocks[::2], blocks[1::2], strict=True):
        exec(code, names)  # noqa: S102 - the page is ours
        assert capsys.readouterr().out == printed


def test_the_table_names_every_setting_in_order_and_what_is_off():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert [name for name, _ in rows] == [field.name for field in fields(SamplingParams)]
    off = {"none": (None, ()), "no": (False,), "0": (0,), "1": (1,)}
    for name, value in rows[1:]:
        assert getattr(SamplingParams(), name) in off[value], name
