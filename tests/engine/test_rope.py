"""Rotary positions against transformers' own tables, near and far."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from nanoserve.models.hf_config import as_hf_config
from nanoserve.models.model_config import Llama3RopeScaling, RopeConfig
from nanoserve.models.rope import inverse_frequencies, rope_table, rotate_, signed
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS

SMALL = RopeConfig(
    theta=10_000.0,
    scaling=Llama3RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=64
    ),
)


@pytest.mark.parametrize(
    ("rope", "head_dim"),
    [
        (RopeConfig(theta=100_000.0), 64),
        (SYNTHETIC_CONFIGS["llama-3.2-1b"].rope, 64),
        (SMALL, 16),
    ],
)
def test_tables_are_those_of_transformers(rope: RopeConfig, head_dim: int):
    shape = dataclasses.replace(
        SYNTHETIC_CONFIGS["tiny-llama"], rope=rope, head_dim=head_dim, max_position=8192
    )
    reference = LlamaRotaryEmbedding(LlamaConfig(**as_hf_config(shape)))
    assert torch.equal(inverse_frequencies(rope, head_dim), reference.inv_freq)
    for dtype in (torch.float32, torch.bfloat16):
        wanted = reference(torch.zeros(1, dtype=dtype), torch.arange(8000)[None])
        got = rope_table(rope, head_dim, positions=8000, device=torch.device("cpu"), dtype=dtype)
        for mine, theirs in zip(got, wanted, strict=True):
            assert torch.equal(mine[:, 0], theirs[0])


def test_the_stretch_leaves_short_waves_and_slows_long_ones():
    plain = inverse_frequencies(RopeConfig(theta=10_000.0), 16)
    ratio = plain / inverse_frequencies(SMALL, 16)
    assert ratio[0] == 1
    assert ratio[-1] == 8
    assert ((ratio[1:] >= ratio[:-1]) & (ratio <= 8).all()).all()
    assert ((ratio > 1) & (ratio < 8)).any(), "some are blended"


def test_rotation_turns_pairs_and_keeps_their_length():
    cosines, sines = rope_table(
        RopeConfig(theta=100.0), 4, positions=9, device=torch.device("cpu"), dtype=torch.float32
    )
    x = torch.randn(9, 5, 4)[:, 1:4]  # some heads of a wider product
    y = x.clone()
    rotate_(y, cosines, signed(sines))
    assert torch.equal(y[0], x[0])
    for pair in ((0, 2), (1, 3)):
        torch.testing.assert_close(y[..., pair].norm(dim=-1), x[..., pair].norm(dim=-1))
    angle = torch.tensor(5 * 100.0 ** (-2 / 4))
    wanted = x[5, 0, 1] * angle.cos() - x[5, 0, 3] * angle.sin()
    torch.testing.assert_close(y[5, 0, 1], wanted)
