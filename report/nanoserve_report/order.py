"""The order in which the sections of a device stand: by plan and time, never by a result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanoserve_report.study import Section

WORDS = (
    "What doubles the slots from one on comes first, then what doubles them from more, then what "
    "doubles none; of each kind the newest plan first. Nothing that was measured has a part in the "
    "order."
)
"""The rule, as the pages state it."""


def ordered(sections: Iterable[Section]) -> tuple[Section, ...]:
    """The sections by device and dtype, and there by the rule."""
    found = sorted(sections, key=lambda section: section.setting.place)
    found.sort(key=lambda section: section.lead.folder.created_at, reverse=True)
    return tuple(sorted(found, key=lambda s: (s.setting.place[:2], _kind(s))))


def _kind(section: Section) -> int:
    """How much a section says of the shape: doublings from one slot on, from more, or none."""
    first = min((item.lower.slots for item in section.lead.marginals), default=None)
    return 2 if first is None else min(first - 1, 1)
