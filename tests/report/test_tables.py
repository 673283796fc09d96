"""Table cells: a number, words, or a hole without any numeric attribute."""

from __future__ import annotations

import dataclasses

import pytest

from nanoserve_report.tables import Column, Hole, Num, Table, Text


def test_a_hole_has_no_numeric_attribute() -> None:
    hole = Hole(reason="refused: PAIR005")
    values = [getattr(hole, field.name) for field in dataclasses.fields(hole)]
    assert all(isinstance(value, str) for value in values)
    assert not hasattr(hole, "value")
    assert hole.sort == ""


def test_equal_holes_side_by_side_become_one_wide_cell() -> None:
    hole = Hole(reason="refused")
    row = (Text(text="a"), hole, hole, Num(value=1.0, text="1"), hole)
    table = Table(caption="t", columns=tuple(Column(label=str(i)) for i in range(5)), rows=(row,))
    assert [(cell, width) for cell, width, _ in table.spans(row)] == [
        (row[0], 1),
        (hole, 2),
        (row[3], 1),
        (hole, 1),
    ]


def test_a_row_of_the_wrong_width_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        Table(
            caption="t",
            columns=(Column(label="a"), Column(label="b")),
            rows=((Text(text="a"),),),
        )


def test_a_number_sorts_by_more_digits_than_it_prints() -> None:
    assert Num(value=1 / 3, text="0.33").sort == "0.333333333"
