"""The environment: a row a run, and what all runs of a machine share is said once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from nanoserve_bench.plan import Fact
from nanoserve_report.links import Linker
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load
from nanoserve_report.tables import Text
from nanoserve_report.views import environment
from support.report_studies import sweep, write


def studied(tmp_path: Path, count: int) -> Study:
    """Sweeps of one machine, of which the last ran with another torch."""
    studies = [sweep(index) for index in range(count)]
    for index, study in enumerate(studies):
        version = "9.0" if index == count - 1 else "8.0"
        extra = (Fact(name="version_torch", value=version), Fact(name="python", value="3.11"))
        study.facts = (*study.facts, *extra)
    return load(write(tmp_path, *studies))


def test_every_run_has_its_versions_in_one_row(tmp_path: Path) -> None:
    study = studied(tmp_path, 2)
    table = environment.versions(study.folders, Linker(page="results/environment.md"))
    assert [row[0].text for row in table] == [folder.name for folder in study.folders]
    heads = [column.label for column in table.columns]
    assert [row[heads.index("torch")].text for row in table] == ["8.0", "9.0"]
    for row in table:
        assert isinstance(row[0], Text)
        assert row[0].href.endswith("#sides")
        assert "nanoserve 0.1.0" in row[heads.index("systems")].text
        assert row[heads.index("revision")].text == "0123456"


def test_what_all_runs_share_is_said_once_and_what_differs_once_a_value(tmp_path: Path) -> None:
    study = studied(tmp_path, 3)
    ((_, shared, differing),) = environment.machines(study.folders)
    assert differing is not None
    said = [row[0].text for row in shared]
    assert said.count("python") == 1
    assert "version_torch" not in said
    found = {row[1].text: row[3].text for row in differing if row[0].text == "version_torch"}
    names = [folder.name for folder in study.folders]
    assert found == {"8.0": ", ".join(names[:2]), "9.0": names[2]}


def test_a_run_more_adds_a_row_and_no_list_of_facts(tmp_path: Path) -> None:
    sizes = []
    for count in (2, 3):
        study = studied(tmp_path / str(count), count)
        sizes.append(len(compose(study).files["results/environment.md"]))
    assert sizes[1] - sizes[0] < 1000
    assert dataclasses.is_dataclass(study)
