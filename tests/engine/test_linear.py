"""Every kernel multiplies like the formula, and a fallback says why."""

from __future__ import annotations

import logging

import pytest
import torch

from nanoserve import linear
from nanoserve.linear import OneDnnKernel, PlainKernel, choose_kernel

CPU = torch.device("cpu")


@pytest.mark.parametrize("kernel", [PlainKernel(), OneDnnKernel()], ids=lambda kernel: kernel.path)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (97, 48), (64, 64), (960, 576)])
def test_a_packed_weight_multiplies_like_the_weight(
    kernel: linear.LinearKernel, rows: int, shape: tuple[int, int]
):
    torch.manual_seed(rows)
    weight, x = torch.randn(shape), torch.randn(rows, shape[1])
    bias = torch.randn(shape[0])
    torch.testing.assert_close(kernel.pack(weight)(x), x @ weight.T, atol=1e-4, rtol=1e-5)
    wanted = x @ weight.T + bias
    torch.testing.assert_close(kernel.pack(weight, bias)(x), wanted, atol=1e-4, rtol=1e-5)


def test_a_packed_weight_does_not_need_the_original():
    weight, x = torch.randn(12, 8), torch.randn(3, 8)
    wanted = x @ weight.T
    multiply = OneDnnKernel().pack(weight)
    weight.fill_(float("nan"))
    torch.testing.assert_close(multiply(x), wanted)


def test_float32_on_the_cpu_is_prepacked_where_onednn_is():
    kernel = choose_kernel(CPU, torch.float32)
    has_onednn = torch.backends.mkldnn.is_available()
    assert kernel.path == ("torch:onednn-prepacked" if has_onednn else "torch:F.linear")


def test_other_dtypes_and_devices_use_the_plain_product():
    assert choose_kernel(CPU, torch.bfloat16).path == "torch:F.linear"
    assert choose_kernel(torch.device("cuda"), torch.float32).path == "torch:F.linear"


def fails(*_: object) -> torch.Tensor:
    raise RuntimeError("not built")


def gives_zeros(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.zeros(len(x), 7)


@pytest.mark.parametrize(
    ("product", "reason"), [(fails, "failed: not built"), (gives_zeros, "gave a wrong product")]
)
def test_a_kernel_that_does_not_work_here_is_not_chosen(
    product: object,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", product)
    with caplog.at_level(logging.WARNING, logger="nanoserve"):
        assert choose_kernel(CPU, torch.float32).path == "torch:F.linear"
    assert f"linears fall back to torch:F.linear: oneDNN's packed linear {reason}" in caplog.text
