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
        (Num(value=1234.0, text="1,234"), ' class="ns-num">1,234</td>'),
        (Num(value=8099.65494, text="8,099.655"), ' class="ns-num">8,099.655</td>'),
        (Num(value=8099.7, text="8,099"), ' class="ns-num" data-sort="8099.7">8,099</td>'),
        (Num(value=0.25, text="25.0%"), ' class="ns-num" data-sort="0.25">25.0%</td>'),
        (
            Num(value=2.0, text="2.0", interval="1-3"),
            ' class="ns-num" data-sort="2">2.0 <small>1-3</small></td>',
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


def test_a_row_has_an_address_that_its_name_leads_to() -> None:
    columns = (Column(label="system"), Column(label="slots"), Column(label="tok/s"))
    rows = tuple(
        (Text(text="engine"), Num(value=slots, text=f"{slots}"), Num(value=1.0, text="1"))
        for slots in (1, 8, 8)
    )
    text = str(table(Table(caption="t", columns=columns, rows=rows, anchor="cpu-rates")))
    for address in ("cpu-rates-engine-1", "cpu-rates-engine-8", "cpu-rates-engine-8--2"):
        assert text.count(f'<tr id="{address}">') == 1
        assert text.count(f'<a class="ns-row" href="#{address}">engine</a>') == 1
    plain = str(table(Table(caption="t", columns=columns, rows=rows)))
    assert "id=" not in plain
    assert "<a" not in plain
    linked = ((Text(text="run", href="runs/"), *rows[0][1:]),)
    text = str(table(Table(caption="t", columns=columns, rows=linked, anchor="a")))
    assert '<tr id="a-run-1">' in text
    assert text.count("<a ") == 1
