"""Which sweep of a setting is shown, by which rule, and where the others stand."""

from __future__ import annotations

from typing import Any

from nanoserve_report import numbers, spread
from nanoserve_report.links import Linker
from nanoserve_report.study import DevicePage, Section
from nanoserve_report.sweeps import Sweep
from nanoserve_report.views import common

HISTORY = "results/history.md"


def earlier(page: DevicePage, section: Section) -> str:
    """How many versions of the code were measured like this before; empty where none was."""
    number = len(page.replaced[section.setting])
    if not number:
        return ""
    return f"The same cells were measured with {numbers.count(number, 'earlier version')}"


def of(page: DevicePage, section: Section, linker: Linker) -> dict[str, Any]:
    """The sweep that is shown, the rule that chose it, the others, and how far all lie apart."""
    lead, number = section.lead, len(section.sweeps)
    return {
        "shown": _link(lead, linker),
        "rule": (
            f"the newest of {number} of this setting by the time of its plan, whatever it says"
            if number > 1
            else "the only one of this setting"
        ),
        "others": [_link(sweep, linker) for sweep in reversed(section.sweeps) if sweep is not lead],
        "ranges": spread.ranges(section),
        "earlier": earlier(page, section),
        "history": linker.to(HISTORY),
    }


def count(sweep: Sweep) -> str:
    """How many blocks its figures rest on."""
    blocks = {cell.throughput.n for cell in sweep.sound_cells}
    if not blocks:
        return "no block counts"
    return f"{' or '.join(numbers.count(n, 'block') for n in sorted(blocks))} count"


def _link(sweep: Sweep, linker: Linker) -> dict[str, str]:
    return {
        "name": sweep.name,
        "href": linker.to(common.run_page(sweep.name)),
        "again": common.rerun(sweep.name, linker),
    }
