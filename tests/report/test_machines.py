"""What programs read: the badge, the verdict, `llms.txt`, the feed of versions."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from nanoserve_report import badge, branch, feed, llms
from nanoserve_report import site as sites
from nanoserve_report.book import Book
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load

SVG = "{http://www.w3.org/2000/svg}"
ATOM = f"{{{feed.ATOM}}}"
SITE = sites.Site(name="a & b", description="It <measures>.", url="https://example.org/x/")
VERSIONS = (
    feed.Version(name="0.2", aliases=("latest",), verdict="3 sound, 0 refused",
                 newest="2026-01-02T03:04:05+02:00"),
    feed.Version(name="0.1", aliases=(), verdict="1 sound, 0 refused", newest=""),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words", "colour"),
    [
        ("one_root", "1 sound, 0 refused", badge.GOOD),
        ("three_root", "3 sound, 0 refused", badge.GOOD),
        ("refused_root", "0 sound, 1 refused", badge.BAD),
        ("acknowledged_root", "1 sound, 0 refused", badge.GOOD),
    ],
)
def test_the_badge_follows_the_verdict(
    name: str, words: str, colour: str, request: pytest.FixtureRequest
) -> None:
    drawn = badge.svg(load(request.getfixturevalue(name)))
    root = ET.fromstring(drawn)  # noqa: S314 - our own
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"nanoserve gate: {words}"
    assert [text.text for text in root.iter(f"{SVG}text")] == ["nanoserve gate", words]
    assert f'fill="{colour}"' in drawn
    for other in {badge.GOOD, badge.BAD, badge.MUTED} - {colour}:
        assert other not in drawn


def test_a_site_without_results_is_neither_good_nor_bad() -> None:
    drawn = badge.svg(Study(folders=()))
    assert "nothing measured" in drawn
    assert badge.GOOD not in drawn
    assert badge.BAD not in drawn


def test_texts_of_the_badge_stay_inside_it(one: Study) -> None:
    root = ET.fromstring(badge.svg(one))  # noqa: S314 - our own
    width = float(root.get("width", "0"))
    ends = [
        float(text.get("x", "0")) + float(text.get("textLength", "0"))
        for text in root.iter(f"{SVG}text")
    ]
    assert len(ends) == 2
    assert max(ends) <= width


def test_the_verdict_names_what_is_refused_and_by_which_rule(refused: Study) -> None:
    said = json.loads(compose(refused).files["results/verdict.json"])
    assert (said["ok"], said["words"]) == (False, "0 sound, 1 refused")
    (folder,) = said["folders"]
    assert folder["rules"] == ["PAIR005"]
    assert said["newest"] == folder["planned_at"] == refused.newest


def test_llms_txt_lists_pages_raw_rows_and_figures(
    one: Study, one_book: Book, tmp_path: Path
) -> None:
    (tmp_path / "read.md").write_text("---\ntitle: Read: this\n---\n# Other\n")
    (tmp_path / "index.md").write_text("# Home\n")
    text = llms.text(one_book, one, tmp_path, SITE)
    assert text.startswith("# a & b\n\n> It <measures>.\n")
    for line in (
        "- [Home](./)",
        "- [Read: this](read/)",
        "- [What each doubling is worth](results/): What each doubling of the batch",
        "- [20260101-cpu-day44-0123456/requests.csv](results/runs/20260101-cpu-day44-0123456/data/",
    ):
        assert f"\n{line}" in text
    assert "1 sound, 0 refused" in text
    addresses = [line.partition("](")[2].partition(")")[0] for line in text.splitlines()]
    for address in filter(None, addresses):
        name = address.removeprefix("./")
        page = f"{name.rstrip('/')}.md", f"{name}index.md"
        assert any(n in one_book.files or (tmp_path / n).is_file() for n in (name, *page)), address
    figures = [name for name in one_book.files if name.endswith(".svg") and "figures/" in name]
    assert figures
    for name in figures:
        assert f"]({name.removesuffix('.svg')}.csv)" in text


def test_the_feed_is_atom_and_dates_versions_by_what_was_measured() -> None:
    root = ET.fromstring(feed.atom(SITE, VERSIONS))  # noqa: S314 - our own
    assert root.tag == f"{ATOM}feed"
    for tag in ("title", "id", "updated"):
        assert len(root.findall(f"{ATOM}{tag}")) == 1
    assert root.findtext(f"{ATOM}updated") == "2026-01-02T01:04:05Z"
    assert root.findtext(f"{ATOM}author/{ATOM}name") == "a & b"
    entries = root.findall(f"{ATOM}entry")
    assert [entry.findtext(f"{ATOM}id") for entry in entries] == [
        "https://example.org/x/0.2/",
        "https://example.org/x/0.1/",
    ]
    assert [entry.findtext(f"{ATOM}updated") for entry in entries] == [
        "2026-01-02T01:04:05Z",
        feed.NEVER,
    ]
    assert entries[0].findtext(f"{ATOM}title") == "a & b 0.2 (latest)"
    assert entries[0].findtext(f"{ATOM}summary") == "Results folders: 3 sound, 0 refused."


def test_the_list_of_versions_leads_to_each_ones_own() -> None:
    text = feed.llms(SITE, VERSIONS).decode()
    assert "- [0.2 (latest)](0.2/llms.txt): results folders: 3 sound, 0 refused\n" in text
    assert "- [0.1](0.1/llms.txt)" in text


def test_the_branchs_root_is_written_once(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    git("init", "-q", "-b", branch.BRANCH)
    listed = [{"version": name, "title": name, "aliases": []} for name in ("0.2", "0.1")]
    (tmp_path / "versions.json").write_text(json.dumps(listed))
    (tmp_path / "0.2/results").mkdir(parents=True)
    verdict = {"words": "1 sound, 0 refused", "newest": "2026-01-02T03:04:05Z"}
    (tmp_path / "0.2/results/verdict.json").write_text(json.dumps(verdict))
    git("add", "-A")
    git("commit", "-q", "-m", "x")
    identity = {f"GIT_{role}_{key}": "a" for role in ("AUTHOR", "COMMITTER")
                for key in ("NAME", "EMAIL")}  # fmt: skip
    assert [version.name for version in branch.versions(tmp_path)] == ["0.2"]
    before = branch.head(tmp_path)
    branch.list_versions(tmp_path, SITE, identity)
    after = branch.head(tmp_path)
    assert before != after
    assert git("show", f"{after}:feed.xml").encode() == feed.atom(SITE, branch.versions(tmp_path))
    assert git("show", "--stat", "--format=%s").startswith("List the published versions")
    assert git("ls-tree", "--name-only", "HEAD").split() == [
        "0.2", "feed.xml", "llms.txt", "versions.json",
    ]  # fmt: skip
    branch.list_versions(tmp_path, SITE, identity)
    assert branch.head(tmp_path) == after


def test_a_site_says_its_name_and_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sites.read(tmp_path) == sites.Site(name=tmp_path.name, description="", url="")
    (tmp_path / "mkdocs.yml").write_text(
        'site_name: mine\nsite_url: !ENV [SITE_URL, "http://localhost:8000"]\n'
    )
    monkeypatch.setenv("SITE_URL", "https://example.org/mine")
    assert sites.read(tmp_path).url == "https://example.org/mine/"
    monkeypatch.delenv("SITE_URL")
    assert sites.read(tmp_path).url == "http://localhost:8000/"
