"""The canonical tensors of a model, read and digested without torch.

A rival's environment may have no torch, and its weights must be named all the same. The digest is
that of `nanoserve.models.digest`: as the model uses the tensors, in float32, under Hugging Face's
names, a tied head left out.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Tensor: TypeAlias = npt.NDArray[np.float32]

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
_BUFFERS = ("rotary_emb.inv_freq", "masked_bias")
"""What old checkpoints hold and no model reads."""


class UnreadableWeightsError(ValueError):
    """A model folder whose tensors cannot be read as float32."""


def read_config(folder: Path) -> dict[str, Any]:
    """The model's configuration."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def heads_of(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Heads, heads of keys and values, and width of a head, as a configuration says them."""
    heads = int(config["num_attention_heads"])
    width = int(config.get("head_dim") or config["hidden_size"] // heads)
    return heads, int(config.get("num_key_value_heads") or heads), width


def canonical_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's safetensors, in float32, mapped and not read where they are.

    Raises:
        UnreadableWeightsError: A tensor is of another type, or is there twice.
    """
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in _read(file).items():
            if name in tensors:
                raise UnreadableWeightsError(f"{file.name}: tensor {name} is there twice")
            if not name.endswith(_BUFFERS):
                tensors[name] = tensor
    if not tensors:
        raise UnreadableWeightsError(f"{folder.name} holds no tensor in a .safetensors file")
    if read_config(folder).get("tie_word_embeddings", False):
        tensors.pop(HEAD, None)
    return tensors


def _read(file: Path) -> dict[str, Tensor]:
    """The format: the header's length in 8 bytes, the header in JSON, then the data."""
    raw = np.memmap(file, dtype=np.uint8, mode="r")
    length = int.from_bytes(raw[:8].tobytes(), "little")
    header = json.loads(raw[8 : 8 + length].tobytes())
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        data = raw[8 + length + start : 8 + length + end]
        found[name] = _as_float32(data, entry["dtype"], f"{file.name}: {name}").reshape(
            entry["shape"]
        )
    return found


def _as_float32(data: npt.NDArray[np.uint8], dtype: str, what: str) -> Tensor:
    if dtype == "F32":
        return data.view("<f4")
    if dtype == "F16":
        return data.view("<f2").astype(np.float32)
    if dtype == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    raise UnreadableWeightsError(f"{what} is {dtype}, which is not read as float32")


def digest(tensors: Mapping[str, Tensor]) -> str:
    """`sha256:<hex>` over float32 tensors under their canonical names."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        shape = ",".join(map(str, tensors[name].shape))
        total.update(f"{name}\0float32\0{shape}\0".encode())
        total.update(np.ascontiguousarray(tensors[name]).data)
    return f"sha256:{total.hexdigest()}"


def bytes_per_step(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of weights that a decode step reads.

    All of them once, but for an embedding table that the head does not share.
    """
    return sum(
        4 * math.prod(tensor.shape)
        for name, tensor in tensors.items()
        if name != TABLE or HEAD not in tensors
    )


def missing_from(tensors: Mapping[str, Tensor], constants: Iterable[Tensor]) -> list[str]:
    """Names of the tensors that do not lie bit for bit among the constants of a converted model.

    Converters add axes of one and store some matrices transposed, so shapes are not compared, and
    a matrix may be there either way.
    """
    sizes = {tensor.nbytes for tensor in tensors.values()}
    there = {_content(constant) for constant in constants if constant.nbytes in sizes}
    return [
        name
        for name, tensor in tensors.items()
        if _content(tensor) not in there and _content(tensor.T) not in there
    ]


def _content(tensor: Tensor) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(tensor).data).digest()
