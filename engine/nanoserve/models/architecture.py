"""What tells the members of the Llama family apart, and how checkpoints say it.

They share one decoder (``decoder``): RMSNorm, rotary attention with grouped KV heads, a gated
feed-forward net. A member is a small file of its own beside this one: its record says what its
layers have that Llama's have not, and how its ``config.json`` and its GGUF are to be read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nanoserve.errors import UnsupportedModel
from nanoserve.models.config_file import ConfigFile

Windows = tuple[int | None, ...]
"""For each layer, how many positions a token sees, itself the last of them; None for all."""

FULL, SLIDING = "full_attention", "sliding_attention"


def no_windows(config: ConfigFile, num_layers: int) -> Windows:
    """Every layer sees everything."""
    del config
    return (None,) * num_layers


def spell_no_windows(windows: Windows) -> dict[str, object]:
    """There is nothing to say."""
    del windows
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A member of the family.

    Attributes:
        name: ``model_type`` in ``config.json``, and ``general.architecture`` in GGUF.
        hf_class: transformers' class.
        in_gguf: Whether GGUF knows it under its own name.
        qkv_bias: Whether the projections to q, k and v have a bias.
        qk_norm: Whether each head of q and k goes through an RMSNorm before it is rotated.
        gguf_interleaves: Whether GGUF stores the rows of q and k so that the two features of a
            rotary pair lie side by side.
        gguf_windows: Whether a window in a GGUF file is one of all layers.
        only: Keys of ``config.json`` that are implemented for one value alone.
        needed: Keys that could be left out, but transformers would then take its own defaults,
            which no checkpoint means.
        read_windows: Each layer's window, from ``config.json`` and the number of layers.
        spell_windows: What ``config.json`` says for given windows.
    """

    name: str
    hf_class: str
    in_gguf: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    gguf_interleaves: bool = False
    gguf_windows: bool = False
    only: Mapping[str, object] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    read_windows: Callable[[ConfigFile, int], Windows] = no_windows
    spell_windows: Callable[[Windows], dict[str, object]] = spell_no_windows


def read_typed_windows(config: ConfigFile, num_layers: int) -> Windows:
    """Qwen's way: one window, a switch for it, and the layers that have it.

    Which they are is listed in ``layer_types``; without it, those from ``max_window_layers`` on.

    Raises:
        UnsupportedModel: When a layer is of another type.
        WeightsMismatch: When there is not one type for each layer.
    """
    window: int | None = None
    if config.flag("use_sliding_window", otherwise=False) and not config.is_null("sliding_window"):
        window = config.integer("sliding_window", otherwise=4096)
    listed = config.texts("layer_types")
    if listed is None:
        first = config.integer("max_window_layers", otherwise=28, least=0)
        return tuple(window if layer >= first else None for layer in range(num_layers))
    if len(listed) != num_layers:
        raise config.of_another_kind("layer_types", f"a list of {num_layers} types", listed)
    for kind in listed:
        if kind not in (FULL, SLIDING) or (kind == SLIDING and window is None):
            raise UnsupportedModel(
                f"{config.path}: a layer of type {kind!r} is not implemented; {FULL!r} is, and "
                f"{SLIDING!r} where use_sliding_window is true and sliding_window is set"
            )
    return tuple(window if kind == SLIDING else None for kind in listed)


def spell_typed_windows(windows: Windows) -> dict[str, object]:
    """The other way round."""
    window = next((window for window in windows if window is not None), None)
    return {
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "layer_types": [FULL if window is None else SLIDING for window in windows],
    }
