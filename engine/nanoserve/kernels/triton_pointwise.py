"""What a decoder does between its products, one kernel each: see ``nanoserve.pointwise``.

Arithmetic is float32; what transformers would have rounded to the model's dtype on the way is
rounded here as well, by a cast there and back. Under ``TRITON_INTERPRET=1`` the kernels run on the
CPU, which is how they are tested where there is no card.
"""

import torch
import triton
import triton.language as tl

from nanoserve.kernels.library import KernelsUnavailable
from nanoserve.models.model_config import ModelConfig
from nanoserve.pointwise import TorchPointwise

_GATE_LANES = 1024
_WIDE = 4096  # from so many features on, a row gets more threads
_UNITS = 8  # of rounding, in which one operation may differ from torch's


class TritonPointwise:
    """One launch for each operation."""

    path = "triton:pointwise"

    def norm(self, x: torch.Tensor, weight: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
        """A program serves one row, or one head of it."""
        heads = x[:, None] if x.dim() == 2 else x
        weights = weight.expand(heads.shape[1:])
        normed = torch.empty(heads.shape, device=x.device, dtype=x.dtype)
        size = heads.shape[2]
        if heads.shape[0]:
            _norm[heads.shape[:2]](
                heads,
                weights,
                eps,
                normed,
                heads.stride(0),
                heads.stride(1),
                weights.stride(0),
                HEADS=heads.shape[1],
                SIZE=size,
                LANES=triton.next_power_of_2(size),
                num_warps=8 if size >= _WIDE else 4,
            )
        return normed.view(x.shape)

    def rotate_(
        self, heads: torch.Tensor, cosines: torch.Tensor, signed_sines: torch.Tensor
    ) -> None:
        """A program serves all heads of one token."""
        tokens, number, head_dim = heads.shape
        _rotate[(tokens,)](
            heads,
            cosines,
            signed_sines,
            heads.stride(0),
            HEADS=number,
            HEAD_LANES=triton.next_power_of_2(number),
            HALF=head_dim // 2,
            HALF_LANES=triton.next_power_of_2(head_dim // 2),
        )

    def gate(self, both: torch.Tensor) -> torch.Tensor:
        """A program serves a part of one row."""
        tokens, wide = both.shape[0], both.shape[1] // 2
        gated = torch.empty(tokens, wide, device=both.device, dtype=both.dtype)
        _gate[(tokens, triton.cdiv(wide, _GATE_LANES))](both, gated, WIDE=wide, LANES=_GATE_LANES)
        return gated


def check(config: ModelConfig, *, device: torch.device, dtype: torch.dtype) -> None:
    """Compile and run the kernels for a model's shapes, and compare them with torch's operations.

    Raises:
        KernelsUnavailable: They do not compile, do not run, or compute something else.
    """
    ours, torch_ones = TritonPointwise(), TorchPointwise()

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=dtype)

    eps = torch.tensor(config.rms_norm_eps, device=device, dtype=torch.float32)
    hidden, both = drawn(2, config.hidden_size), drawn(2, 2 * config.intermediate_size)
    heads = drawn(2, config.num_heads + config.num_kv_heads, config.head_dim)
    angles = drawn(2, 2, 1, config.head_dim)
    turned = heads.clone()
    torch_ones.rotate_(turned, *angles)
    try:
        pairs = [
            (ours.norm(hidden, hidden[0], eps), torch_ones.norm(hidden, hidden[0], eps)),
            (ours.norm(heads, heads[0], eps), torch_ones.norm(heads, heads[0], eps)),
            (ours.gate(both), torch_ones.gate(both.clone())),
        ]
        ours.rotate_(heads, *angles)
        pairs.append((heads, turned))
        near = _UNITS * torch.finfo(dtype).eps
        right = all(torch.allclose(*pair, rtol=near, atol=near) for pair in pairs)
    except Exception as error:  # a compiler may fail in any way
        first_line = str(error).partition("\n")[0]
        raise KernelsUnavailable(f"Triton does not run here: {first_line}") from error
    if not right:
        raise KernelsUnavailable("Triton's norms, rotation or gate compute something else here")


@triton.jit
def _norm(
    x,
    weights,
    eps,
    normed,
    token_stride,
    head_stride,
    weight_stride,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    places = tl.arange(0, LANES)
    inside = places < SIZE
    dtype = normed.dtype.element_ty
    row = tl.load(x + token * token_stride + head * head_stride + places, mask=inside, other=0.0)
    row = row.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(row * row, 0) / SIZE + tl.load(eps))
    weight = tl.load(weights + head * weight_stride + places, mask=inside, other=0.0)
    rounded = (row * scale).to(dtype).to(tl.float32)
    result = (rounded * weight.to(tl.float32)).to(dtype)
    tl.store(normed + (token * HEADS + head) * SIZE + places, result, mask=inside)


@triton.jit
def _rotate(
    heads,
    cosines,
    signed_sines,
    token_stride,
    HEADS: tl.constexpr,
    HEAD_LANES: tl.constexpr,
    HALF: tl.constexpr,
    HALF_LANES: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEAD_LANES)[:, None]
    places = tl.arange(0, HALF_LANES)[None, :]
    inside = (head < HEADS) & (places < HALF)
    dtype = heads.dtype.element_ty
    at = heads + token * token_stride + head * (2 * HALF) + places
    angle = token * (2 * HALF) + places
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    for half in tl.static_range(2):
        here = angle + half * HALF
        cosine = tl.load(cosines + here, mask=places < HALF, other=0.0).to(tl.float32)
        sine = tl.load(signed_sines + here, mask=places < HALF, other=0.0).to(tl.float32)
        own = first if half == 0 else second
        other = second if half == 0 else first
        kept = (own * cosine).to(dtype).to(tl.float32)
        turned = (other * sine).to(dtype).to(tl.float32)
        tl.store(at + half * HALF, (kept + turned).to(dtype), mask=inside)


@triton.jit
def _gate(both, gated, WIDE: tl.constexpr, LANES: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * LANES + tl.arange(0, LANES)
    inside = places < WIDE
    dtype = gated.dtype.element_ty
    gate = tl.load(both + token * (2 * WIDE) + places, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + token * (2 * WIDE) + WIDE + places, mask=inside, other=0.0).to(tl.float32)
    active = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(gated + token * WIDE + places, (active * up).to(dtype), mask=inside)
