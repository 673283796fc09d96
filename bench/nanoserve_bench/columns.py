"""One cell of a CSV file: from text to a typed value and back, by the field's annotation.

Strict on purpose: a float in an integer column, a sign that is not a minus, NaN, infinity, control
characters and text that a spreadsheet would run as a formula are faults. Each value has exactly one
spelling, so that reading a file and writing it again gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable
from typing import Any

from nanoserve_bench.records import Hold

_INT = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_FORMULA = ("=", "+", "-", "@")
_INT_LIMIT = 2**63


def _parse_int(text: str) -> int:
    if not _INT.fullmatch(text):
        raise ValueError("is not a whole number")
    value = int(text)
    if not -_INT_LIMIT <= value < _INT_LIMIT:
        raise ValueError("does not fit 64 bits")
    return value


def _parse_float(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueError("is not a finite number")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("is not a finite number")
    if value == 0 and text.startswith("-"):
        raise ValueError("is a zero with a minus")
    return value


def _parse_bool(text: str) -> bool:
    if text not in {"0", "1"}:
        raise ValueError("is neither 0 nor 1")
    return text == "1"


def text_flaw(text: str) -> str | None:
    """Why a text cannot stand in a cell as it is, as a predicate; None where it can."""
    if _CONTROL.search(text):
        return "holds a control character"
    if text.startswith(_FORMULA):
        return "would be run as a formula by a spreadsheet"
    return None


def _parse_str(text: str) -> str:
    flaw = text_flaw(text)
    if flaw is not None:
        raise ValueError(flaw)
    return text


def _parse_ints(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        # The fast path; its leniency (signs, spaces, underscores) is excluded by the round trip.
        values = tuple(map(int, text.split(" ")))
    except ValueError:
        raise ValueError("is not a list of whole numbers joined by single spaces") from None
    if " ".join(map(str, values)) != text:
        raise ValueError("is not a list of whole numbers joined by single spaces")
    if max(values) >= _INT_LIMIT or min(values) < -_INT_LIMIT:
        raise ValueError("holds a number that does not fit 64 bits")
    return values


def _parse_holds(text: str) -> tuple[Hold, ...]:
    holds = []
    for pair in text.split(" "):
        acquired, colon, released = pair.partition(":")
        if not colon:
            raise ValueError("is not a list of acquired:released pairs joined by single spaces")
        holds.append(Hold(_parse_int(acquired), _parse_int(released)))
    return tuple(holds)


def _format_float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{value!r} cannot be written: a missing value is None")
    return repr(float(value) or 0.0)  # a zero has no sign


def _format_str(value: str) -> str:
    line = _CONTROL.sub(" ", value)
    return f"'{line}" if line.startswith(_FORMULA) else line


def _format_ints(values: tuple[int, ...]) -> str:
    return " ".join(map(str, values))


def _format_holds(holds: tuple[Hold, ...]) -> str:
    return " ".join(f"{hold.acquired_ns}:{hold.released_ns}" for hold in holds)


_CODECS: dict[Any, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    int: (_parse_int, lambda value: str(int(value))),
    float: (_parse_float, _format_float),
    bool: (_parse_bool, lambda value: "1" if value else "0"),
    str: (_parse_str, _format_str),
    tuple[int, ...]: (_parse_ints, _format_ints),
    tuple[Hold, ...]: (_parse_holds, _format_holds),
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column: its name, its type, whether a cell may be empty, and its text form."""

    name: str
    kind: Any
    optional: bool
    parse: Callable[[str], Any]
    format: Callable[[Any], str]

    def read(self, text: str) -> Any:
        """The value of a cell; None for an empty optional one.

        Raises:
            ValueError: With a predicate (`is not a whole number`), for a fault's message.
        """
        if not text:
            if self.optional:
                return None
            if self.parse is not _parse_ints:  # an empty token list is a list
                raise ValueError("is empty")
        return self.parse(text)

    def write(self, value: Any) -> str:
        """The text of a value; the empty cell for None."""
        if value is None:
            if not self.optional:
                raise ValueError(f"column {self.name} may not be empty")
            return ""
        return self.format(value)


def columns_of(row_type: type) -> tuple[Column, ...]:
    """The columns of a row dataclass, in file order."""
    hints = typing.get_type_hints(row_type)
    columns = []
    for field in dataclasses.fields(row_type):
        annotation = hints[field.name]
        optional = isinstance(annotation, types.UnionType)
        if optional:
            (annotation,) = (a for a in typing.get_args(annotation) if a is not types.NoneType)
        parse, write = _CODECS[annotation]
        columns.append(
            Column(name=field.name, kind=annotation, optional=optional, parse=parse, format=write)
        )
    return tuple(columns)
