"""The CSV contract, version 1: what is written is read back, and nothing else is."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nanoserve_bench.faults import Fault, ResultsError
from nanoserve_bench.results import read
from nanoserve_bench.schema import ROW_TYPES, token_digest
from support.sound import study

FILES = [row_type.FILE for row_type in ROW_TYPES]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return study(blocks=2).write(tmp_path / "run")


def faults_of(path: Path) -> tuple[Fault, ...]:
    with pytest.raises(ResultsError) as caught:
        read(path)
    return caught.value.faults


def rules_of(path: Path) -> set[tuple[str, str]]:
    return {(fault.rule, fault.file) for fault in faults_of(path)}


def rewrite(path: Path, change: Callable[[list[list[str]]], None]) -> None:
    """Change the cells of a CSV file, leaving its form as the writer's."""
    table = list(csv.reader(io.StringIO(path.read_text())))
    change(table)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(table)
    path.write_text(buffer.getvalue())


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    written = study(blocks=2)
    results = read(written.write(tmp_path / "run"))
    for table in ("systems", "ceilings", "trials", "requests", "steps", "divergences"):
        expected = [row for block in written.blocks for row in getattr(block, table)]
        assert list(getattr(results, table)) == expected
    assert results.plan == written.plan
    assert set(results.prompts.values()) == {
        prompt for block in written.blocks for prompt in block.prompts
    }
    assert results.manifest.blocks_done == 2
    assert results.manifest.ledger[-1].outcome == "completed"


def test_the_line_of_a_row_is_its_line_in_the_file(folder: Path) -> None:
    results = read(folder)
    row = results.requests[17]
    line = (folder / "requests.csv").read_text().splitlines()[results.line_of(row) - 1]
    assert line.startswith(f"{row.block},{row.cell},{int(row.warmup)},{row.request},")


