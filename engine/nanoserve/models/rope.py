"""Rotary position embedding: a token's position as an angle between pairs of its features.

Feature ``i`` of a head is paired with feature ``i + head_dim / 2``, and the pair is turned by
``position * theta ** (-2 i / head_dim)``. The table of cosines and sines is made once, for every
position the engine accepts, in float32, and rounded to the model's dtype, which is where
transformers rounds it too; a step looks its positions up once for all layers.
"""

import math

import torch

from nanoserve.models.model_config import Llama3RopeScaling, RopeConfig

_CPU = torch.device("cpu")


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Angle per position of each pair, ``[head_dim / 2]``, float32 on the CPU."""
    exponents = torch.arange(0, head_dim, 2, device=_CPU, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.scaling is not None:
        return _stretch(frequencies, rope.scaling)
    if rope.frequency_divisors is not None:
        divisors = torch.tensor(rope.frequency_divisors, device=_CPU, dtype=torch.float32)
        return frequencies / divisors
    return frequencies


def _stretch(frequencies: torch.Tensor, scaling: Llama3RopeScaling) -> torch.Tensor:
    """Llama 3.1's scaling: long wavelengths slower by ``factor``, short ones as they are."""
    wavelengths = 2 * math.pi / frequencies
    longest = scaling.original_max_position / scaling.low_freq_factor
    shortest = scaling.original_max_position / scaling.high_freq_factor
    blend = (scaling.original_max_position / wavelengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    slow = frequencies / scaling.factor
    blended = (1 - blend) * slow + blend * frequencies
    return torch.where(
        wavelengths > longest, slow, torch.where(wavelengths < shortest, frequencies, blended)
    )


def rope_table(
    rope: RopeConfig,
    head_dim: int,
    *,
    positions: int,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position, each ``[positions, 1, head_dim]``."""
    places = torch.arange(positions, device=_CPU, dtype=torch.int64).float()
    angles = places[:, None] * inverse_frequencies(rope, head_dim)
    both_halves = torch.cat((angles, angles), dim=-1)[:, None]
    return both_halves.cos().to(device, dtype), both_halves.sin().to(device, dtype)


def signed(sines: torch.Tensor) -> torch.Tensor:
    """A table of sines as ``rotate_`` wants it: those of the first half of a head are negated."""
    first, second = sines.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


def rotate_(heads: torch.Tensor, cosines: torch.Tensor, signed_sines: torch.Tensor) -> None:
    """Turn the features of ``[tokens, heads, head_dim]`` by ``[tokens, 1, head_dim]``, in place."""
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    heads.mul_(cosines).add_(swapped.mul_(signed_sines))
