"""Is a value from outside what its annotation says? The annotation alone does not make it so."""

import difflib
import math
from collections.abc import Iterable, Sequence

_MOST_SHOWN = (100, 20)  # characters from the start and from the end


def is_integer(value: object) -> bool:
    """Whether it is an int; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is a finite int or float, and no larger than a float can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


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


def unknown_keys(given: Iterable[str], known: Sequence[str]) -> list[str]:
    """A sentence for each key that is not known, naming the known one that is nearest."""
    faults = []
    for key in sorted(set(given) - set(known)):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        faults.append(f"unknown setting {key!r}; {hint}")
    return faults


def shown(value: object) -> str:
    """A value in a message: its ``repr``, cut short, and never an error of its own.

    An integer of more than 4300 digits has no ``repr``, nor has a list that holds one.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the value is a stranger's, and so is its repr
        return f"<{type(value).__name__} without a repr>"
    head, tail = _MOST_SHOWN
    return text if len(text) <= head + tail else f"{text[:head]}...{text[-tail:]}"
