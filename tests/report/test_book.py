"""The book: what may be printed, what may be linked, and what fails the build."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from nanoserve_report.book import Book, BookError, escape_markdown
from nanoserve_report.study import Study


def render(text: str, **context: object) -> str:
    return Book()._environment.from_string(text).render(**context)


def test_an_undefined_name_fails_the_build() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("{{ nobody }}")


def test_a_number_of_a_refused_comparison_fails_the_build(refused: Study) -> None:
    pair = next(p for p in refused.sections[0].lead.rivals if not hasattr(p, "speedup"))
    for name in ("speedup", "batch_factor", "slot_factor", "prefill_ratio", "verdict"):
        with pytest.raises(jinja2.UndefinedError, match=name):
            render("{{ pair." + name + " }}", pair=pair)


@pytest.mark.parametrize("value", [None, 1.5])
def test_a_missing_value_or_a_raw_float_fails_the_build(value: object) -> None:
    with pytest.raises(TypeError, match="would be printed"):
        render("{{ value }}", value=value)


def test_text_is_escaped_for_html() -> None:
    assert render("{{ x }}", x="<script>alert(1)</script>") == (
        "&lt;script&gt;alert(1)&lt;/script&gt;"
    )


def test_text_in_a_markdown_line_cannot_become_markup() -> None:
    text = str(escape_markdown("a\n# [x](y) <b> `c` $m$ {#id}"))
    assert not set(text) & set("[]()<>`${}\n")


def test_one_name_is_published_once() -> None:
    book = Book()
    book.add("a.md", b"1")
    with pytest.raises(BookError, match=r"a\.md"):
        book.add("a.md", b"2")


def test_links_into_nothing_are_found(tmp_path: Path) -> None:
    (tmp_path / "here.md").write_text("x")
    book = Book()
    book.add("results/index.md", b'## A {#a}\n<p id="b"></p>\n')
    linker = book.linker("results/x.md")
    for target, anchor in [
        ("results/index.md", "a"),
        ("results/index.md", "b"),
        ("here.md", ""),
        ("results/index.md", "c"),
        ("results/none.md", ""),
        ("there.md", ""),
    ]:
        linker.to(target, anchor)
    broken = [(link.target, link.anchor) for link in book.broken_links(tmp_path)]
    assert broken == [("results/index.md", "c"), ("results/none.md", ""), ("there.md", "")]


def test_writing_replaces_what_an_earlier_build_left(tmp_path: Path) -> None:
    left = tmp_path / "results" / "runs" / "gone.md"
    left.parent.mkdir(parents=True)
    left.write_text("old")
    book = Book()
    book.add("results/index.md", b"new\n")
    assert book.differences(tmp_path) == (
        "results/runs/gone.md is left over",
        "results/index.md is missing",
    )
    book.write(tmp_path)
    assert not left.exists()
    assert book.differences(tmp_path) == ()
    (tmp_path / "results" / "index.md").write_text("changed")
    assert book.differences(tmp_path) == ("results/index.md is stale",)
