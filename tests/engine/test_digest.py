"""The digest of weights: the same for the same tensors, another for any other."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch

from nanoserve import LLM
from nanoserve.models.digest import WeightsDigest, weights_digest


def test_the_bytes_are_those_of_the_documentation():
    tensors = {"b": torch.tensor([[1.0, 2.0]]), "a": torch.tensor([3], dtype=torch.int32)}
    wanted = hashlib.sha256(
        b"a\0int32\0001\0" + b"\3\0\0\0" + b"b\0float32\0001,2\0" + b"\0\0\x80\x3f\0\0\0\x40"
    )
    assert weights_digest(tensors.items()) == f"sha256:{wanted.hexdigest()}"


def base() -> dict[str, torch.Tensor]:
    return {"x": torch.arange(6.0).view(2, 3), "y": torch.ones(4)}


def test_order_and_memory_layout_do_not_matter():
    tensors = base()
    strided = {"y": tensors["y"], "x": tensors["x"].T.contiguous().T}
    assert not strided["x"].is_contiguous()
    assert weights_digest(strided.items()) == weights_digest(tensors.items())


@pytest.mark.parametrize(
    "change",
    [
        {"x": torch.arange(6.0).view(3, 2)},
        {"x": torch.arange(6.0).view(2, 3).bfloat16()},
        {"y": torch.tensor([1.0, 1.0, 1.0, 1.0000001])},
        {"z": torch.ones(1)},
    ],
    ids=["shape", "dtype", "last bit", "one more"],
)
def test_any_difference_shows(change: dict[str, torch.Tensor]):
    assert weights_digest({**base(), **change}.items()) != weights_digest(base().items())


def test_a_renamed_tensor_shows():
    renamed = {"x": base()["x"], "w": base()["y"]}
    assert weights_digest(renamed.items()) != weights_digest(base().items())


def test_a_head_is_left_out_only_when_it_is_the_embedding_itself():
    embedding = torch.ones(3, 2)
    bare = {"model.embed_tokens.weight": embedding}
    tied = {**bare, "lm_head.weight": embedding}
    untied = {**bare, "lm_head.weight": embedding.clone()}
    assert weights_digest(tied.items()) == weights_digest(bare.items())
    assert weights_digest(untied.items()) != weights_digest(bare.items())


def test_streamed_tensors_must_ascend():
    digest = WeightsDigest()
    digest.update("b", torch.ones(1))
    with pytest.raises(ValueError, match="'a' came after 'b'"):
        digest.update("a", torch.ones(1))


@pytest.mark.parametrize("tied", [False, True])
def test_the_engine_and_a_transformers_state_dict_agree(tied: bool, make_reference: Any):
    reference = make_reference(tie_word_embeddings=tied)
    llm = LLM(str(reference.folder))
    assert llm.engine.weights_digest == weights_digest(reference.model.state_dict().items())


def test_the_digest_is_that_of_the_dtype_that_runs(make_reference: Any):
    reference = make_reference()
    llm = LLM(str(reference.folder), dtype="bfloat16")
    halved = {name: tensor.bfloat16() for name, tensor in reference.model.state_dict().items()}
    assert llm.engine.weights_digest == weights_digest(halved.items())
