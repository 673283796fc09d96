"""The command line of the gate: exit status, formats, explanations."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from nanoserve_bench.commands.check import check
from nanoserve_bench.commands.markdown import as_markdown
from nanoserve_bench.commands.rules import explain, rules
from nanoserve_bench.plan import AcknowledgedRefusal
from nanoserve_bench.soundness import RULES
from nanoserve_bench.soundness.judge import judge_path
from support.mutants.base import altered_token
from support.rebuild import engine, set_plan
from support.sound import study


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study().write(tmp_path_factory.mktemp("sound") / "run")


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return altered_token().write(tmp_path_factory.mktemp("refused") / "100%, run")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    broken = altered_token()
    refusal = AcknowledgedRefusal(cell=engine(4), rule="PAIR005", reason="a known near-tie")
    set_plan(broken, acknowledged=(refusal,))
    return broken.write(tmp_path_factory.mktemp("expected") / "run")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(check, [str(argument) for argument in arguments])


def test_a_sound_folder_is_status_0_and_shows_its_ratios(sound: Path) -> None:
    result = run(sound)
    assert result.exit_code == 0
    assert f"{sound}: sound" in result.output
    assert f"{engine(8)} against hf-generate/cpu/float32/1/day44: 8." in result.output
    assert "faster" in result.output
    assert "nanoserve, 1 to 2 slots: 1." in result.output
    assert "rules examined" in result.output


def test_a_refused_folder_is_status_1_and_says_where(refused: Path) -> None:
    result = run(refused)
    assert result.exit_code == 1
    assert "REFUSED" in result.output
    assert "PAIR005 same-output-tokens" in result.output
    assert "request r3, position 5" in result.output
    assert f"{engine(4)} against hf-generate/cpu/float32/1/day44: refused by PAIR005" in (
        result.output
    )


def test_one_refused_folder_among_several_is_status_1(sound: Path, refused: Path) -> None:
    result = run(sound, refused)
    assert result.exit_code == 1
    assert result.output.index(str(sound)) < result.output.index(str(refused))


def test_files_of_a_folder_stand_for_it_once(sound: Path, refused: Path) -> None:
    result = run(sound / "plan.json", sound / "requests.csv", sound)
    assert result.exit_code == 0
    assert result.output.count(f"{sound}: sound") == 1
    assert run(sound / "plan.json", refused / "requests.csv").exit_code == 1


def test_a_file_elsewhere_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for name in ("notes.txt", "requests.csv"):
        result = run(tmp_path / name)
        assert result.exit_code == 1
        assert f"{name}: is not a folder" in result.output


def test_an_acknowledged_refusal_is_status_0_and_shown(expected: Path) -> None:
    result = run(expected)
    assert result.exit_code == 0
    assert "acknowledged PAIR005" in result.output
    assert "a known near-tie" in result.output


@pytest.mark.parametrize("arguments", [(), ("--format", "yaml", "x"), ("--force", "x")])
def test_what_cannot_be_understood_is_status_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path / "nothing")
    assert result.exit_code == 1
    assert "REP001" in result.output


def test_the_folder_above_results_folders_is_one_finding(sound: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("notes\n")
    for name in ("a", "b"):
        shutil.copytree(sound, tmp_path / name)
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "is no results folder, and holds 2 folder(s) that look like one" in result.output
    assert f"{tmp_path}/*" in "".join(result.output.split())
    assert "does not belong into" not in result.output


def test_json_has_everything(sound: Path, refused: Path) -> None:
    document = json.loads(run("--format", "json", sound, refused).output)
    good, bad = document["folders"]
    assert (document["ok"], good["ok"], bad["ok"]) == (False, True, False)
    assert [rule["code"] for rule in good["rules"]] == [rule.code for rule in RULES]
    pair = next(p for p in good["comparisons"] if p["candidate"] == engine(8))
    assert pair["sound"]
    assert pair["verdict"] == "faster"
    assert pair["speedup"]["low"] < pair["speedup"]["point"] < pair["speedup"]["high"]
    hole = next(p for p in bad["comparisons"] if p["candidate"] == engine(4))
    assert hole == {
        "baseline": "hf-generate/cpu/float32/1/day44",
        "candidate": engine(4),
        "kind": "rival",
        "sound": False,
        "refused_by": ["PAIR005"],
    }
    finding = bad["findings"][0]
    assert (finding["request"], finding["position"], finding["acknowledged"]) == ("r3", 5, False)


def test_github_annotates_the_line(refused: Path) -> None:
    output = run("--format", "github", refused).output
    line = output.splitlines()[0]
    assert line.startswith("::error file=")
    assert "100%25%2C run/requests.csv,line=" in line
    assert "title=PAIR005 same-output-tokens::" in line
    assert line.count("::") == 2
    assert line.endswith(f"%0A{judge_path(refused).findings[0].hint}")


def test_github_only_notices_what_is_acknowledged(expected: Path) -> None:
    lines = run("--format", "github", expected).output.splitlines()
    assert lines
    assert all(line.startswith("::notice ") for line in lines)


def test_junit_has_a_case_per_rule(sound: Path, refused: Path) -> None:
    root = ET.fromstring(run("--format", "junit", sound, refused).output)  # noqa: S314
    good, bad = root.findall("testsuite")
    assert len(good.findall("testcase")) == len(RULES)
    assert (good.get("failures"), bad.get("failures")) == ("0", "1")
    failed = [case.get("name") for case in bad if case.find("failure") is not None]
    assert failed == ["PAIR005 same-output-tokens"]
    skipped = [case.get("name") for case in good if case.find("skipped") is not None]
    assert "REP014 page-numbers-backed" in skipped


def test_sarif_names_rules_and_lines(refused: Path, expected: Path) -> None:
    document = json.loads(run("--format", "sarif", refused, expected).output)
    assert document["version"] == "2.1.0"
    (analysis,) = document["runs"]
    assert len(analysis["tool"]["driver"]["rules"]) == len(RULES)
    result = analysis["results"][0]
    assert result["ruleId"] == "PAIR005"
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"].endswith("requests.csv")
    assert location["region"]["startLine"] > 1
    assert [("suppressions" in r) for r in analysis["results"]] == [
        str(expected) in r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for r in analysis["results"]
    ]


def test_markdown_says_what_came_out_and_shows_each_ratio(sound: Path) -> None:
    text = run("--format", "markdown", sound).output
    assert text.startswith(f"### {study().plan.run_id}: sound\n")
    assert "**faster** in " in text
    (row,) = [line for line in text.splitlines() if "nanoserve, 8 slots, day44" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == "nanoserve, 8 slots, day44, cpu float32"
    assert cells[1] == "hf-generate"
    assert re.fullmatch(r"8\.\d{3}x \(8\.\d{3} to 8\.\d{3}\)", cells[2])
    assert [re.sub(r"\d", "0", cell) for cell in cells[3:5]] == ["0.000x", "0.000x"]
    assert cells[5] == "faster"
    assert "<details>" not in text


def test_markdown_has_no_number_for_what_is_refused(refused: Path) -> None:
    text = run("--format", "markdown", refused).output
    assert re.search(r": refused, \d finding\(s\)\n", text)
    assert "**refused** in 1 of " in text
    (row,) = [line for line in text.splitlines() if "nanoserve, 4 slots" in line]
    assert row.endswith("| - | - | - | refused by PAIR005 |")
    assert "- PAIR005 " in text
    assert "request r3, position 5" in text


def test_markdown_does_not_count_a_self_comparison_and_escapes(tmp_path: Path) -> None:
    text = run("--format", "markdown", study().write(tmp_path / "sound")).output
    assert f" of {sum(c.kind != 'self' for c in study().plan.comparisons)}" in text
    assert as_markdown([judge_path(tmp_path / "no_such*")]).startswith("### no\\_such\\*: refused")


def test_rules_are_listed_and_explained() -> None:
    listing = CliRunner().invoke(rules, []).output
    assert [line.split()[0] for line in listing.splitlines()] == [rule.code for rule in RULES]
    for rule in RULES:
        text = CliRunner().invoke(explain, [rule.code]).output
        assert rule.name in text
        assert " ".join(text.split()).count(rule.remedy) == 1


def test_an_unknown_code_is_status_2() -> None:
    result = CliRunner().invoke(explain, ["RUN000"])
    assert result.exit_code == 2
    assert "did you mean RUN0" in result.output
    assert "did you mean PAIR005?" in CliRunner().invoke(explain, ["pair5"]).output
    assert "`nanoserve-bench rules` lists them" in CliRunner().invoke(explain, ["other"]).output


def test_the_gate_runs_where_torch_is_absent(refused: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from nanoserve_bench.commands.check import check\n"
        f"check([{str(refused)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 1
    assert "PAIR005" in done.stdout
    assert "Traceback" not in done.stderr
