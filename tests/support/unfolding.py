"""Python code with its properties made behind their functions, which then have no decorator."""

from __future__ import annotations

import ast

UNFOLDED = frozenset({"property", "cached_property"})


def unfold(source: str) -> str:
    """The same code with its properties made behind their functions."""
    lines = source.splitlines()
    added: dict[int, str] = {}
    removed = set()
    for outer in ast.walk(ast.parse(source)):
        for node in outer.body if isinstance(outer, ast.ClassDef) else ():
            if not isinstance(node, ast.FunctionDef) or len(node.decorator_list) != 1:
                continue
            (decorator,) = node.decorator_list
            if isinstance(decorator, ast.Name) and decorator.id in UNFOLDED:
                removed.add(decorator.lineno)
                indent = " " * node.col_offset
                added[node.end_lineno or 0] = f"{indent}{node.name} = {decorator.id}({node.name})"
    text = []
    for number, line in enumerate(lines, start=1):
        if number not in removed:
            text.append(line)
        if number in added:
            text.append(added[number])
    return "\n".join(text) + "\n"
