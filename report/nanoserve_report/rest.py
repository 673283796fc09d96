"""Docstrings as Markdown: the few things of reStructuredText that ours use.

That is double backticks, `::` before an indented block, and simple tables without a head. Lists,
emphasis and indented formulas are the same in both.
"""

from __future__ import annotations

import html
import re

_RULE = re.compile(r"^=+(?: +=+)+$")
_CODE = re.compile(r"(``.+?``|`[^`]+`)")


def to_markdown(text: str) -> str:
    """A docstring, its indentation taken off, as Markdown."""
    blocks = re.split(r"\n{2,}", text.strip("\n"))
    return "\n\n".join(_block(block) for block in blocks if block.strip() != "::")


def inline(text: str) -> str:
    """Text inside a line: code stays code, and nothing else can become markup."""
    pieces = _CODE.split(text)
    return "".join(
        f"`{piece.strip('`')}`" if _CODE.fullmatch(piece) else html.escape(piece, quote=False)
        for piece in pieces
    )


def _block(block: str) -> str:
    lines = block.split("\n")
    if _RULE.match(lines[0]) and _RULE.match(lines[-1]):
        return _table(lines)
    if all(line.startswith("    ") for line in lines):
        return block.replace("``", "")
    if block.lstrip().startswith("- "):
        return inline(re.sub(r"\n(?!\s*- )\s*", " ", block)).removesuffix("::")
    said = inline(block)
    return f"{said.removesuffix('::')}:" if said.endswith("::") else said


def _table(lines: list[str]) -> str:
    """Its rows as definitions: a term, and what is said of it."""
    second = lines[0].index(" =") + 1
    rows: list[list[str]] = []
    for line in lines[1:-1]:
        term, said = line[:second].strip(), line[second:].strip()
        if term:
            rows.append([term, said])
        else:
            rows[-1][1] += f" {said}"
    return "\n\n".join(f"{inline(term)}\n:   {inline(said)}" for term, said in rows)