def test_every_request_has_a_digest_anyone_can_recompute() -> None:
    # printf '504 3575 282' | sha256sum
    expected = "373b62517cac1a4b13a2577080dfde11a033b5c7b3e750421407f2ee15aab168"
    assert token_digest([504, 3575, 282]) == expected
    assert token_digest([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert token_digest([1, 23]) != token_digest([12, 3])


def test_one_changed_id_is_refused_with_file_row_and_digest(folder: Path) -> None:
    def change(table: list[list[str]]) -> None:
        ids = table[3][1].split(" ")
        ids[5] = str(int(ids[5]) + 1)
        table[3][1] = " ".join(ids)

    rewrite(folder / "outputs.csv", change)
    token_fault = next(fault for fault in faults_of(folder) if fault.rule == "REP006")
    assert (token_fault.file, token_fault.row, token_fault.column) == ("outputs.csv", 4, "sha256")
    new_ids = (folder / "outputs.csv").read_text().splitlines()[3].partition(",")[2]
    assert token_digest(map(int, new_ids.split())) in token_fault.message
    assert ("REP007", "outputs.csv") in rules_of(folder)


@pytest.mark.parametrize("name", [*FILES, "plan.json", "manifest.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert ("REP001", name) in rules_of(folder)


@pytest.mark.parametrize("name", [*FILES, "plan.json", "manifest.json"])
def test_an_emptied_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    assert ("REP001", name) in rules_of(folder)


@pytest.mark.parametrize("name", [*FILES, "plan.json"])
def test_any_changed_byte_is_caught_by_the_manifest(folder: Path, name: str) -> None:
    content = (folder / name).read_text()
    (folder / name).write_text(content.replace("day44", "day45").replace("sha256", "sha265"))
    if (folder / name).read_text() == content:  # a table without rows in a sound study
        (folder / name).write_text(content + content.splitlines()[0] + "\n")
    assert any(fault.file in {name, "manifest.json"} for fault in faults_of(folder))


@pytest.mark.parametrize("row_type", ROW_TYPES, ids=lambda row_type: row_type.FILE)
def test_a_missing_renamed_doubled_or_extra_column_is_named(tmp_path: Path, row_type: type) -> None:
    file = row_type.FILE  # type: ignore[attr-defined]
    first = dataclasses.fields(row_type)[0].name

    def drop(table: list[list[str]]) -> None:
        for row in table:
            del row[0]

    def rename(table: list[list[str]]) -> None:
        table[0][0] = "colour"

    def double(table: list[list[str]]) -> None:
        for row in table:
            row.append(row[0])

    def swap(table: list[list[str]]) -> None:
        for row in table:
            row[0], row[1] = row[1], row[0]

    messages = {}
    for change in (drop, rename, double, swap):
        path = study(blocks=1).write(tmp_path / change.__name__)
        rewrite(path / file, change)
        messages[change.__name__] = [
            (fault.message, fault.column) for fault in faults_of(path) if fault.rule == "REP003"
        ]
    assert messages["drop"] == [("lacks a column", first)]
    assert messages["rename"] == [("lacks a column", first), ("has an unknown column", "colour")]
    assert messages["double"] == [("has a column twice", first)]
    assert messages["swap"] == [("has its columns in another order", None)]


@pytest.mark.parametrize(
    ("file", "column", "value", "what"),
    [
        ("trials.csv", "wall_ns", "", "is empty"),
        ("trials.csv", "wall_ns", "12.5", "is not a whole number"),
        ("trials.csv", "wall_ns", "1e9", "is not a whole number"),
        ("trials.csv", "wall_ns", "+5", "is not a whole number"),
        ("trials.csv", "wall_ns", "007", "is not a whole number"),
        ("trials.csv", "wall_ns", "٣", "is not a whole number"),
        ("trials.csv", "wall_ns", "9" * 30, "is not a whole number"),
        ("trials.csv", "wall_ns", "9999999999999999999", "does not fit 64 bits"),
        ("trials.csv", "warmup", "yes", "is neither 0 nor 1"),
        ("trials.csv", "load_before", "nan", "is not a finite number"),
        ("trials.csv", "load_before", "inf", "is not a finite number"),
        ("trials.csv", "load_before", "1e999", "is not a finite number"),
        ("systems.csv", "arm", '=HYPERLINK("http://x")', "would be run as a formula"),
        ("systems.csv", "arm", "two\nlines", "holds a control character"),
        ("requests.csv", "holds_ns", "1:2 3", "is not a list of acquired:released"),
        ("requests.csv", "token_ns", "1  2", "is not a list of whole numbers"),
        ("requests.csv", "token_ns", "1_0", "is not a list of whole numbers"),
        ("outputs.csv", "token_ids", "1 x", "is not a list of whole numbers"),
    ],
)
def test_a_cell_of_the_wrong_kind_is_named_with_its_place(
    folder: Path, file: str, column: str, value: str, what: str
) -> None:
    def change(table: list[list[str]]) -> None:
        table[1][table[0].index(column)] = value

    rewrite(folder / file, change)
    fault = next(fault for fault in faults_of(folder) if fault.rule == "REP004")
    assert (fault.file, fault.row, fault.column) == (file, 2, column)
    assert fault.message.startswith(what)
    assert fault.value == value


def test_all_faults_are_reported_at_once(folder: Path) -> None:
    (folder / "steps.csv").unlink()
    rewrite(folder / "trials.csv", lambda table: table[1].__setitem__(8, "x"))
    rewrite(folder / "systems.csv", lambda table: table[0].__setitem__(1, "clock"))
    assert {("REP001", "steps.csv"), ("REP004", "trials.csv"), ("REP003", "systems.csv")} <= (
        rules_of(folder)
    )


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda content: b"\xef\xbb\xbf" + content, "byte-order mark"),
        (lambda content: content.replace(b"\n", b"\r\n"), "carriage return"),
        (lambda content: content.replace(b"cpu", b"c\xffu", 1), "not UTF-8"),
        (lambda content: content.replace(b"cpu", b"c\0u", 1), "zero byte"),
        (lambda content: content[:-7], "ends in the middle of a line"),
        (lambda content: content + b'"', "ends in the middle of a line"),
        (lambda content: content + b'"\n', "is not CSV"),
        (lambda content: content + b"1,2\n", "has 2 cells"),
        (lambda content: content.decode().encode("utf-16"), "not UTF-8"),
    ],
)
def test_a_spoiled_file_is_one_clear_fault(
    folder: Path, spoil: Callable[[bytes], bytes], what: str
) -> None:
    file = folder / "systems.csv"
    file.write_bytes(spoil(file.read_bytes()))
    assert any(fault.file == "systems.csv" and what in fault.message for fault in faults_of(folder))


def test_a_repeated_row_is_named_with_the_row_it_repeats(folder: Path) -> None:
    rewrite(folder / "requests.csv", lambda table: table.append(table[4]))
    fault = next(fault for fault in faults_of(folder) if fault.rule == "REP005")
    assert fault.message == "repeats the key of row 5"


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [
        ("requests", "prompt_sha256", "f" * 64),
        ("requests", "output_sha256", "f" * 64),
        ("requests", "block", 99),
        ("trials", "cell", "nobody/cpu/float32/1/day44"),
        ("trials", "launch", 999),
        ("steps", "block", 99),
        ("systems", "arm", "nobody"),
        ("systems", "machine", "sha256:elsewhere"),
    ],
)
def test_a_dangling_reference_is_refused_although_all_digests_fit(
    tmp_path: Path, table: str, field: str, value: object
) -> None:
    broken = study(blocks=1)
    first = getattr(broken.blocks[0], table)[0]
    broken.edit(
        table,
        lambda row: dataclasses.replace(row, **{field: value}),  # type: ignore[type-var]
        where=lambda row: row is first,
    )
    path = broken.write(tmp_path / "run", finish=False)
    with pytest.raises(ResultsError) as caught:
        read(path, require_complete=False)
    assert {fault.rule for fault in caught.value.faults} == {"REP008"}
    assert any(field in (fault.column or "") for fault in caught.value.faults)


