"""Studies for the report: sound, refused and acknowledged, built once per session."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nanoserve_bench.plan import AcknowledgedRefusal
from nanoserve_report.book import Book
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load
from support.report_studies import diverge, sweep, write


@pytest.fixture(scope="session")
def one_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("one") / "results", sweep())


@pytest.fixture(scope="session")
def three_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("three") / "results", *(sweep(i) for i in range(3)))


@pytest.fixture(scope="session")
def refused_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = sweep()
    diverge(study)
    return write(tmp_path_factory.mktemp("refused") / "results", study)


@pytest.fixture(scope="session")
def acknowledged_root(tmp_path_factory: pytest.TempPathFactory, refused_root: Path) -> Path:
    """The same refusals as in `refused_root`, every one of them expected by the plan."""
    places = {(finding.cell, finding.rule) for _, finding in load(refused_root).findings}
    entries = tuple(
        AcknowledgedRefusal(cell=cell, rule=rule, reason="a known near-tie")
        for cell, rule in sorted(places)
    )
    study = sweep()
    study.plan = dataclasses.replace(study.plan, acknowledged=entries)
    diverge(study)
    return write(tmp_path_factory.mktemp("acknowledged") / "results", study)


@pytest.fixture(scope="session")
def one(one_root: Path) -> Study:
    return load(one_root)


@pytest.fixture(scope="session")
def three(three_root: Path) -> Study:
    return load(three_root)


@pytest.fixture(scope="session")
def refused(refused_root: Path) -> Study:
    return load(refused_root)


@pytest.fixture(scope="session")
def one_book(one: Study) -> Book:
    return compose(one)


@pytest.fixture(scope="session")
def three_book(three: Study) -> Book:
    return compose(three)


@pytest.fixture(scope="session")
def refused_book(refused: Study) -> Book:
    return compose(refused)
