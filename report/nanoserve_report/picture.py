"""The picture of a README: the speedups of the study that leads, as the site draws them."""

from __future__ import annotations

from pathlib import Path

from nanoserve_bench.errors import BenchError
from nanoserve_report.figures import speedup
from nanoserve_report.figures.store import Drawn
from nanoserve_report.study import Study
from nanoserve_report.sweeps import Sweep

PICTURE = Path("docs") / "assets" / "overview.svg"


class PictureError(BenchError):
    """A study of which there is nothing to draw."""


def leading(study: Study) -> Sweep:
    """The first sweep of the site that has a sound ratio.

    Raises:
        PictureError: None has.
    """
    for device in study.devices:
        for section in device.sections:
            if section.lead.sound_rivals:
                return section.lead
    raise PictureError("no results folder has a sound comparison: there is nothing to draw")


def draw(study: Study) -> Drawn:
    """The figure, the same bytes as on the site.

    Raises:
        PictureError: There is nothing to draw.
    """
    return Drawn.of(speedup.draw(leading(study)))
