"""Qwen2 and 2.5: Llama with a bias on q, k and v, and a window on its upper layers, mostly off."""

from nanoserve.models.architecture import Architecture, read_typed_windows, spell_typed_windows

QWEN2 = Architecture(
    name="qwen2",
    hf_class="Qwen2ForCausalLM",
    qkv_bias=True,
    needed=("num_key_value_heads",),
    read_windows=read_typed_windows,
    spell_windows=spell_typed_windows,
)
