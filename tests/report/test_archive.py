"""A run as one file: the same bytes whenever it is packed, and judged like the folder it is of."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from pathlib import Path

from nanoserve_bench.soundness import judge_path
from nanoserve_report.archive import packed
from nanoserve_report.book import Book
from nanoserve_report.pages import compose
from nanoserve_report.setting import slug
from nanoserve_report.study import Study, load


def archive_of(book: Book, name: str) -> bytes:
    return book.files[f"results/runs/{slug(name)}/data/{slug(name)}.zip"]


def test_what_is_unpacked_is_the_folder_and_is_judged_like_it(
    one: Study, one_book: Book, tmp_path: Path
) -> None:
    (folder,) = one.folders
    with zipfile.ZipFile(io.BytesIO(archive_of(one_book, folder.name))) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    (unpacked,) = tmp_path.iterdir()
    assert unpacked.name == folder.name
    found = {path.name: path.read_bytes() for path in unpacked.iterdir()}
    assert found == {path.name: path.read_bytes() for path in folder.verdict.path.iterdir()}
    assert judge_path(unpacked).ok
    page = one_book.files[f"results/runs/{slug(folder.name)}.md"].decode()
    assert f'{slug(folder.name)}.zip" download>' in page
    assert f"<code>nanoserve-bench check {folder.name}</code>" in page


def test_a_folder_that_is_touched_is_packed_to_the_same_bytes(
    one_root: Path, one_book: Book, tmp_path: Path
) -> None:
    root = tmp_path / "results"
    shutil.copytree(one_root, root)
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    for path in folder.iterdir():
        os.utime(path, (0, 0))
        path.chmod(0o600)
    assert archive_of(compose(load(root)), folder.name) == archive_of(one_book, folder.name)


def test_files_stand_in_the_order_that_was_asked_for_and_without_a_date() -> None:
    with zipfile.ZipFile(io.BytesIO(packed("run", {"b": b"1", "a": b"2"}))) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == ["run/b", "run/a"]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644}
