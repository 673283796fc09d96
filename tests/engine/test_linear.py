"""Every kernel multiplies like the formula, and a fallback says why."""

from __future__ import annotations

import logging

import pytest
import torch

from nanoserve import linear
from nanoserve.linear import BlockKernel, OneDnnKernel, PlainKernel, choose_kernel

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "kernel", [PlainKernel(), BlockKernel(), OneDnnKernel()], ids=lambda kernel: kernel.path
)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (97, 48), (64, 64), (960, 576), (1000, 96)])
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


def test_blocks_of_a_weight_are_the_weight_and_no_copy_of_it():
    weight, x = torch.zeros(200, 8), torch.randn(3, 8)
    multiply = BlockKernel().pack(weight)
    weight += torch.randn(200, 8)
    for rows in (1, 2, 3):
        torch.testing.assert_close(multiply(x[:rows]), x[:rows] @ weight.T)


@pytest.mark.parametrize("rows", [1, 2])
def test_what_blocks_give_lies_row_by_row(rows: int):
    """The decoder cuts a product into heads without copying it."""
    assert BlockKernel().pack(torch.ones(192, 8))(torch.ones(rows, 8)).is_contiguous()


@pytest.mark.parametrize("slots", [1, 2, 3, 32])
def test_float32_on_the_cpu_is_laid_out_for_the_slots(slots: int):
    expected = "torch:onednn-prepacked"
    if slots <= 2 and torch.backends.mkl.is_available():
        expected = "torch:bmm-blocks"
    if not torch.backends.mkldnn.is_available():
        expected = "torch:F.linear"
    assert choose_kernel(CPU, torch.float32, max_slots=slots).path == expected


def test_without_mkl_few_slots_are_prepacked_as_well(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    wanted = choose_kernel(CPU, torch.float32, max_slots=8).path
    assert choose_kernel(CPU, torch.float32, max_slots=1).path == wanted


@pytest.mark.parametrize("slots", [1, 8])
def test_other_dtypes_and_devices_use_the_plain_product(slots: int):
    assert choose_kernel(CPU, torch.bfloat16, max_slots=slots).path == "torch:F.linear"
    card = torch.device("cuda")
    assert choose_kernel(card, torch.float32, max_slots=slots).path == "torch:F.linear"


def fails(*_: object) -> torch.Tensor:
    raise RuntimeError("not built")


def gives_zeros(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.zeros(len(x), 7)


@pytest.mark.parametrize(
    ("product", "reason"), [(fails, "failed: not built"), (gives_zeros, "gave a wrong product")]
)
@pytest.mark.parametrize("slots", [1, 8])
def test_a_kernel_that_does_not_work_here_is_not_chosen(
    slots: int,
    product: object,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", product)
    with caplog.at_level(logging.WARNING, logger="nanoserve"):
        assert choose_kernel(CPU, torch.float32, max_slots=slots).path == "torch:F.linear"
    assert f"linears fall back to torch:F.linear: oneDNN's linear {reason}" in caplog.text
