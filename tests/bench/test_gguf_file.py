"""A float32 GGUF holds the canonical tensors, as others that read GGUF see them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nanoserve import LLM, SamplingParams
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.systems.canonical import canonical_tensors, digest, read_config
from nanoserve_bench.systems.gguf_file import NoGgufError, read_gguf, write_gguf


def test_what_is_written_is_read_back_to_the_bit(tiny: ModelFolder, tmp_path: Path) -> None:
    config, tensors = read_config(tiny.path), canonical_tensors(tiny.path)
    write_gguf(tmp_path / "model.gguf", config, tensors)
    assert digest(read_gguf(tmp_path / "model.gguf", config)) == digest(tensors)


def test_another_reader_of_gguf_generates_the_same_from_it(
    tiny: ModelFolder, tmp_path: Path
) -> None:
    """The order of rows is right: read back by the same code, a wrong one would agree, too."""
    write_gguf(tmp_path / "model.gguf", read_config(tiny.path), canonical_tensors(tiny.path))
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    prompt = [5, 6, 7, 8, 9, 10, 11]
    outputs = [
        LLM(str(path), max_slots=1, max_model_len=32).generate([prompt], params)[0].token_ids
        for path in (tiny.path, tmp_path / "model.gguf")
    ]
    assert outputs[0] == outputs[1]


def test_a_tensor_that_was_changed_shows_in_the_digest(tiny: ModelFolder, tmp_path: Path) -> None:
    config, tensors = read_config(tiny.path), canonical_tensors(tiny.path)
    name = "model.layers.0.self_attn.k_proj.weight"
    changed = tensors | {name: np.roll(tensors[name], 1, axis=0)}
    write_gguf(tmp_path / "model.gguf", config, changed)
    assert digest(read_gguf(tmp_path / "model.gguf", config)) != digest(tensors)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM with rope type default"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope type llama3"),
        ({"num_hidden_layers": 1}, "with a tensor model.layers.1"),
    ],
)
def test_what_would_run_wrongly_is_not_written(
    tiny: ModelFolder, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    with pytest.raises(NoGgufError, match=reason):
        write_gguf(
            tmp_path / "m.gguf", read_config(tiny.path) | change, canonical_tensors(tiny.path)
        )
