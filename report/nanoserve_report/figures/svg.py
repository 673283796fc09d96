"""A drawn figure to SVG bytes: reproducible to the byte, one file for both colour schemes.

Three things make the bytes reproducible between processes: the fixed `svg.hashsalt` of the house
style, no date in the metadata, and clip paths that are numbered in order of appearance. Their own
names are hashes of unrounded coordinates, whose last bit the layout solver does not always repeat.
"""

from __future__ import annotations

import io
import re

from matplotlib.figure import Figure

from nanoserve_report.figures.style import ROLES, house_style

_CLIP_PATH = re.compile(r'<clipPath id="(\w+)">')
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
    for number, name in enumerate(dict.fromkeys(_CLIP_PATH.findall(text)), start=1):
        text = text.replace(f'id="{name}"', f'id="clip{number}"')
        text = text.replace(f"url(#{name})", f"url(#clip{number})")
    text = _PROLOGUE.sub('<?xml version="1.0" encoding="utf-8"?>\n', text)
    head, rest = text.split(">", 2)[0:2], text.split(">", 2)[2]
    return f"{head[0]}>{head[1]}>{_style()}{rest}".encode()


def _style() -> str:
    light = ";".join(f"--{role.name}:{role.light}" for role in ROLES)
    dark = ";".join(f"--{role.name}:{role.dark}" for role in ROLES)
    return (
        f"\n<style>:root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}</style>"
    )
