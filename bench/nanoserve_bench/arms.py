"""Arms as they are written on the command line: `[NAME=]SYSTEM[@REVISION][,KEY=VALUE]...`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nanoserve_bench.columns import text_flaw
from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Option

FORM = "[NAME=]SYSTEM[@REVISION][,KEY=VALUE]..."


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmChoice:
    """An arm that was asked for.

    Attributes:
        name: What it is called; `SYSTEM` or `SYSTEM@REVISION` where no name was given.
        system: Name of the system.
        revision: What to build it from, as it was written; None is the code that is here.
        options: What the system was told, in the order in which it was written.
    """

    name: str
    system: str
    revision: str | None = None
    options: tuple[Option, ...] = ()

    @property
    def runs(self) -> tuple[str, str | None, frozenset[Option]]:
        """What it runs, whatever it is called: equal for two arms that are an A/A."""
        return self.system, self.revision, frozenset(self.options)


def parse_arm(text: str) -> ArmChoice:
    """The arm that a text asks for.

    Raises:
        PlanError: It has another form; the message says which.
    """
    head, *rest = text.split(",")
    name, equals, what = head.partition("=")
    what = what if equals else name
    system, at, revision = what.partition("@")
    if not name or not system or (at and not revision):
        raise PlanError(f"{text!r} is no arm: write {FORM}")
    if "/" in name:
        raise PlanError(
            f"{text!r} is no arm: a name with a slash cannot stand in the name of a cell; give it "
            f"another one, such as mine={what}"
        )
    flaw = text_flaw(name)
    if flaw is not None:
        raise PlanError(f"{text!r} is no arm: its name {flaw}, and has to stand in a table")
    return ArmChoice(
        name=name, system=system, revision=revision or None, options=tuple(_options(text, rest))
    )


def _options(text: str, parts: Iterable[str]) -> Iterable[Option]:
    seen: set[str] = set()
    for part in parts:
        key, equals, value = part.partition("=")
        if not key or not equals or not value:
            raise PlanError(f"{text!r} is no arm: {part!r} is not KEY=VALUE")
        if key in seen:
            raise PlanError(f"{text!r} is no arm: {key} is given twice")
        seen.add(key)
        yield Option(name=key, value=value)


def refuse_unknown_options(choice: ArmChoice, known: Mapping[str, str]) -> None:
    """Refuse an option that a system does not have; `body.*` stands for all that begin so.

    Raises:
        PlanError: There is one.
    """
    for option in choice.options:
        family = option.name.partition(".")[0] + ".*"
        if option.name not in known and not ("." in option.name and family in known):
            there = ", ".join(known) or "none"
            raise PlanError(
                f"arm {choice.name}: {choice.system} has no option {option.name!r}; there are: "
                f"{there}"
            )
