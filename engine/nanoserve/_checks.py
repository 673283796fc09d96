"""Is a value from outside what its annotation says? The annotation alone does not make it so."""

import math
from collections.abc import Sequence


def is_integer(value: object) -> bool:
    """Whether it is an int; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is a finite int or float."""
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def is_flag(value: object) -> bool:
    """Whether it is True or False."""
    return isinstance(value, bool)


def is_text(value: object) -> bool:
    """Whether it is a non-empty string."""
    return isinstance(value, str) and bool(value)


def are_integers(values: object) -> bool:
    """Whether it is a tuple or list of ints."""
    return isinstance(values, tuple | list) and all(map(is_integer, values))


def is_sequence(value: object) -> bool:
    """Whether it is a list or the like; bytes, whose items are ints by accident, are not."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
