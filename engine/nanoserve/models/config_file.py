"""A JSON object from a checkpoint's folder, read value by value, each of the kind it has to be."""

import json
from pathlib import Path
from typing import Any

from nanoserve._checks import are_integers, is_flag, is_integer, is_number, is_text, shown
from nanoserve.errors import UnsupportedModel, WeightsMismatch


class ConfigFile:
    """The object, and what its values have to be.

    Where a reader takes ``otherwise``, that is the value of a key that is absent or null; without
    it the key has to be there.

    Attributes:
        path: The file, for messages.
    """

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        self._values = values
        self.path = path

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Read a file.

        Raises:
            WeightsMismatch: When it is no JSON object.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            # Not UTF-8, not JSON, a number of thousands of digits, or lists in lists without end.
            raise WeightsMismatch(f"{path} is not valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise WeightsMismatch(f"{path} holds a {type(values).__name__}, not an object")
        return cls(values, path)

    def get(self, key: str) -> Any:
        """The value as it is; None for a key that is absent or null."""
        return self._values.get(key)

    def is_null(self, key: str) -> bool:
        """Whether the key is there, and its value null."""
        return key in self._values and self._values[key] is None

    def needs(self, key: str) -> None:
        """Refuse to go on without a key."""
        if key not in self._values:
            raise WeightsMismatch(f"{self.path}: key {key!r} is missing")

    def integer(self, key: str, *, otherwise: int | None = None, least: int = 1) -> int:
        """An integer, a size unless it may be less."""
        value = self._value(key, otherwise)
        if not is_integer(value) or value < least:
            raise self.of_another_kind(key, f"an integer of at least {least}", value)
        size: int = value
        return size

    def number(self, key: str, *, otherwise: float | None = None) -> float:
        """A number above zero."""
        value = self._value(key, otherwise)
        if not is_number(value) or value <= 0:
            raise self.of_another_kind(key, "a number above 0", value)
        number: float = value
        return number

    def flag(self, key: str, *, otherwise: bool) -> bool:
        """True or false; null is neither."""
        value = self._values.get(key, otherwise)
        if not is_flag(value):
            raise self.of_another_kind(key, "true or false", value)
        flag: bool = value
        return flag

    def ids(self, key: str) -> frozenset[int]:
        """Token ids, one or a list of them; none where the key is absent or null."""
        value = self.get(key)
        if value is None:
            return frozenset()
        ids = value if isinstance(value, list) else [value]
        if not are_integers(ids):
            raise self.of_another_kind(key, "an integer or a list of them", value)
        return frozenset(ids)

    def texts(self, key: str) -> list[str] | None:
        """A list of strings; None where the key is absent or null."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(map(is_text, value)):
            raise self.of_another_kind(key, "a list of strings", value)
        return value

    def section(self, key: str) -> "ConfigFile":
        """An object inside this one; empty where the key is absent or null."""
        value = self.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.of_another_kind(key, "an object", value)
        return ConfigFile(value, self.path)

    def has_only(self, key: str, wanted: object) -> None:
        """Refuse any other value than the one that is implemented.

        Raises:
            UnsupportedModel: When the key is there with another value.
        """
        value = self._values.get(key, wanted)
        if value != wanted:
            raise UnsupportedModel(
                f"{self.path}: {key}={shown(value)} is not implemented; {wanted!r} is"
            )

    def of_another_kind(self, key: str, wanted: str, value: object) -> WeightsMismatch:
        """The error that says what a value has to be, and what it is."""
        given = "null" if value is None else shown(value)
        return WeightsMismatch(f"{self.path}: {key!r} must be {wanted}, not {given}")

    def _value(self, key: str, otherwise: float | None) -> Any:
        value = self._values.get(key)
        if value is None and otherwise is not None:
            return otherwise
        self.needs(key)
        return value
