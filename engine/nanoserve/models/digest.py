"""One name for a set of weights: sha256 over the canonical tensors.

Two systems run the same weights exactly when their digests are equal. Canonical means: as the
model uses them, in the dtype it runs, under Hugging Face's parameter names, before any fusing or
packing. A head that is tied to the embedding is the same tensor under a second name and is left
out.

The bytes hashed, for each tensor in ascending order of its name::

    name | NUL | dtype ("float32") | NUL | shape ("49152,576") | NUL | data, little endian

which any state dict can reproduce with ``weights_digest(state_dict.items())``.
"""

import hashlib
from collections.abc import Iterable

import torch

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"


class WeightsDigest:
    """The digest of tensors that come by one at a time, in ascending order of their names."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._last = ""

    def update(self, name: str, tensor: torch.Tensor) -> None:
        """Add one tensor.

        Raises:
            ValueError: When the name does not come after the one before.
        """
        if name <= self._last:
            raise ValueError(f"tensor {name!r} came after {self._last!r}: names must ascend")
        self._last = name
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = ",".join(map(str, tensor.shape))
        self._hash.update(f"{name}\0{dtype}\0{shape}\0".encode())
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        self._hash.update(raw.numpy().data)

    def __str__(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def weights_digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Digest of named tensors, in any order, as ``sha256:<hex>``.

    Args:
        tensors: Hugging Face parameter names and tensors, such as ``model.state_dict().items()``.
            ``lm_head.weight`` is left out when it shares its memory with the embedding.
    """
    by_name = dict(tensors)
    head, embedding = by_name.get(HEAD), by_name.get(EMBEDDING)
    if head is not None and embedding is not None and head.data_ptr() == embedding.data_ptr():
        del by_name[HEAD]
    digest = WeightsDigest()
    for name in sorted(by_name):
        digest.update(name, by_name[name])
    return str(digest)
