"""The one door for what a decoder does between its products: norms, rotation, the gate.

None of it takes long by itself, and each operation costs its launch; on a card, where a step is
hundreds of launches, one kernel takes the place of several (``kernels.triton_pointwise``).

Rounding happens where transformers rounds: a norm is float32, cast, then times the weight; what a
rotation adds, and the activation before it is multiplied, are rounded to the model's dtype.
"""

from typing import Protocol

import torch
from torch.linalg import vector_norm
from torch.nn.functional import silu

from nanoserve.models.rope import rotate_


class Pointwise(Protocol):
    """A way to compute it.

    Attributes:
        path: Its name, for logs and manifests.
    """

    path: str

    def norm(self, x: torch.Tensor, weight: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
        """``x / rms(x) * weight`` over the last dimension, into memory of its own.

        Args:
            x: ``[tokens, size]``, or ``[tokens, heads, size]``.
            weight: ``[size]``, or ``[heads, size]``.
            eps: What is added to the mean square, a float32 scalar.
        """

    def rotate_(
        self, heads: torch.Tensor, cosines: torch.Tensor, signed_sines: torch.Tensor
    ) -> None:
        """Turn heads in place, as ``rope.rotate_``."""

    def gate(self, both: torch.Tensor) -> torch.Tensor:
        """``silu(gate) * up`` of ``[tokens, gate and up side by side]``; may overwrite it."""


class TorchPointwise:
    """Torch's own operations, as few as it takes."""

    path = "torch:pointwise"

    def norm(self, x: torch.Tensor, weight: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
        """By ``rms(x)^2 = |x|^2 / size + eps``."""
        wide = x.float()
        length = vector_norm(wide, dim=-1, keepdim=True)
        scale = torch.addcmul(eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (wide * scale).to(x.dtype).mul_(weight)

    rotate_ = staticmethod(rotate_)

    def gate(self, both: torch.Tensor) -> torch.Tensor:
        """The activation in place, the product beside it."""
        wide = both.shape[1] // 2
        return silu(both[:, :wide], inplace=True) * both[:, wide:]
