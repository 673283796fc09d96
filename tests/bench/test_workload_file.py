"""Files of requests: read whole or refused with every fault and its line."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from nanoserve_bench.errors import PlanError
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import RequestLengths
from nanoserve_bench.workload import Vocabulary
from nanoserve_bench.workload_file import WorkloadFile, read_workload

MODEL = ModelFolder(
    name="a-model",
    path=Path("nowhere"),
    source="none",
    vocabulary=Vocabulary(size=500, special=frozenset()),
    tokenizer="none",
    weight_bytes=1,
)


def written(path: Path, *lines: object) -> Path:
    text = "".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines)
    path.write_text(text, encoding="utf-8")
    return path


def test_token_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    path = written(
        tmp_path / "mine.jsonl",
        {"prompt_token_ids": [3, 4], "max_tokens": 5},
        {"max_tokens": 1, "prompt_token_ids": [499]},
    )
    assert read_workload(path, MODEL) == WorkloadFile(
        name="mine",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        prompts=((3, 4), (499,)),
        max_tokens=(5, 1),
    )


def test_text_goes_through_the_models_own_tokenizer(tmp_path: Path) -> None:
    words = {"unknown": 0, "hello": 7, "caf\u00e9": 9}
    unknown = "unknown"
    tokenizer = Tokenizer(WordLevel(words, unk_token=unknown))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = written(tmp_path / "texts.jsonl", {"prompt": "hello caf\u00e9 you", "max_tokens": 2})
    model = replace(MODEL, path=tmp_path)
    assert read_workload(path, model).prompts == ((7, 9, 0),)
    path = written(tmp_path / "texts.jsonl", {"prompt": " ", "max_tokens": 2})
    with pytest.raises(PlanError, match="1: prompt has no tokens"):
        read_workload(path, model)


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    path = written(tmp_path / "texts.jsonl", {"prompt": "hello", "max_tokens": 2})
    with pytest.raises(PlanError, match=r"tokenizer.json cannot be used"):
        read_workload(path, replace(MODEL, path=tmp_path))


def test_text_without_a_tokenizer_is_refused_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path / "texts.jsonl", {"prompt": "hello", "max_tokens": 2})
    with pytest.raises(PlanError, match=r"texts.jsonl:1: a-model has no tokenizer.json"):
        read_workload(path, MODEL)


GOOD = {"prompt_token_ids": [1, 2], "max_tokens": 3}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ([1], "is not an object"),
        ({**GOOD, "temperature": 1}, "unknown key 'temperature'"),
        ({"max_tokens": 3}, "one of the two"),
        ({**GOOD, "prompt": "x"}, "one of the two"),
        ({"prompt_token_ids": [5]}, "max_tokens is missing"),
        ({"prompt_token_ids": [5], "max_tokens": 0}, "above 0: 0"),
        ({"prompt_token_ids": [5], "max_tokens": True}, "above 0: True"),
        ({"prompt_token_ids": [5], "max_tokens": 2.0}, "above 0: 2.0"),
        ({"prompt_token_ids": [], "max_tokens": 3}, "no list of whole numbers"),
        ({"prompt_token_ids": [1.5], "max_tokens": 3}, "no list of whole numbers"),
        (
            {"prompt_token_ids": [500], "max_tokens": 3},
            "holds 500, and the ids of a-model are 0 to",
        ),
        ({"prompt_token_ids": [-1], "max_tokens": 3}, "holds -1"),
        ({"prompt": "", "max_tokens": 3}, "prompt is no text"),
        ({"prompt": 7, "max_tokens": 3}, "prompt is no text"),
        ({**GOOD, "max_tokens": 9}, "repeats the prompt of line 1"),
    ],
)
def test_a_bad_line_is_named_with_file_and_line(tmp_path: Path, line: object, message: str) -> None:
    path = written(tmp_path / "bad.jsonl", GOOD, line)
    with pytest.raises(PlanError) as caught:
        read_workload(path, MODEL)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_bad_lines_are_told_at_once_up_to_a_number(tmp_path: Path) -> None:
    path = written(tmp_path / "bad.jsonl", *["x"] * 23)
    with pytest.raises(PlanError) as caught:
        read_workload(path, MODEL)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines[:-1]] == [str(n) for n in range(1, 21)]
    assert lines[-1] == "and 3 more"


@pytest.mark.parametrize("name", [".jsonl", "day44.jsonl", "a b.jsonl", "=x.jsonl"])
def test_a_name_that_cannot_stand_in_a_table_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PlanError, match="rename the file"):
        read_workload(written(tmp_path / name, GOOD), MODEL)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "caf\xe9"}\n')
    for name, message in (
        ("empty", "holds no request"),
        ("latin", "cannot be read"),
        ("missing", "cannot be read"),
    ):
        with pytest.raises(PlanError, match=message):
            read_workload(tmp_path / f"{name}.jsonl", MODEL)


def file_of(lines: int) -> WorkloadFile:
    return WorkloadFile(
        name="mine",
        sha256="abc",
        prompts=tuple((n, n) for n in range(lines)),
        max_tokens=tuple(range(1, lines + 1)),
    )


def test_a_file_is_dealt_out_over_the_blocks() -> None:
    plan = file_of(23).planned(blocks=5, slots=())
    assert (plan.name, plan.requests, plan.slots, plan.source) == (
        "mine",
        4,
        (1, 2, 4),
        "sha256:abc",
    )
    assert len(plan.lengths) == 20
    assert plan.of_block(4)[-1] == RequestLengths(prompt_tokens=2, new_tokens=20)
    assert plan.new_tokens == 20
    assert file_of(23).planned(blocks=5, slots=(3,)).slots == (3,)
    assert max(file_of(500).planned(blocks=5, slots=()).slots) == 32


def test_a_file_with_too_few_requests_for_its_blocks_is_refused() -> None:
    with pytest.raises(PlanError, match=r"mine.jsonl has 4 request\(s\), and 5 blocks may run"):
        file_of(4).planned(blocks=5, slots=())
