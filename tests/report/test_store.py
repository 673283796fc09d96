"""Figures that are kept: nothing is drawn twice, and the site shows nothing of it."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from nanoserve_report.figures import ceiling, marginal, store
from nanoserve_report.figures.store import Drawn, Store
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The figures that were rendered, by name."""
    rendered: list[str] = []

    def render(figure: object) -> bytes:
        rendered.append(type(figure).__name__)
        return real(figure)

    real = store.render
    monkeypatch.setattr(store, "render", render)
    return rendered


def test_a_warm_build_draws_nothing_and_is_the_cold_one_to_the_byte(
    three: Study, three_root: Path, tmp_path: Path, counted: list[str]
) -> None:
    cold = compose(three, tmp_path)
    drawn = len(counted)
    assert drawn == len([name for name in cold.files if re.search(r"figures/.*\.svg$", name)]) > 6
    warm = compose(load(three_root), tmp_path)
    assert len(counted) == drawn, "an unchanged study was drawn again"
    assert warm.files == cold.files
    assert warm.links == cold.links


def lead(study: Study):
    return study.sections[0].lead


def test_a_changed_folder_is_drawn_again(
    one: Study, one_root: Path, tmp_path: Path, counted: list[str]
) -> None:
    sweep = lead(one)
    shutil.copytree(one_root, tmp_path / "results")
    (path,) = (tmp_path / "results").iterdir()
    verdict = dataclasses.replace(sweep.folder.verdict, path=path)
    copied = dataclasses.replace(sweep, folder=dataclasses.replace(sweep.folder, verdict=verdict))
    for subject in (sweep, copied):
        Store(folder=tmp_path / "kept").draw(marginal.draw, subject)
    assert len(counted) == 1, "the same bytes elsewhere are the same folder"
    with (path / "ceilings.csv").open("a") as file:
        file.write(" ")
    Store(folder=tmp_path / "kept").draw(marginal.draw, copied)
    assert len(counted) == 2


@pytest.mark.parametrize("what", ["code", "function", "name"])
def test_other_code_another_figure_or_another_name_is_drawn(
    one: Study, tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    sweep, draw = lead(one), marginal.draw
    Store(folder=tmp_path).draw(draw, sweep)
    if what == "code":
        monkeypatch.setattr(store, "code_digest", lambda: "other")
    elif what == "function":
        draw = ceiling.draw
    else:
        sweep = dataclasses.replace(sweep, folder=dataclasses.replace(sweep.folder, name="renamed"))
    Store(folder=tmp_path).draw(draw, sweep)
    assert len(counted) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: entry.write_bytes(entry.read_bytes()[:-40]),
        lambda entry: entry.write_bytes(entry.read_bytes().replace(b"worth", b"w0rth")),
        lambda entry: entry.write_bytes(b""),
        lambda entry: entry.write_bytes(store._sha256(b"{}").encode() + b"\n{}"),
    ],
)
def test_an_entry_that_is_not_whole_is_drawn_again(
    one: Study, tmp_path: Path, counted: list[str], damage
) -> None:
    first = Store(folder=tmp_path).draw(marginal.draw, lead(one))
    (entry,) = tmp_path.iterdir()
    damage(entry)
    assert Store(folder=tmp_path).draw(marginal.draw, lead(one)) == first
    assert len(counted) == 2
    assert Store(folder=tmp_path).draw(marginal.draw, lead(one)) == first, "and is mended"
    assert len(counted) == 2


def test_what_the_last_build_did_not_use_goes_when_there_is_much(
    one: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old.json").write_text("x")
    kept = Store(folder=tmp_path)
    drawn = kept.draw(marginal.draw, lead(one))
    assert isinstance(drawn, Drawn)
    kept.prune()
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(store, "MOST_ENTRIES", 1)
    kept.prune()
    assert not (tmp_path / "old.json").exists()
    assert len(list(tmp_path.iterdir())) == 1
