"""The words of the pages: each defined once, and marked where a page first uses it."""

from __future__ import annotations

import re

import pytest

from nanoserve_report.book import GLOSSARY, Book
from nanoserve_report.terms import mark, terms


def marked(text: str) -> str:
    """With titles left out, which would repeat the glossary."""
    return re.sub(r' title="[^"]+"', "", mark(text, lambda anchor: f"g#{anchor}"))


def link(anchor: str, word: str) -> str:
    return f'<a class="ns-term" href="g#{anchor}">{word}</a>'


def test_terms_are_sorted_and_a_word_means_one_thing() -> None:
    names = [term.name for term in terms()]
    assert names == sorted(names, key=str.lower)
    words = [word.lower() for term in terms() for word in term.words]
    assert len(words) == len(set(words)) > 40
    assert len({term.anchor for term in terms()}) == len(names)
    assert all(term.text.endswith(".") for term in terms())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>Two knees, one knee.</p>", f"<p>Two {link('knee', 'knees')}, one knee.</p>"),
        ("<p>A batch occupancy.</p>", f"<p>A {link('batch-occupancy', 'batch occupancy')}.</p>"),
        ("<p>system occupancies</p>", f"<p>{link('system-occupancy', 'system occupancies')}</p>"),
        ("<p>TTFT</p><p>TTFT</p>", f"<p>{link('ttft', 'TTFT')}</p><p>TTFT</p>"),
        ('<li id="knee">Knee</li>', f'<li id="knee">{link("knee", "Knee")}</li>'),
        ("<p>blockade, pre-block, #block</p>", "<p>blockade, pre-block, #block</p>"),
        ("# The knee\n\n<h3>knee</h3>", "# The knee\n\n<h3>knee</h3>"),
        ("<p><a href='x'>knee</a></p>", "<p><a href='x'>knee</a></p>"),
        ("<p><code>knee</code></p>", "<p><code>knee</code></p>"),
        ("<table><td>knee</td></table>", "<table><td>knee</td></table>"),
        (
            '<th><span class="ns-label">ITL, median</span></th><p>ITL</p>',
            '<th><span class="ns-label"><abbr>ITL</abbr>, median</span></th><p>ITL</p>',
        ),
    ],
)  # fmt: skip
def test_the_first_use_in_running_text_or_in_a_head_is_marked(text: str, expected: str) -> None:
    assert marked(text) == expected


def test_a_title_is_the_definition_without_marks() -> None:
    text = mark("<p>batch occupancy</p>", lambda anchor: anchor)
    assert 'title="Slot time per wall, S/W: the mean number of slots held. The batching' in text


def test_the_glossary_has_an_entry_for_every_link(one_book: Book) -> None:
    text = one_book.files[GLOSSARY].decode()
    entries = set(re.findall(r"^.+ \{#([\w-]+)\}\n:   ", text, re.MULTILINE))
    assert entries == {term.anchor for term in terms()}
    used = {link.anchor for link in one_book.links if link.target == GLOSSARY}
    assert len(used) > 25
    assert used <= entries


def test_no_page_marks_a_word_twice_or_inside_a_link(one_book: Book) -> None:
    for name in one_book.files:
        if name.endswith(".md"):
            text = one_book.files[name].decode()
            found = re.findall(r'<(?:a class="ns-term" [^>]*|abbr )title="([^"]+)"', text)
            assert len(found) == len(set(found)), name
            assert not re.search(r'<a (?!class="ns-term)[^>]*>[^<]*<a ', text), name
