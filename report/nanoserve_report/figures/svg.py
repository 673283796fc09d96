"""A drawn figure to SVG bytes: reproducible to the byte, one file for both colour schemes.

Two things make the bytes reproducible between processes: the fixed `svg.hashsalt` of the house
style, and no date in the metadata. Either alone is not enough.
"""

from __future__ import annotations

import io
import re

from matplotlib.figure import Figure

from nanoserve_report.figures.style import ROLES, house_style

_PROLOGUE = re.compile(r"<\?xml.*?\?>\s*<!DOCTYPE.*?>\s*", re.DOTALL)


def render(figure: Figure) -> bytes:
    """The figure as an SVG document whose colours follow the reader's colour scheme.

    Raises:
        ValueError: A colour in the drawing is not one of the palette's, so that it would not
            follow the scheme.
    """
    buffer = io.BytesIO()
    with house_style():
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None}
        )
    text = buffer.getvalue().decode("utf-8")
    for role in ROLES:
        text = text.replace(role.sentinel, f"var(--{role.name})")
    stray = sorted(set(re.findall(r"(?:fill|stroke|stop-color): ?(#[0-9a-fA-F]{3,8})", text)))
    if stray:
        raise ValueError(f"colours outside the palette in the figure: {', '.join(stray)}")
    text = _PROLOGUE.sub('<?xml version="1.0" encoding="utf-8"?>\n', text)
    head, rest = text.split(">", 2)[0:2], text.split(">", 2)[2]
    return f"{head[0]}>{head[1]}>{_style()}{rest}".encode()


def _style() -> str:
    light = ";".join(f"--{role.name}:{role.light}" for role in ROLES)
    dark = ";".join(f"--{role.name}:{role.dark}" for role in ROLES)
    return (
        f"\n<style>:root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}</style>"
    )
