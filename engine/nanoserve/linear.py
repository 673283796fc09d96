"""The one door for matrix products with weights.

A decode step at small batch is one read of the weights, so how they lie in memory decides its
speed. A ``LinearKernel`` packs a weight once, at load, and every product then goes through what
it packed. Which kernel runs is chosen from the device, the dtype, the rows that a decode step can
have and what this build of torch can do, and is stated by ``path``.

========================== ======================================================================
``torch:bmm-blocks``       CPU, float32, at most 2 slots, MKL: the weight as it is, by blocks of it
``torch:onednn-prepacked`` CPU, float32: oneDNN's blocked layout, chosen once instead of per call
``torch:F.linear``         everywhere else
========================== ======================================================================

No layout is the fastest for two rows as well as for three, and a weight is held only once: so the
slots decide when it is loaded, and not the rows when it is used.
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
# Up to so many rows, blocks are faster than oneDNN.
_FEW_ROWS = 2
# Outputs in a block. Of 32, 64 and 192, which are close, the best for one row.
_BLOCK = 64


class LinearKernel(Protocol):
    """A way to multiply by weights."""

    path: str

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Prepare a product.

        Args:
            weight: ``[out_features, in_features]``, contiguous; the caller may drop it afterwards,
                but must not change it.
            bias: ``[out_features]``, or None.
        """


class PlainKernel:
    """``F.linear`` on the weight as it is."""

    path = "torch:F.linear"

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Keep the weight."""
        return lambda x: linear(x, weight, bias)


class BlockKernel:
    """The weight as it is: for few rows MKL, by blocks of outputs; for more rows oneDNN.

    As one matrix, MKL reads the weight at about half the rate that it reaches by blocks.
    """

    path = "torch:bmm-blocks"

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Keep the weight."""
        inputs = weight.shape[1]
        count = len(weight) // _BLOCK
        blocks = weight[: count * _BLOCK].view(count, _BLOCK, inputs)
        rest = weight[count * _BLOCK :]
        of_many = _by_onednn(weight, bias)

        def multiply(x: torch.Tensor) -> torch.Tensor:
            rows = len(x)
            if rows > _FEW_ROWS:
                return of_many(x)
            columns = x.t()
            products = torch.bmm(blocks, columns.expand(count, inputs, rows))
            products = products.view(count * _BLOCK, rows)
            if len(rest):
                products = torch.cat((products, torch.mm(rest, columns)))
            result = products.t().contiguous()
            return result if bias is None else result.add_(bias)

        return multiply


class OneDnnKernel:
    """oneDNN on a weight in its own blocked layout."""

    path = "torch:onednn-prepacked"

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Copy the weight into the blocked layout."""
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _EXPECTED_ROWS)  # noqa: SLF001
        return _by_onednn(packed, bias)


def _by_onednn(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """A product by oneDNN, with a weight in whatever layout it has."""
    product = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001

    def multiply(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = product(x, weight, bias, "none", [], "")
        return result

    return multiply


def choose_kernel(device: torch.device, dtype: torch.dtype, *, max_slots: int) -> LinearKernel:
    """The fastest kernel that works here; the log says why a faster one does not.

    Args:
        device: Where the weights are.
        dtype: What they are.
        max_slots: Most rows of a decode step.
    """
    if device.type != "cpu" or dtype != torch.float32:
        return PlainKernel()
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    kernel: LinearKernel = BlockKernel() if max_slots <= _FEW_ROWS and has_mkl else OneDnnKernel()
    fault = _fault(kernel)
    if fault is None:
        return kernel
    _log.warning("linears fall back to %s: %s", PlainKernel.path, fault)
    return PlainKernel()


def _fault(kernel: LinearKernel) -> str | None:
    """Why oneDNN's linear cannot be used here, found by using it; None if it can."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "this build of torch has no oneDNN"
    x = torch.ones(3, 5, device="cpu", dtype=torch.float32)
    weight = torch.arange(35, device="cpu", dtype=torch.float32).view(7, 5)
    bias = torch.arange(7, device="cpu", dtype=torch.float32)
    try:
        exact = torch.equal(kernel.pack(weight, bias)(x), linear(x, weight, bias))
    except (RuntimeError, AttributeError) as error:
        return f"oneDNN's linear failed: {error}"
    return None if exact else "oneDNN's linear gave a wrong product"
