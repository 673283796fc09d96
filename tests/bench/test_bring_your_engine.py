"""The package of the page "Bring your engine": built, installed elsewhere, swept and judged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nanoserve import LLM, SamplingParams
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.soundness.judge import judge_path

PAGE = Path(__file__).parents[2] / "docs/tutorials/bring-your-engine.md"
OF_THE_CLOCK = {"RUN011", "RUN014", "RUN018"}
"""Rules that other people's work on the machine of the tests can bring up."""
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files as a package of their own, installed into a folder outside of the tree."""
    source, target = tmp_path_factory.mktemp("my-engine-bench"), tmp_path_factory.mktemp("site")
    files = dict(FILE.findall(PAGE.read_text("utf-8")))
    assert sorted(files) == ["my_engine_bench.py", "pyproject.toml"]
    for name, text in files.items():
        (source / name).write_text(text)
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run(
        [*(sys.executable, "-m", "pip", "install", "-q"), *offline, "--target", target, source],
        cwd=source,
        check=True,
    )
    return target


@pytest.fixture
def bench(installed: Path, cache: Path) -> Callable[..., tuple[int, str]]:
    """Run the command line where the package is installed: exit code and output."""

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nanoserve_bench", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
            cwd=installed,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(installed)]),
                "NANOSERVE_CACHE": str(cache),
            },
        )
        return done.returncode, done.stdout

    return run


def test_the_list_of_systems_has_it(bench: Callable[..., tuple[int, str]]) -> None:
    code, text = bench("systems")
    assert code == 0
    (line,) = [line for line in text.splitlines() if line.startswith("my-engine ")]
    assert re.split(r"  +", line.strip())[1:4] == ["0.1.0", "serial", "holds first_token tokens"]


def test_it_is_swept_and_judged(
    bench: Callable[..., tuple[int, str]], tiny: ModelFolder, tmp_path: Path
) -> None:
    _, text = bench(
        *("sweep", "--model", tiny.name, "--device", "cpu", "--threads", "1"),
        *("--arm", "my-engine", "--blocks", "1", "--out", str(tmp_path), "--run-id", "mine"),
    )
    assert "results: " in text, text
    results = read(tmp_path / "mine")
    assert {row.system for row in results.systems} == {"my-engine"}
    code, checked = bench("check", str(results.path))
    assert code == 1
    found = {finding.rule for finding in judge_path(results.path).findings}
    assert "STAT001" in found  # one block is too few for a ratio
    faults = {rule for rule in found if rule.startswith(("RUN", "PAIR", "REP"))}
    assert not faults - OF_THE_CLOCK, checked
    _says_what_this_engine_says(results, tiny)


def _says_what_this_engine_says(results: ResultSet, tiny: ModelFolder) -> None:
    engine = LLM(str(tiny.path), max_slots=8)
    rows = [row for row in results.requests if not row.warmup]
    prompts = [list(results.prompts[row.prompt_sha256]) for row in rows]
    params = SamplingParams(max_tokens=rows[0].max_tokens, ignore_eos=True)
    for row, output in zip(rows, engine.generate(prompts, params), strict=True):
        assert results.outputs[row.output_sha256] == tuple(output.token_ids)
    assert {row.weights for row in results.systems} == {engine.engine.weights_digest}
