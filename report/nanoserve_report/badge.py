"""The verdict of the gate as a small picture, to stand on another page.

Drawn here, so that it is the same to the byte wherever it is built: no font is measured, each text
is told how wide it has to be. What it says is in its words and its mark, never in colour alone.
"""

from __future__ import annotations

from html import escape

from nanoserve_report.study import Study

LABEL = "nanoserve gate"
HEIGHT, PADDING, MARK, PER_CHARACTER = 20, 6, 10, 6.2
GOOD, BAD, MUTED, INK = "#00755a", "#b3361b", "#56606e", "#1c2430"
SOUND_MARK, REFUSED_MARK, NO_MARK = "M0 5l3 3 6-7", "M1 1l7 7M8 1l-7 7", "M1 4.5h7"


def verdict(study: Study) -> str:
    """`5 sound, 1 refused`: results folders and calibrations, as the gate takes each as a whole."""
    if not study.folders:
        return "nothing measured"
    retracted = sum(folder.retraction is not None for folder in study.folders)
    refused = sum(bool(folder.refusing) for folder in study.folders)
    words = [f"{len(study.folders) - retracted - refused} sound"]
    words.append(f"{refused + len(study.refused_calibrations)} refused")
    return ", ".join([*words, f"{retracted} retracted"] if retracted else words)


def svg(study: Study) -> str:
    """The badge."""
    words = verdict(study)
    colour, mark = (GOOD, SOUND_MARK) if study.ok else (BAD, REFUSED_MARK)
    if not study.folders:
        colour, mark = MUTED, NO_MARK
    left, right = (round(PER_CHARACTER * len(text)) for text in (LABEL, words))
    split = left + 2 * PADDING
    width = split + MARK + right + 3 * PADDING
    said = escape(f"{LABEL}: {words}", quote=True)
    at = split + PADDING
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" '
        f'viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{said}">\n'
        f"<title>{said}</title>\n"
        f'<path fill="{INK}" d="M3 0h{split - 3}v{HEIGHT}H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z"/>\n'
        f'<path fill="{colour}" d="M{split} 0h{width - split - 3}a3 3 0 0 1 3 3v{HEIGHT - 6}'
        f'a3 3 0 0 1-3 3h-{width - split - 3}z"/>\n'
        f'<path fill="none" stroke="#fff" stroke-width="2" transform="translate({at} 5.5)" '
        f'd="{mark}"/>\n'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">\n'
        f'<text x="{PADDING}" y="14" textLength="{left}">{LABEL}</text>\n'
        f'<text x="{at + MARK + PADDING}" y="14" textLength="{right}">{words}</text>\n'
        "</g>\n</svg>\n"
    )
