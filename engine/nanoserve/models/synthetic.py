"""Named shapes with seeded random weights, for models whose weights cannot be had.

Every tensor is drawn from its own generator, seeded by its name, so it is the same in whatever
order, process or subset it is asked for.

Matrices have variance 1 / fan_in, norm weights lie near one and biases near zero, so that
activations keep their size through the layers and the logits tell tokens apart. What such a model
writes means nothing.
"""

import hashlib
from dataclasses import replace

import torch

from nanoserve.errors import ModelNotFound
from nanoserve.models.model_config import Llama3RopeScaling, ModelConfig, RopeConfig
from nanoserve.models.parameters import parameter_shapes

_TINY = ModelConfig(
    architecture="llama",
    vocab_size=256,
    hidden_size=64,
    intermediate_size=160,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=10_000.0),
    max_position=512,
    tie_word_embeddings=False,
    eos_token_ids=frozenset({2}),
)

SYNTHETIC_CONFIGS = {
    "tiny-llama": _TINY,
    "tiny-mistral": replace(_TINY, architecture="mistral", head_dim=32, windows=(24, 24)),
    "tiny-qwen2": replace(_TINY, architecture="qwen2", qkv_bias=True, tie_word_embeddings=True),
    "tiny-qwen3": replace(_TINY, architecture="qwen3", head_dim=32, qk_norm=True),
    "llama-3.2-1b": ModelConfig(
        architecture="llama",
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_layers=16,
        num_heads=32,
        num_kv_heads=8,
        head_dim=64,
        rms_norm_eps=1e-5,
        rope=RopeConfig(
            theta=500_000.0,
            scaling=Llama3RopeScaling(
                factor=32.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position=8192,
            ),
        ),
        max_position=131_072,
        tie_word_embeddings=True,
        eos_token_ids=frozenset({128_001, 128_008, 128_009}),
    ),
}


class SyntheticCheckpoint:
    """Random weights of a named shape.

    Raises:
        ModelNotFound: When no shape has that name.
    """

    tokenizer_source = None

    def __init__(self, name: str) -> None:
        if name not in SYNTHETIC_CONFIGS:
            known = ", ".join(f"synthetic:{known}" for known in SYNTHETIC_CONFIGS)
            raise ModelNotFound(f"no synthetic model {name!r}; known: {known}")
        self.config = SYNTHETIC_CONFIGS[name]
        self._shapes = parameter_shapes(self.config)

    def names(self) -> frozenset[str]:
        """Names of the tensors."""
        return frozenset(self._shapes)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, float32 on the CPU."""
        shape = self._shapes[name]
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)
        noise = torch.randn(
            shape,
            generator=torch.Generator("cpu").manual_seed(seed),
            device="cpu",
            dtype=torch.float32,
        )
        if len(shape) == 1:
            return 0.1 * noise + name.endswith("norm.weight")
        return noise.div(shape[-1] ** 0.5)
