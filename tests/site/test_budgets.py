"""What a page may cost and ask for: its size, other hosts, a list of versions that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.published import Watched, served

pytestmark = pytest.mark.browser
MOST_BYTES = 300_000
"""Of a page without its figures, style sheets and scripts."""


def test_every_page_is_small(tree: Path) -> None:
    sizes = {
        page.relative_to(tree).as_posix(): page.stat().st_size for page in tree.rglob("*.html")
    }
    assert len(sizes) > 150
    assert {name: size for name, size in sizes.items() if size >= MOST_BYTES} == {}


def test_a_plain_site_asks_for_nothing_that_is_not_there(browser: Browser, plain: Path) -> None:
    """It is no version among others, so there is no list of versions beside it."""
    with served(plain) as host:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        watched = Watched(context.new_page(), host)
        page = watched.open(f"{host}results/")
        assert page.locator("article h1").count() == 1
        assert watched.faults == []
        context.close()
