"""Mistral: Llama whose tokens see no further than a window, in every layer.

The first models have a window of 4096 positions; later ones have none, and say so with null.
"""

from nanoserve.models.architecture import Architecture, Windows
from nanoserve.models.config_file import ConfigFile

_WINDOW = 4096  # of a config that says nothing


def _read_windows(config: ConfigFile, num_layers: int) -> Windows:
    if config.is_null("sliding_window"):
        return (None,) * num_layers
    return (config.integer("sliding_window", otherwise=_WINDOW),) * num_layers


def _spell_windows(windows: Windows) -> dict[str, object]:
    return {"sliding_window": windows[0]}


MISTRAL = Architecture(
    name="mistral",
    hf_class="MistralForCausalLM",
    in_gguf=False,
    # Models that alternate between kinds of layers call themselves mistral as well.
    only={"layer_types": None},
    needed=("num_key_value_heads",),
    read_windows=_read_windows,
    spell_windows=_spell_windows,
)
