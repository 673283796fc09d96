"""The hand-written pages: links lead somewhere, formulas convert, and no measurement is typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nanoserve_report.mathml import to_mathml

LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]+`")
QUOTE = re.compile(r"^>.*$", re.MULTILINE)
MEASURED = re.compile(r"\d+(?:\.\d+)?\s?(?:x\b|tok/s|tokens per second|GB/s|GFLOP|ms\b)")
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\w$])", re.DOTALL)
NAVIGATED = re.compile(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", re.MULTILINE)
MADE_WHEN_BUILT = ("docs/results/", "docs/index.md")
TOUR = re.compile(r"docs/tour/(?!index\.md)")  # pages made from the engine's sources


def pages(root: Path) -> Iterator[Path]:
    yield from (root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    for page in sorted((root / "docs").rglob("*.md")):
        if not page.relative_to(root).as_posix().startswith(MADE_WHEN_BUILT):
            yield page


def prose(page: Path) -> str:
    """The page without code and without quotes."""
    text = page.read_text(encoding="utf-8")
    for pattern in (FENCE, CODE, QUOTE):
        text = pattern.sub("", text)
    return text


def anchors(page: Path) -> set[str]:
    """The anchors that the headings of a page get."""
    titles = [re.sub(r"[`*\[\]]", "", title) for title in HEADING.findall(page.read_text("utf-8"))]
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower())) for title in titles}


def test_links_lead_to_files_and_headings_that_exist(root: Path) -> None:
    broken = []
    followed = 0
    for page in pages(root):
        for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            where = f"{page.relative_to(root)} -> {target}"
            name = file.relative_to(root).as_posix() if file.is_relative_to(root) else ""
            if name.startswith(MADE_WHEN_BUILT) or TOUR.match(name):
                continue  # the strict build of the site holds these
            followed += 1
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(where)
    assert broken == []
    assert followed > 20


def test_no_measured_number_is_typed(root: Path) -> None:
    """Numbers come from committed rows; the source document's stand in quotes."""
    typed = [
        f"{page.relative_to(root)}: {match.group()}"
        for page in pages(root)
        for match in MEASURED.finditer(prose(page))
    ]
    assert typed == []


@pytest.mark.parametrize("text", ["1.64x at four slots", "2.44 tok/s", "62 ms a token", "30 GB/s"])
def test_a_typed_measurement_would_be_found(text: str) -> None:
    assert MEASURED.search(text)


def test_formulas_convert(root: Path) -> None:
    found = 0
    for page in pages(root):
        if page.is_relative_to(root / "docs"):
            text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
            for display, inline in FORMULA.findall(text):
                assert "<math" in to_mathml((display or inline).strip(), display=bool(display))
                found += 1
    assert found > 30


def test_every_decision_is_in_the_index_and_numbered_without_gaps(root: Path) -> None:
    folder = root / "docs/decisions"
    records = sorted(path.name for path in folder.glob("0*.md"))
    assert [int(name[:4]) for name in records] == list(range(1, len(records) + 1))
    assert LINK.findall((folder / "index.md").read_text("utf-8")) == records
    for name in records:
        assert f"# {int(name[:4])}. " in (folder / name).read_text("utf-8")[:12]


def test_every_written_page_is_in_the_navigation_once(root: Path) -> None:
    config = (root / "mkdocs.yml").read_text("utf-8")
    listed = [page for page in NAVIGATED.findall(config) if not page.startswith("results/")]
    written = {path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")}
    written = {page for page in written if not page.startswith("results/")}
    assert sorted(listed) == sorted(written)


def test_the_first_screen_of_the_readme_is_the_two_commands_and_a_picture(root: Path) -> None:
    screen = "\n".join((root / "README.md").read_text("utf-8").splitlines()[:12])
    assert "pip install nox && nox -s bench report" in screen
    assert "pip install nox && nox -s tests" in screen
    assert "docs/assets/overview.svg" in screen
