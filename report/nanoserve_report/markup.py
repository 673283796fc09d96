"""Tables as HTML: written here and not in a template, because a large run has thousands of cells.

A page has to stay small (see the budgets of the site's tests), so nothing is written twice: what a
cell sorts by stands beside it only where its text does not say it.
"""

from __future__ import annotations

import re
from html import escape

from markupsafe import Markup

from nanoserve_report.tables import Cell, Column, Hole, Num, Table, Text

_PLAIN = re.compile(r"-?[\d,]+(?:\.(\d+))?")
"""A number as the script reads it: commas between thousands, and no unit."""


def table(item: Table) -> Markup:
    """A table inside a box of its own that scrolls, so that the page does not.

    Raises:
        TypeError: Something in it is not text: a missing value or a raw number is a mistake.
    """
    caption = _text(item.caption)
    classes = "ns-table" + " ns-prose" * item.prose + " ns-wrapped" * item.wrapped
    sortable = " data-ns-sortable" if item.sortable and len(item.rows) > 1 else ""
    # A search for a digit finds nothing that is meant; the index stays small without them.
    unsought = "" if item.prose else " data-search-exclude"
    lines = [
        # A group and no region: a page of twenty tables would be twenty landmarks.
        f'<div class="ns-scroll" role="group" tabindex="0" aria-label="{caption}">',
        f'<table class="{classes}"{sortable}{unsought}>',
        f"<caption>{caption}</caption>",
        "<thead><tr>",
        *(_head(column) for column in item.columns),
        "</tr></thead>",
        "<tbody>",
    ]
    for index, (row, address) in enumerate(zip(item.rows, item.addresses, strict=True)):
        name = f' id="{address}"' if address else ""
        strong = ' class="ns-baseline"' if index in item.strong else ""
        lines.append(f"<tr{name}{strong}>")
        lines += [
            _cell(cell, width, label if item.prose else "", None if place else address)
            for place, (cell, width, label) in enumerate(item.spans(row))
        ]
        lines.append("</tr>")
    lines += ["</tbody>", "</table>", "</div>"]
    return Markup("\n".join(lines))  # noqa: S704 - escaped piece by piece


def _head(column: Column) -> str:
    numeric = ' class="ns-num"' if column.numeric else ""
    unit = f' <span class="ns-unit">{_text(column.unit)}</span>' if column.unit else ""
    label = f'<span class="ns-label">{_text(column.label)}</span>'
    return f'<th scope="col"{numeric}>{label}{unit}</th>'


def _cell(cell: Cell, width: int, label: str, address: str | None) -> str:
    """A cell; the first one of a row has the row's address, which may be empty, and leads there."""
    name, scope = ("td", "") if address is None else ("th", ' scope="row"')
    sort = "" if _says(cell) else f' data-sort="{_text(cell.sort)}"'
    label = f' data-label="{_text(label)}"' if label else ""
    span = f' colspan="{width}"' if width > 1 else ""
    content = _content(cell)
    if address and "<a " not in content:
        content = f'<a class="ns-row" href="#{address}">{content}</a>'
    return f'<{name}{scope} class="{cell.css}"{sort}{label}{span}>{content}</{name}>'


def _says(cell: Cell) -> bool:
    """Whether a cell's text already is what it sorts by, as the script reads it."""
    if isinstance(cell, Hole):
        return False
    if isinstance(cell, Text):
        return bool(cell.text) and cell.text == cell.text.strip()
    found = _PLAIN.fullmatch(_text(cell.text))
    if found is None or cell.interval:
        return False
    printed, half = float(cell.text.replace(",", "")), 0.5 * 10.0 ** -len(found.group(1) or "")
    return abs(printed - cell.value) <= half * (1 + 1e-9)


def _content(cell: Cell) -> str:
    if isinstance(cell, Hole):
        words = _link(_text(cell.reason), cell.href)
        dash = '<span class="ns-dash" aria-hidden="true">&mdash;</span>'
        return f'{dash} <span class="ns-why">{words}</span>'
    if isinstance(cell, Num):
        if not cell.interval:
            return _text(cell.text)
        interval = f"<small>{_text(cell.interval)}</small>"
        return f"{_text(cell.text)} {interval}"
    if cell.tone == "code" and not cell.href:
        return f"<code>{_text(cell.text)}</code>"
    return _link(_text(cell.text), cell.href)


def _link(words: str, href: str) -> str:
    return f'<a href="{_text(href)}">{words}</a>' if href else words


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} would be printed: format it, or show a hole with its reason")
    return escape(value)
