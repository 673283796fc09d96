"""The published tree in a real browser: two versions, the selector, search, schemes, widths.

The tree of `gh-pages` is what is served, not a plain build: only there stand the versions. Nothing
may go wrong in the page, and nothing may leave the host.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.published import Watched

pytestmark = pytest.mark.browser

MOST_SHIFT = 0.1
"""Beyond it Lighthouse calls a layout unstable."""
MOST_REQUESTS, MOST_LOADED = 30, 1_500_000
"""Of a page as it opens, before anybody scrolls: figures, style sheets, scripts, search index."""
PAGES = (
    "",
    "results/",
    "results/reading/",
    "results/devices/",
    "results/devices/cpu-float32/",
    "results/what-if/",
    "results/claims/",
    "results/self/",
    "results/refusals/",
    "results/runs/",
    "results/runs/20260101-cpu-day44-0123456/",
    "results/environment/",
    "results/rules/",
    "results/rules/pair005/",
    "how-to-read/",
    "methodology/",
    "tour/",
    "tour/scheduler/",
    "api/nanoserve/",
    "tour/kernels/tile-h/",
)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_at_both_widths(browser: Browser, host: str, path: str) -> None:
    for width in (1280, 390):
        context = browser.new_context(viewport={"width": width, "height": 844})
        watched = Watched(context.new_page(), host)
        page = watched.open(f"{host}0.2/{path}")
        assert watched.shift < MOST_SHIFT, width
        assert len(watched.loaded) <= MOST_REQUESTS
        assert sum(watched.loaded) <= MOST_LOADED
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        for image in page.locator("article img").all():
            image.scroll_into_view_if_needed()
            assert image.evaluate("i => i.decode().then(() => i.naturalWidth)") > 0
            assert image.is_visible()
            assert len(image.get_attribute("alt") or "") > 60
        assert page.locator("article h1").count() == 1
        assert watched.faults == []
        context.close()


def test_the_root_leads_to_the_latest(watched: Watched, host: str) -> None:
    page = watched.open(host)
    page.wait_for_url(f"{host}latest/")
    assert page.title()


def test_the_selector_switches_versions(watched: Watched, host: str) -> None:
    page = watched.open(f"{host}0.2/results/runs/")
    assert page.locator("article table tbody tr").count() == 3
    assert page.locator("[data-md-component=outdated]").is_hidden()
    page.locator(".md-version__current").focus()
    page.locator(".md-version__link", has_text="0.1").click()
    page.wait_for_url(f"{host}0.1/**")
    page.goto(f"{host}0.1/results/runs/", wait_until="networkidle")
    assert page.locator("article table tbody tr").count() == 1
    banner = page.locator("[data-md-component=outdated]")
    assert banner.is_visible()
    page.get_by_role("link", name="Go to the latest.").click()
    page.wait_for_url(f"{host}latest/")


def test_search_finds_a_rule(watched: Watched, host: str) -> None:
    page = watched.open(f"{host}0.2/results/")
    page.locator(".md-search__input").click()
    page.keyboard.type("PAIR005")
    result = page.locator(".md-search-result__link").first
    result.wait_for()
    assert (
        "pair005"
        in "".join(
            link.get_attribute("href") or ""
            for link in page.locator(".md-search-result__link").all()
        ).lower()
    )


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_schemes_reach_page_and_figures(browser: Browser, host: str, system: str) -> None:
    context = browser.new_context(color_scheme=system, viewport={"width": 1280, "height": 900})
    watched = Watched(context.new_page(), host)
    page = watched.open(f"{host}0.2/results/")
    scheme = page.locator("body").get_attribute("data-md-color-scheme")
    assert scheme == {"light": "default", "dark": "slate"}[system]
    before = page.locator("article img").first.evaluate(GREYS)
    toggled = {"light": "slate", "dark": "default"}[system]
    for _ in range(3):
        if page.locator("body").get_attribute("data-md-color-scheme") == toggled:
            break
        page.locator("form.md-header__option label:visible").first.click()
    assert page.locator("body").get_attribute("data-md-color-scheme") == toggled
    page.wait_for_timeout(200)
    after = page.locator("article img").first.evaluate(GREYS)
    assert (after < 120 < before) if system == "light" else (before < 120 < after)
    assert watched.faults == []
    context.close()


GREYS = """image => {
  // The mean of what is drawn in greys, mostly grid: light in the light scheme, dark in dark.
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let sum = 0, count = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 250) {
      const value = (data[i] + data[i + 1] + data[i + 2]) / 3;
      const grey = Math.max(data[i], data[i + 1], data[i + 2]) - value < 20;
      if (grey && value > 0) { sum += value; count += 1; }
    }
  }
  return count ? sum / count : -1;
}"""


def test_tables_sort_by_mouse_and_by_keyboard(watched: Watched, host: str) -> None:
    page = watched.open(f"{host}0.2/results/devices/cpu-float32/")
    table = page.locator("table[data-ns-sortable]").first
    head = table.locator("thead th").nth(2)
    values = lambda: [  # noqa: E731
        float(v) for v in table.locator("tbody tr td:nth-child(3)").evaluate_all(
            "cells => cells.map(cell => cell.dataset.sort)"
        )
    ]  # fmt: skip
    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)
    speedup = table.locator("thead th").nth(3)
    speedup.locator("button").click()
    assert "ns-hole" in (
        table.locator("tbody tr").last.locator("td").nth(2).get_attribute("class") or ""
    ), "holes come last"


def test_numbers_and_figures_need_no_javascript(browser: Browser, host: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{host}0.2/results/devices/cpu-float32/", wait_until="networkidle")
    assert page.locator("table.ns-table tbody tr").count() > 10
    assert page.locator("article img").first.is_visible()
    context.close()


def test_a_figures_data_and_raw_rows_can_be_downloaded(watched: Watched, host: str) -> None:
    page = watched.open(f"{host}0.2/results/devices/cpu-float32/")
    for link in page.get_by_role("link", name="Data (CSV)").all():
        url = link.evaluate("a => a.href")
        assert page.request.get(url).text().count("\n") > 1
    page = watched.open(f"{host}0.2/results/runs/20260101-cpu-day44-0123456/")
    url = page.get_by_role("link", name="requests.csv", exact=True).evaluate("a => a.href")
    assert page.request.get(url).text().startswith("block,cell,warmup,request,")


def test_what_programs_read_leads_somewhere(tree: Path, host: str) -> None:
    """The feed, both `llms.txt` and the badge: in the tree, well formed, links that resolve."""
    feed = ET.parse(tree / "feed.xml").getroot()  # noqa: S314 - our own
    links = [link.get("href", "") for link in feed.iter("{http://www.w3.org/2005/Atom}link")]
    base = "http://127.0.0.1:8000/"
    assert len(links) == 4
    for link in links:
        place = tree / link.removeprefix(base)
        assert link.startswith(base)
        assert (place / "index.html" if link.endswith("/") else place).is_file(), link
    for folder in ("", "0.1/", "0.2/", "latest/"):
        text = (tree / folder / "llms.txt").read_text("utf-8")
        addresses = re.findall(r"^- \[.+?\]\((\S+?)\)", text, re.MULTILINE)
        assert len(addresses) > (20 if folder else 1)
        for address in addresses:
            place = tree / folder / address
            assert (place / "index.html" if address.endswith("/") else place).is_file(), address
    assert "3 sound, 0 refused" in (tree / "latest/results/badge.svg").read_text("utf-8")
    for page in ("0.2/index.html", "0.2/results/rules/pair005/index.html"):
        (href,) = re.findall(r'application/atom\+xml"[^>]* href="(.+?)"', (tree / page).read_text())
        assert ((tree / page).parent / href).resolve() == (tree / "feed.xml").resolve()
