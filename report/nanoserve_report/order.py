"""The order in which the sections of a device stand: by plan and time, never by a result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanoserve_report.setting import Setting
    from nanoserve_report.study import Section

WORDS = (
    "What doubles the slots from one on comes first, then what doubles them from more, then what "
    "doubles none; of each kind the newest plan first. Nothing that was measured has a part in the "
    "order."
)
"""The rule, as the pages state it."""


def current(sections: Iterable[Section]) -> dict[Setting, tuple[Section, ...]]:
    """The settings that no newer one replaces, each with what it replaces, newest first.

    A section replaces another of other code where all the cells of the other were planned again:
    on the same machine, with the same threads, over the same baseline and with the same libraries.
    What both came to has no part in it. The history has them side by side.
    """
    kept: list[Section] = []
    replaced: dict[Setting, tuple[Section, ...]] = {}
    for section in sorted(sections, key=lambda s: s.lead.folder.created_at, reverse=True):
        by = next((other for other in kept if _replaces(other, section)), None)
        if by is None:
            kept.append(section)
            replaced[section.setting] = ()
        else:
            replaced[by.setting] = (*replaced[by.setting], section)
    return replaced


def _replaces(newer: Section, older: Section) -> bool:
    planned = [{cell.id for cell in section.lead.planned} for section in (newer, older)]
    return _line(newer) == _line(older) and planned[1] <= planned[0]


def _line(section: Section) -> tuple[object, ...]:
    """What stays the same while the code changes: all but the versions of what is followed."""
    setting, plan = section.setting, section.lead.plan
    baseline = {arm.system for arm in plan.arms if arm.name == plan.headline_baseline}
    followed = {arm.system for arm in plan.arms} - baseline
    kept = tuple(v for v in setting.versions if v.partition(" ")[0] not in followed)
    return (*setting.place, setting.threads, plan.headline_baseline, kept)


def ordered(sections: Iterable[Section]) -> tuple[Section, ...]:
    """The sections by device and dtype, and there by the rule."""
    found = sorted(sections, key=lambda section: section.setting.place)
    found.sort(key=lambda section: section.lead.folder.created_at, reverse=True)
    return tuple(sorted(found, key=lambda s: (s.setting.place[:2], _kind(s))))


def _kind(section: Section) -> int:
    """How much a section says of the shape: doublings from one slot on, from more, or none."""
    first = min((item.lower.slots for item in section.lead.marginals), default=None)
    return 2 if first is None else min(first - 1, 1)
