"""What a decode step reads of a model folder's weights, told from its files without torch."""

from __future__ import annotations

import json
import math
from pathlib import Path

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def bytes_per_step(folder: Path, dtype: str) -> int:
    """Bytes of all weights once, but for an embedding table that the head does not share.

    Args:
        folder: Folder with safetensors, whose files begin with the length of a JSON header.
        dtype: What the weights are held in while they are read.
    """
    sizes: dict[str, int] = {}
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        header.pop("__metadata__", None)
        sizes |= {name: math.prod(entry["shape"]) for name, entry in header.items()}
    if HEAD in sizes:
        sizes.pop(TABLE, None)
    return sum(sizes.values()) * _ITEM_BYTES[dtype]
