"""WCAG A and AA by axe in the real browser: a page of every kind, both schemes, both widths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CONTRAST = {"type": "rule", "values": ["color-contrast"]}
NARROW = {
    "type": "rule",
    "values": ["color-contrast", "scrollable-region-focusable", "target-size"],
}
AT_ONCE = "*, *::before, *::after { transition: none !important; animation: none !important; }"
"""Colours change at once: a colour on its way from one scheme to the other is nobody's."""
KINDS = (
    "",
    "results/",
    "results/devices/",
    "results/devices/cpu-float32/",
    "results/reading/",
    "results/what-if/",
    "results/history/",
    "results/refusals/",
    "results/runs/20260101-cpu-day44-0123456/",
    "results/rules/pair005/",
    "results/kill-table/",
    "results/claims/",
    "how-to-read/",
    "methodology/",
    "tutorials/run-it/",
    "api/gate/",
    "tour/",
)


def violations(page: Page, run_only: dict[str, Any]) -> list[str]:
    """What axe finds: rule, place, and what is wrong there."""
    options = {"runOnly": run_only, "resultTypes": ["violations"]}
    found = page.evaluate("options => axe.run(options)", options)["violations"]
    return [
        f"{rule['id']} at {node['target']}: {node.get('failureSummary', '')}"
        for rule in found
        for node in rule["nodes"]
    ]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


def opened(page: Page, url: str) -> Page:
    page.goto(url, wait_until="networkidle")
    page.add_style_tag(content=AT_ONCE)
    page.evaluate(AXE)
    return page


@pytest.mark.parametrize("path", KINDS)
def test_a_page_meets_wcag_in_both_schemes_at_both_widths(page: Page, host: str, path: str) -> None:
    opened(page, f"{host}0.2/{path}")
    assert violations(page, {"type": "tag", "values": TAGS}) == []
    for scheme, width, rules in (
        ("dark", 1280, CONTRAST),
        ("dark", 390, CONTRAST),
        ("light", 390, NARROW),
    ):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 844})
        name = {"light": "default", "dark": "slate"}[scheme]
        page.locator(f'body[data-md-color-scheme="{name}"]').wait_for()
        assert violations(page, rules) == [], (scheme, width)


def test_a_pale_sentence_would_be_found(page: Page, host: str) -> None:
    opened(page, f"{host}0.2/results/rules/pair005/")
    page.locator("article p").first.evaluate("p => { p.style.color = '#c8c8c8'; }")
    assert any(line.startswith("color-contrast") for line in violations(page, CONTRAST))
