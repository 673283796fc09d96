"""What programs read of a site: its verdict as JSON and as a badge."""

from __future__ import annotations

import json

from nanoserve_report import badge
from nanoserve_report.book import ROOT, Book
from nanoserve_report.study import Study

VERDICT, BADGE = f"{ROOT}/verdict.json", f"{ROOT}/badge.svg"
SCHEMA = 1


def write(book: Book, study: Study) -> None:
    """Add them."""
    book.add(BADGE, badge.svg(study).encode())
    document = {
        "schema": SCHEMA,
        "ok": study.ok,
        "words": badge.verdict(study),
        "newest": study.newest,
        "folders": [
            {
                "name": folder.name,
                "status": folder.status.value,
                "planned_at": folder.created_at,
                "rules": sorted({finding.rule for finding in folder.refusing}),
            }
            for folder in study.folders
        ],
    }
    # A name that looks like markup stays text, even where a server calls the file something else.
    text = json.dumps(document, indent=1, ensure_ascii=False).replace("<", "\\u003c")
    book.add(VERDICT, f"{text}\n".encode())
