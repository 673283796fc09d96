"""Triton's pointwise kernels against torch's: on a card, or interpreted on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nanoserve.kernels.library import KernelsUnavailable
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS
from nanoserve.pointwise import TorchPointwise

pytest.importorskip("triton", reason="no Triton here: it comes for Linux only")

from nanoserve.kernels.triton_pointwise import TritonPointwise, check

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [(torch.float32, 2e-6), (torch.bfloat16, 1.6e-2), (torch.float16, 2e-3)]
TORCH, TRITON = TorchPointwise(), TritonPointwise()

in_every_dtype = pytest.mark.parametrize(("dtype", "tolerance"), DTYPES, ids=str)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=torch.float32).to(dtype)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@in_every_dtype
@pytest.mark.parametrize("shape", [(1, 48), (5, 576), (3, 4100), (3, 7, 64)], ids=str)
def test_a_norm(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    """Of whole rows, and of each head of a row with weights of its own; far from unit length."""
    x, weight = drawn(*shape, dtype=dtype) * 3, drawn(*shape[1:], dtype=dtype)
    eps = torch.tensor(1e-1, device=DEVICE)
    wanted = TORCH.norm(x.clone(), weight, eps)
    got = TRITON.norm(x, weight, eps)
    assert got.dtype == dtype
    assert got.is_contiguous()
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def test_a_norm_of_heads_inside_a_wider_row() -> None:
    qkv = drawn(4, 10, 16)
    weight, eps = drawn(7, 16), torch.tensor(1e-5, device=DEVICE)
    wanted = TORCH.norm(qkv[:, :7].clone(), weight, eps)
    torch.testing.assert_close(TRITON.norm(qkv[:, :7], weight, eps), wanted, rtol=0, atol=2e-6)


def test_a_norm_of_no_rows() -> None:
    eps = torch.tensor(1e-5, device=DEVICE)
    assert TRITON.norm(drawn(0, 48), drawn(48), eps).shape == (0, 48)


@in_every_dtype
@pytest.mark.parametrize(("heads", "head_dim"), [(12, 64), (5, 80), (1, 16)])
def test_a_rotation_in_place(
    heads: int, head_dim: int, dtype: torch.dtype, tolerance: float
) -> None:
    """The first heads of a wider row turn, and the others stay."""
    qkv = drawn(3, heads + 2, head_dim, dtype=dtype)
    tables = drawn(2, 3, 1, head_dim, dtype=dtype)
    wanted = qkv.clone()
    TORCH.rotate_(wanted[:, :heads], *tables)
    TRITON.rotate_(qkv[:, :heads], *tables)
    torch.testing.assert_close(qkv, wanted, rtol=tolerance, atol=tolerance)


@in_every_dtype
@pytest.mark.parametrize("wide", [80, 1024, 1536])
def test_a_gate(wide: int, dtype: torch.dtype, tolerance: float) -> None:
    both = drawn(3, 2 * wide, dtype=dtype) * 4
    wanted = TORCH.gate(both.clone())
    torch.testing.assert_close(TRITON.gate(both), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # to infinity, as meant
def test_a_gate_of_extreme_values_is_what_torch_makes_of_them() -> None:
    gate = torch.tensor([[-1e4, -90.0, -0.0, 90.0, 1e4, torch.inf, torch.nan]], device=DEVICE)
    both = torch.cat((gate, torch.full_like(gate, 2.0)), dim=1)
    wanted = TORCH.gate(both.clone())
    torch.testing.assert_close(TRITON.gate(both), wanted, rtol=1e-6, atol=0, equal_nan=True)


@in_every_dtype
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3"])
def test_the_check_accepts_the_kernels(name: str, dtype: torch.dtype, tolerance: float) -> None:
    check(SYNTHETIC_CONFIGS[name], device=DEVICE, dtype=dtype)


@pytest.mark.parametrize("operation", ["norm", "gate", "rotate_"])
@pytest.mark.parametrize("fault", ["no C compiler", "something else"])
def test_the_check_refuses_an_operation_that_fails_or_computes_something_else(
    operation: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = getattr(TritonPointwise, operation)

    def broken(self: TritonPointwise, *tensors: torch.Tensor) -> torch.Tensor:
        if fault == "no C compiler":
            raise RuntimeError("no C compiler\nanywhere")
        result = works(self, *tensors)
        changed = tensors[0] if result is None else result
        changed[-1, ..., -1] += 0.01
        return result

    monkeypatch.setattr(TritonPointwise, operation, broken)
    with pytest.raises(KernelsUnavailable, match=fault):
        check(SYNTHETIC_CONFIGS["tiny-llama"], device=DEVICE, dtype=torch.float32)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from nanoserve.kernels import triton_pointwise as kernels

shapes = {
    kernels._norm: dict(HEADS=9, SIZE=576, LANES=1024),
    kernels._rotate: dict(HEADS=12, HEAD_LANES=16, HALF=40, HALF_LANES=64),
    kernels._gate: dict(WIDE=1536, LANES=1024),
}
for kernel, constants in shapes.items():
    arguments = kernel.arg_names
    signature = {
        argument: "constexpr" if argument in constants
        else "i32" if argument.endswith("_stride")
        else "*fp32" if argument == "eps"
        else "*bf16"
        for argument in arguments
    }
    constexprs = {(arguments.index(each),): value for each, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(kernel.__name__, len(compiled.asm["cubin"]) > 0)
"""


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there is a card: the kernels run on it")
def test_the_kernels_compile_for_a_card(tmp_path: Path) -> None:
    """To machine code, by Triton's compiler, which needs no card; the interpreter forgives more."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    del environment["TRITON_INTERPRET"]
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["_norm True", "_rotate True", "_gate True"]
