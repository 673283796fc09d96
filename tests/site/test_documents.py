"""What Lighthouse reads in a document alone, in every page of the newest version."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from support.documents import Document, faults, pages

pytestmark = pytest.mark.browser
NOT_FOUND = "404.html"
"""What the server answers with anywhere, so it has no address of its own."""


@pytest.fixture(scope="module")
def documents(tree: Path) -> dict[str, Document]:
    return dict(pages(tree / "0.2"))


def test_every_page_is_whole(documents: dict[str, Document]) -> None:
    assert len(documents) > 100
    found = {name: list(faults(document)) for name, document in documents.items()}
    assert found.pop(NOT_FOUND) == ["canonical None"]
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_two_pages_have_one_title_or_one_description(documents: dict[str, Document]) -> None:
    said: dict[str, list[str]] = defaultdict(list)
    for name, document in documents.items():
        if name != NOT_FOUND:
            said[f"title {document.title.strip()}"].append(name)
            said[f"description {document.named['description']}"].append(name)
    assert {what: names for what, names in said.items() if len(names) > 1} == {}


def test_what_is_wrong_would_be_found(documents: dict[str, Document]) -> None:
    source = documents["results/index.html"].source
    for change, fault in [
        (('<html lang="en"', "<html"), "no lang"),
        (("<!doctype html>", ""), "no doctype"),
        (("<h1", "<h2"), "headings begin with h2, 0 h1"),
        (("<h2", "<h4"), "h4 after h1"),
        ((' alt="', ' data-alt="'), "image without alt"),
        ((' width="', ' data-width="'), "image without width and height"),
        (('rel="canonical"', 'rel="other"'), "canonical None"),
        (('href="../assets/stylesheets/', 'href="https://example.org/'), "loads from elsewhere"),
        (('<p class="ns-lead">', '<p class="ns-lead"><a href="x">here</a>'), "link with text"),
        (('<p class="ns-lead">', '<p class="ns-lead"><a href="x"></a>'), "link with text"),
        (('<p class="ns-lead">', '<p id="__search">'), "the id '__search' stands 2 times"),
        (('content="width=device-width', 'content="user-scalable=no'), "viewport"),
    ]:
        broken = source.replace(*change)
        assert broken != source, change
        assert any(line.startswith(fault) for line in faults(Document(broken))), fault
