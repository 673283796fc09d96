"""Canonical tensors without torch: the same names, the same bytes, the same digest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nanoserve.models.digest import weights_digest
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.systems.canonical import (
    UnreadableWeightsError,
    bytes_per_step,
    canonical_tensors,
    digest,
    missing_from,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": False}))
    return tmp_path


def test_the_digest_is_the_one_that_everybody_else_reports(tiny: ModelFolder) -> None:
    expected = weights_digest(load_file(tiny.path / "model.safetensors").items())
    assert digest(canonical_tensors(tiny.path)) == expected


def test_shorter_types_are_widened_exactly_and_files_are_put_together(folder: Path) -> None:
    source = torch.randn(4, 6)
    save_file({"a": source.bfloat16(), "b": source.half()}, folder / "1.safetensors")
    save_file({"c": source, "x.rotary_emb.inv_freq": source[0].clone()}, folder / "2.safetensors")
    wide = {"a": source.bfloat16().float(), "b": source.half().float(), "c": source}
    assert digest(canonical_tensors(folder)) == weights_digest(wide.items())


def test_a_tied_head_that_lies_in_the_file_is_left_out(folder: Path) -> None:
    table, other = torch.randn(8, 4), torch.randn(4)
    tensors = {"lm_head.weight": table, "model.embed_tokens.weight": table.clone(), "n": other}
    save_file(tensors, folder / "model.safetensors")
    untied = canonical_tensors(folder)
    assert "lm_head.weight" in untied
    assert bytes_per_step(untied) == 4 * (8 * 4 + 4)  # the head, and not the table
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    tied = canonical_tensors(folder)
    assert "lm_head.weight" not in tied
    assert bytes_per_step(tied) == 4 * (8 * 4 + 4)


def test_what_cannot_be_read_is_named(folder: Path) -> None:
    with pytest.raises(UnreadableWeightsError, match="holds no tensor"):
        canonical_tensors(folder)
    save_file({"a": torch.ones(3, dtype=torch.int8)}, folder / "1.safetensors")
    with pytest.raises(UnreadableWeightsError, match=r"1\.safetensors: a is I8"):
        canonical_tensors(folder)
    for name in ("1", "2"):
        save_file({"a": torch.ones(3)}, folder / f"{name}.safetensors")
    with pytest.raises(UnreadableWeightsError, match="there twice"):
        canonical_tensors(folder)


def test_tensors_are_found_among_constants_by_their_bytes() -> None:
    source = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    tensors = {"a": source, "b": source[0].copy()}
    constants = [np.ascontiguousarray(source.T), source[0].reshape(1, 1, 4)]
    assert missing_from(tensors, constants) == []
    assert missing_from(tensors, constants[:1]) == ["b"]
    nearly = source.copy()
    nearly[2, 3] = np.nextafter(nearly[2, 3], np.float32(9))
    assert missing_from(tensors, [nearly, constants[1]]) == ["a"]


def test_neither_reading_nor_digesting_needs_torch() -> None:
    code = "import sys, nanoserve_bench.systems.canonical; sys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0
