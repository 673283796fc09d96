"""What mkdocs asks when the site is built: the pages of the engine tour, which nobody writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from nanoserve_report import tour

ROOT = Path(__file__).parents[2]
FOLDER = "tour"
MARK = "<!-- every module -->"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each module, and the list of them to the tour's first page."""
    found = tour.load(ROOT / "engine/nanoserve", ROOT / "engine/tour.toml", ROOT / "tests/engine")
    for path, text in tour.pages(found).items():
        files.append(File.generated(config, f"{FOLDER}/{path}", content=text))
    first = files.src_uris[f"{FOLDER}/index.md"]
    written = first.content_string
    if MARK not in written:
        raise ValueError(f"docs/{FOLDER}/index.md has no line {MARK}")
    first.content_string = written.replace(MARK, tour.index(found))
    return files
