"""`plan.json` and `manifest.json`: records to JSON and back, with every fault in one go.

The reader knows only what the record declares: an unknown, missing or doubled key, a value of
another type, NaN or infinity are faults that name the place as a path (`arms[1].name`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

from nanoserve_bench.faults import Fault, shorten

T = TypeVar("T")
_INT_LIMIT = 2**63


def _unfit(value: object) -> str | None:
    """Why a value cannot be worked with, as a predicate; None where it can."""
    if type(value) is int and not -_INT_LIMIT <= value < _INT_LIMIT:
        return "does not fit 64 bits"
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        return "has no form in UTF-8"
    return None


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []

    def fault(self, path: str, value: object, message: str, hint: str) -> None:
        self.faults.append(
            Fault(
                rule="REP004",
                file=self.file,
                column=path or None,
                value=shorten(json.dumps(value, default=str)) if value is not None else None,
                message=message,
                hint=hint,
            )
        )

    def record(self, record_type: type, value: object, path: str) -> Any:
        hints = typing.get_type_hints(record_type)
        if not isinstance(value, dict):
            self.fault(path, value, "is not an object", "Restore the file as it was written.")
            return None
        known = {field.name: field for field in dataclasses.fields(record_type)}
        for key in value.keys() - known.keys():
            self.fault(f"{path}.{key}".lstrip("."), None, "is an unknown key", "Remove it.")
        fields: dict[str, Any] = {}
        for name, field in known.items():
            where = f"{path}.{name}".lstrip(".")
            if name in value:
                fields[name] = self.value(hints[name], value[name], where)
            elif field.default is dataclasses.MISSING:
                self.fault(where, None, "is missing", "Restore the file as it was written.")
        return None if self.faults else record_type(**fields)

    def value(self, annotation: Any, value: object, path: str) -> Any:  # noqa: PLR0911
        if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
            return self.record(annotation, value, path)
        if typing.get_origin(annotation) is tuple:
            item = typing.get_args(annotation)[0]
            if isinstance(value, list):
                return tuple(self.value(item, v, f"{path}[{i}]") for i, v in enumerate(value))
            self.fault(path, value, "is not a list", "Restore the file as it was written.")
            return None
        union = isinstance(annotation, types.UnionType)
        allowed = typing.get_args(annotation) if union else (annotation,)
        nested = next((a for a in allowed if dataclasses.is_dataclass(a)), None)
        if isinstance(nested, type) and isinstance(value, dict):
            return self.record(nested, value, path)
        flaw = _unfit(value)
        if flaw is not None:
            self.fault(path, value, flaw, "Restore the file as it was written.")
            return None
        # bool is an int to Python and is not one here.
        if type(value) in allowed or (type(value) is int and float in allowed):
            return value
        names = " or ".join("empty" if a is types.NoneType else a.__name__ for a in allowed)
        self.fault(path, value, f"is not {names}", "Restore the file as it was written.")
        return None


def decode(record_type: type[T], text: str, file: str) -> T | Sequence[Fault]:
    """Read a record, or say everything that is wrong with it."""
    reader = _Reader(file)

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        for key in {key for key in keys if keys.count(key) > 1}:
            reader.fault(key, None, "stands twice", "Keep one of them.")
        return dict(pairs)

    def refuse(constant: str) -> None:
        reader.fault("", constant, "a number is not finite", "A missing value is null.")

    def finite(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            refuse(text)
        return number

    try:
        value = json.loads(
            text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite
        )
    except (json.JSONDecodeError, RecursionError, ValueError) as error:
        reader.fault("", None, f"is not JSON: {error}", "Restore the file as it was written.")
        return reader.faults
    record: T | None = reader.record(record_type, value, "")
    return reader.faults if record is None or reader.faults else record


def schema_version(text: str) -> object | None:
    """What a document says its schema is; None where that cannot be told."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value.get("schema") if isinstance(value, dict) else None


def encode(record: Any) -> str:
    """The one JSON spelling of a record: two-space indent, declared order, final newline."""
    return json.dumps(dataclasses.asdict(record), indent=2, ensure_ascii=False, allow_nan=False) + (
        "\n"
    )
