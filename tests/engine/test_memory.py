"""Loading holds the weights once: not their file as well, and no second layout of them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nanoserve.models.hf_config import as_hf_config
from nanoserve.models.parameters import parameter_shapes
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS

CONFIG = replace(
    SYNTHETIC_CONFIGS["tiny-llama"],
    hidden_size=512,
    intermediate_size=2048,
    num_layers=8,
    num_heads=8,
    num_kv_heads=8,
    head_dim=64,
)
WEIGHTS = 4 * sum(torch.Size(shape).numel() for shape in parameter_shapes(CONFIG).values())
"""Bytes of all tensors in float32: 136 MB."""
IN_PASSING = 70 * 10**6
"""A layer before it is packed and while it is, and what a step takes; half of the weights."""

SCRIPT = """
import sys
from pathlib import Path
from nanoserve import LLM, SamplingParams

def memory(name):
    status = Path("/proc/self/status").read_text()
    return int(status.partition(name + ":")[2].split()[0]) * 1024

def generate(model):
    llm = LLM(model, kernel=sys.argv[2], kv_pool_tokens=64, max_slots=int(sys.argv[3]))
    llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))

generate("synthetic:tiny-llama")  # what the libraries take for themselves, however small the model
before = memory("VmRSS")
generate(sys.argv[1])
print(memory("VmHWM") - before)
"""


def in_safetensors(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(as_hf_config(CONFIG)))
    tensors = {name: torch.zeros(shape) for name, shape in parameter_shapes(CONFIG).items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def in_gguf(folder: Path) -> Path:
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONFIG.max_position)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_block_count(CONFIG.num_layers)
    writer.add_feed_forward_length(CONFIG.intermediate_size)
    writer.add_head_count(CONFIG.num_heads)
    writer.add_layer_norm_rms_eps(CONFIG.rms_norm_eps)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, CONFIG.num_layers)
    for name, shape in parameter_shapes(CONFIG).items():
        known = names.get_name(name, try_suffixes=(".weight",))
        assert known is not None
        writer.add_tensor(known, np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("written", "kernel", "slots"),
    [(in_safetensors, "torch", 2), (in_safetensors, "torch", 3), (in_gguf, "auto", 2)],
    ids=["torch, by blocks", "torch, packed", "kernels"],
)
def test_the_weights_are_in_memory_once(written: object, kernel: str, slots: int, tmp_path: Path):
    assert callable(written)
    command = [sys.executable, "-c", SCRIPT, str(written(tmp_path)), kernel, str(slots)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert WEIGHTS < int(done.stdout) < WEIGHTS + IN_PASSING
