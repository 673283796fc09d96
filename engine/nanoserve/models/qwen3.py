"""Qwen3: no bias any more; each head of q and k is normed by itself, and states its own size."""

from nanoserve.models.architecture import Architecture, read_typed_windows, spell_typed_windows

QWEN3 = Architecture(
    name="qwen3",
    hf_class="Qwen3ForCausalLM",
    qk_norm=True,
    only={"attention_bias": False},
    needed=("num_key_value_heads", "head_dim"),
    read_windows=read_typed_windows,
    spell_windows=spell_typed_windows,
)
