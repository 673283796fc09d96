"""Tables as HTML: escaped, without a missing value, and with nothing said twice."""

from __future__ import annotations

import pytest

from nanoserve_report.markup import table
from nanoserve_report.tables import Cell, Column, Hole, Num, Table, Text


def html(cell: Cell) -> str:
    """The second cell of a row, as it is written."""
    made = Table(
        caption="a <b>",
        columns=(Column(label="x"), Column(label="y & z", unit="<s>")),
        rows=((Text(text="head"), cell),),
    )
    text = str(table(made))
    assert "<b>" not in text
    assert "y &amp; z" in text
    return text.partition("</th>\n<td")[2].partition("\n</tr>")[0]


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        (Num(value=4.0, text="4"), ' class="ns-num">4</td>'),
        (Num(value=1234.0, text="1,234"), ' class="ns-num" data-sort="1234.0">1,234</td>'),
        (Num(value=0.25, text="25.0%"), ' class="ns-num" data-sort="0.25">25.0%</td>'),
        (
            Num(value=2.0, text="2.0", interval="1-3"),
            (
                ' class="ns-num" data-sort="2.0"><span class="ns-point">2.0</span> '
                '<span class="ns-interval">1-3</span></td>'
            ),
        ),
        (Text(text="<i>", href="?a&b"), ' class="ns-text"><a href="?a&amp;b">&lt;i&gt;</a></td>'),
        (Text(text=""), ' class="ns-text" data-sort=""></td>'),
        (
            Hole(reason="why"),
            (
                ' class="ns-hole" data-sort="">'
                '<span class="ns-dash" aria-hidden="true">&mdash;</span> '
                '<span class="ns-why">why</span></td>'
            ),
        ),
    ],
)
def test_a_cell_says_what_it_sorts_by_where_its_text_does_not(cell: Cell, written: str) -> None:
    assert html(cell) == written


@pytest.mark.parametrize("value", [None, 1.5])
def test_a_missing_value_or_a_raw_number_is_never_printed(value: object) -> None:
    with pytest.raises(TypeError, match="would be printed"):
        html(Num(value=1.0, text=value))  # type: ignore[arg-type]
