"""Llama 2 and 3, and SmolLM2: the family's plain member.

Llama 3's only difference is in its rotary frequencies (``rope``).
"""

from nanoserve.models.architecture import Architecture

LLAMA = Architecture(
    name="llama",
    hf_class="LlamaForCausalLM",
    gguf_interleaves=True,
    gguf_windows=True,  # Mistral's files call themselves llama
    only={"attention_bias": False, "mlp_bias": False},
)
