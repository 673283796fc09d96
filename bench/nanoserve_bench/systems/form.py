"""Whether a class has the form of a system, so that a plug-in with a mistake says which."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from nanoserve_bench.protocol import STAMPS
from nanoserve_bench.records import Shape
from nanoserve_bench.schema import stamp_words


def flaws(system: type) -> Iterator[str]:
    """What is wrong with the attributes of a subclass of `System`; nothing where it can be used."""
    missing = sorted(getattr(system, "__abstractmethods__", ()))
    if missing:
        yield f"it does not define {', '.join(missing)}"
    for name, what in (
        ("summary", "a line of text"),
        ("distribution", "the name of a distribution"),
    ):
        value = _value(system, name)
        if not isinstance(value, str) or not value.strip() or "\n" in value:
            yield f"`{name}` is {_shown(value)}, not {what}"
    if not isinstance(_value(system, "shape"), Shape):
        yield f"`shape` is {_shown(_value(system, 'shape'))}, not Shape.SERIAL or Shape.CONCURRENT"
    for name in ("stamps", "requires"):
        value = _value(system, name)
        if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
            yield f"`{name}` is {_shown(value)}, not a tuple of texts"
    stamps = _value(system, "stamps")
    words = stamps if isinstance(stamps, tuple) and all(isinstance(s, str) for s in stamps) else ()
    unknown = sorted(stamp_words(" ".join(words)) - set(STAMPS))
    if unknown:
        yield f"`stamps` names {_shown(unknown[0])}; a system can stamp {', '.join(STAMPS)}"

    options = _value(system, "options")
    if not isinstance(options, Mapping) or not all(
        isinstance(text, str) for pair in options.items() for text in pair
    ):
        yield f"`options` is {_shown(options)}, not a mapping of keys to what they mean"


_NOTHING = object()


def _value(system: type, name: str) -> Any:
    return inspect.getattr_static(system, name, _NOTHING)


def _shown(value: object) -> str:
    return "missing" if value is _NOTHING else repr(value)[:80]
