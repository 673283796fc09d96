"""Links as the browser sees them, from any page to any page or file."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from nanoserve_report.links import Link, Linker, url_of

PAGES = [
    "index.md",
    "results/index.md",
    "results/devices/index.md",
    "results/devices/cpu-float32.md",
    "results/figures/x.svg",
]


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".md")])
@pytest.mark.parametrize("target", PAGES)
def test_a_link_leads_where_the_browser_would_go(page: str, target: str) -> None:
    base = "http://host/0.1/"
    href = Linker(page=page).to(target)
    assert urljoin(base + url_of(page), href).removesuffix("./") == base + url_of(target)


def test_every_link_is_remembered_with_its_anchor() -> None:
    linker = Linker(page="results/index.md")
    assert linker.to("results/refusals.md", "run-1") == "refusals/#run-1"
    assert linker.written == [
        Link(page="results/index.md", target="results/refusals.md", anchor="run-1")
    ]
