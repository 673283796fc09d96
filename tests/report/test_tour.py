"""The tour: a page for every module, made from sources that it cannot contradict."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from nanoserve_report import rest, tour

REPOSITORY = Path(__file__).resolve().parents[2]
ENGINE = REPOSITORY / "engine/nanoserve"


@pytest.fixture(scope="module")
def engine() -> tour.Tour:
    return tour.load(ENGINE, REPOSITORY / "engine/tour.toml", REPOSITORY / "tests/engine")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A package of two modules and their notes."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "one.py").write_text('"""First things first."""\n\n\ndef f():\n    return 1\n')
    (package / "two.py").write_text('"""Then the rest."""\nfrom package.one import f\n')
    write_notes(tmp_path)
    return tmp_path


def write_notes(where: Path, *, module: str = "one.py", hard: str = "f") -> None:
    (where / "tour.toml").write_text(
        '[[part]]\ntitle = "All"\ntext = "Of it."\nmodules = ["one.py"]\n'
        f'[module."{module}"]\nmust = "1 is 1."\nhard = "{hard}"\nwhy = "It is odd."\n'
    )


def load(where: Path) -> tour.Tour:
    return tour.load(where / "package", where / "tour.toml", where / "tests")


def test_every_module_of_the_engine_has_its_page(engine: tour.Tour) -> None:
    sources = {
        path.relative_to(ENGINE).as_posix()
        for suffix in ("py", "h", "cpp")
        for path in ENGINE.rglob(f"*.{suffix}")
    }
    pages = tour.pages(engine)
    assert len(sources) > 50
    assert set(engine.modules) == sources
    assert len(pages) == len(sources)
    listed = tour.index(engine)
    for path, module in engine.modules.items():
        assert module.summary, f"{path} does not say what it is for"
        shown = path.replace("_", "\\_")
        assert f"[{shown}]({module.page})" in listed
        assert f"# {shown}\n" in pages[module.page]


def test_links_of_the_tour_lead_to_its_pages(engine: tour.Tour) -> None:
    pages = tour.pages(engine)
    for page, text in pages.items():
        for target in re.findall(r"\]\(([^)]+\.md)\)", text):
            at = (Path("/") / page).parent / target
            assert str(at.resolve())[1:] in {*pages, "index.md"}, (page, target)


def test_the_hard_place_is_shown_as_it_stands(engine: tour.Tour) -> None:
    text = tour.pages(engine)["scheduler.md"]
    assert "`Scheduler._make_room`, lines" in text
    assert "\n    youngest = self.running.pop()\n" in text.replace(
        "        youngest", "    youngest"
    )
    assert "`tests/engine/test_scheduler.py`" in text
    cpp = tour.pages(engine)["kernels/tile-h.md"]
    assert "```cpp\n[[gnu::always_inline]] inline void accumulate" in cpp
    assert cpp.count("}\n```") == 1


def test_what_a_note_names_is_held_against_the_sources(small: Path) -> None:
    write_notes(small, hard="g")
    with pytest.raises(tour.TourError, match=r"one\.py has nothing called 'g'"):
        load(small)
    write_notes(small, module="three.py")
    with pytest.raises(tour.TourError, match=r"three\.py"):
        load(small)


def test_a_module_that_nobody_sorted_in_has_its_page(small: Path) -> None:
    found = load(small)
    assert [part.title for part in found.parts] == ["All", tour.ELSEWHERE]
    pages = tour.pages(found)
    assert set(pages) == {"one.md", "two.md"}
    assert "- Reads: [one.py](one.md)" in pages["two.md"]
    assert "- Read by: [two.py](two.md)" in pages["one.md"]
    assert "1 is 1." in pages["one.md"]
    assert "What must hold" not in pages["two.md"]


def test_docstrings_become_markdown() -> None:
    table = "=====  ====\n``a``  one\n       more\nb      <two>\n=====  ===="
    assert rest.to_markdown(table) == "`a`\n:   one more\n\nb\n:   &lt;two&gt;"
    assert rest.to_markdown("So::\n\n    x = ``y``\n\n::\n\n    z") == "So:\n\n    x = y\n\n    z"
    assert rest.to_markdown("- a\n  b\n- c") == "- a b\n- c"
    assert rest.to_markdown("``List[<int>]`` & <b>") == "`List[<int>]` &amp; &lt;b&gt;"


def test_the_interface_of_a_module_is_on_its_page(engine: tour.Tour) -> None:
    pages = tour.pages(engine)
    assert "::: nanoserve.scheduler.Scheduler\n" in pages["scheduler.md"]
    assert "::: nanoserve.models.rope.rope_table\n" in pages["models/rope.md"]
    assert "_stretch\n" not in pages["models/rope.md"]
    assert "## Interface" not in pages["kernels/tile-h.md"]


@pytest.mark.parametrize("package", ["engine/nanoserve", "bench/nanoserve_bench"])
def test_what_a_package_exports_is_on_a_page_of_the_api(package: str) -> None:
    tree = ast.parse((REPOSITORY / package / "__init__.py").read_text("utf-8"))
    (exported,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"  # type: ignore[attr-defined]
    )
    text = "\n".join(page.read_text("utf-8") for page in (REPOSITORY / "docs/api").glob("*.md"))
    shown = {line.rpartition(".")[2] for line in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    assert len(exported) > 5
    assert {name for name in exported if not name.startswith("__")} - shown == set()