@pytest.mark.parametrize("name", ["plan.json", "manifest.json"])
def test_another_schema_version_is_refused_as_such(folder: Path, name: str) -> None:
    document = json.loads((folder / name).read_text())
    document["schema"] = 2
    (folder / name).write_text(json.dumps(document) + "\n")
    assert ("REP002", name) in rules_of(folder)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"seed": 44', '"seed": "44"', "is not int"),
        ('"seed": 44', '"seed": true', "is not int"),
        ('"seed": 44', '"seed": NaN', "not finite"),
        ('"seed": 44', '"sead": 44', "is an unknown key"),
        ('"seed": 44,', "", "is missing"),
        ('"seed": 44', '"seed": 44, "seed": 45', "stands twice"),
        ('"seed": 44', '"seed" 44', "is not JSON"),
    ],
)
def test_a_plan_that_is_not_a_plan_is_named(folder: Path, old: str, new: str, what: str) -> None:
    text = (folder / "plan.json").read_text()
    assert old in text
    (folder / "plan.json").write_text(text.replace(old, new))
    assert any(f.file == "plan.json" and what in f.message for f in faults_of(folder))


def test_a_digest_removed_from_the_manifest_is_missed(folder: Path) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    document["files"] = [file for file in document["files"] if file["name"] != "trials.csv"]
    (folder / "manifest.json").write_text(json.dumps(document) + "\n")
    assert [fault.message for fault in faults_of(folder)] == ["has no digest of trials.csv"]


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("bytes", 1, "bytes {now} (the manifest says 1)"),
        ("rows", 0, "rows {now} (the manifest says 0)"),
        ("rows", None, "rows {now} (the manifest says None)"),
    ],
)
def test_length_and_rows_of_the_manifest_hold_as_its_digest_does(
    folder: Path, key: str, value: int | None, what: str
) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    (entry,) = [file for file in document["files"] if file["name"] == "trials.csv"]
    now, entry[key] = entry[key], value
    (folder / "manifest.json").write_text(json.dumps(document) + "\n")
    (fault,) = faults_of(folder)
    assert (fault.rule, fault.file) == ("REP007", "trials.csv")
    assert fault.message.endswith(f"it has {what.format(now=now)}")


def test_a_file_that_the_manifest_lists_twice_is_refused(folder: Path) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    document["files"] = [dict(document["files"][3], sha256="f" * 64), *document["files"]]
    (folder / "manifest.json").write_text(json.dumps(document) + "\n")
    (fault,) = faults_of(folder)
    assert (fault.rule, fault.message) == ("REP007", "lists a file twice")
    assert fault.value == document["files"][0]["name"]


def test_a_stray_file_a_link_and_a_file_for_a_folder_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "notes.txt").write_text("best of ten")
    outside = tmp_path / "outside.csv"
    (folder / "steps.csv").rename(outside)
    (folder / "steps.csv").symlink_to(outside)
    assert {("REP001", "notes.txt"), ("REP001", "steps.csv")} <= rules_of(folder)
    assert [fault.message for fault in faults_of(outside)] == ["is not a folder"]


def test_an_unfinished_sweep_is_refused_as_unfinished(tmp_path: Path) -> None:
    path = study(blocks=1).write(tmp_path / "run", finish=False)
    assert [fault.rule for fault in faults_of(path)] == ["REP009"]
    assert read(path, require_complete=False).manifest.blocks_done == 1
