"""The one door for matrix products with weights.

A decode step at small batch is one read of the weights, so how they lie in memory decides its
speed. A ``LinearKernel`` packs a weight once, at load, and every product then goes through what
it packed. Which kernel runs is chosen from the device, the dtype and what this build of torch
can do, and is stated by ``path``.

========================== ======================================================================
``torch:onednn-prepacked`` CPU, float32: oneDNN's blocked layout, chosen once instead of per call
``torch:F.linear``         everywhere else
========================== ======================================================================
"""

import logging
from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn.functional import linear

_log = logging.getLogger(__name__)

Linear = Callable[[torch.Tensor], torch.Tensor]
"""``[tokens, in_features] -> [tokens, out_features]``."""

# The batch size that oneDNN is told to expect when it chooses a layout; other sizes work too.
_EXPECTED_ROWS = 8


class LinearKernel(Protocol):
    """A way to multiply by weights."""

    path: str

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Prepare a product.

        Args:
            weight: ``[out_features, in_features]``; the caller may drop it afterwards.
            bias: ``[out_features]``, or None.
        """


class PlainKernel:
    """``F.linear`` on the weight as it is."""

    path = "torch:F.linear"

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Keep the weight."""
        return lambda x: linear(x, weight, bias)


class OneDnnKernel:
    """oneDNN on a weight in its own blocked layout."""

    path = "torch:onednn-prepacked"

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Copy the weight into the blocked layout."""
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _EXPECTED_ROWS)  # noqa: SLF001
        product = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001

        def multiply(x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = product(x, packed, bias, "none", [], "")
            return result

        return multiply


def choose_kernel(device: torch.device, dtype: torch.dtype) -> LinearKernel:
    """The fastest kernel that works here; the log says why a faster one does not."""
    if device.type != "cpu" or dtype != torch.float32:
        return PlainKernel()
    fault = _onednn_fault()
    if fault is None:
        return OneDnnKernel()
    _log.warning("linears fall back to %s: %s", PlainKernel.path, fault)
    return PlainKernel()


def _onednn_fault() -> str | None:
    """Why oneDNN's packed linear cannot be used here, found by using it; None if it can."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "this build of torch has no oneDNN"
    x = torch.ones(3, 5, device="cpu", dtype=torch.float32)
    weight = torch.arange(35, device="cpu", dtype=torch.float32).view(7, 5)
    bias = torch.arange(7, device="cpu", dtype=torch.float32)
    try:
        exact = torch.equal(OneDnnKernel().pack(weight, bias)(x), linear(x, weight, bias))
    except (RuntimeError, AttributeError) as error:
        return f"oneDNN's packed linear failed: {error}"
    return None if exact else "oneDNN's packed linear gave a wrong product"
