"""The shape of a model: what changes the arithmetic, and nothing else.

Where a checkpoint says it in another way than here, ``hf_config`` and ``gguf_checkpoint`` read it.
"""

from dataclasses import dataclass

from nanoserve.errors import UnsupportedModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Llama3RopeScaling:
    """Llama 3.1's stretch of the low rotary frequencies.

    Attributes:
        factor: By how much long wavelengths are stretched.
        low_freq_factor: Wavelengths above ``original_max_position / low_freq_factor`` are
            stretched fully.
        high_freq_factor: Wavelengths below ``original_max_position / high_freq_factor`` are left
            alone; those between are blended.
        original_max_position: Context length before the stretch.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeConfig:
    """Rotary position embedding.

    Attributes:
        theta: Base of the wavelengths.
        scaling: Llama 3's stretch, as a formula.
        frequency_divisors: The same as a table, ``head_dim / 2`` divisors of the frequencies, as
            GGUF files carry it in ``rope_freqs.weight``; not together with ``scaling``.
    """

    theta: float
    scaling: Llama3RopeScaling | None = None
    frequency_divisors: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The shape of a model of the Llama family; lengths in tokens, sizes in elements.

    Attributes:
        architecture: Which member of the family, as ``architectures`` names it.
        qkv_bias: Whether the projections to q, k and v have a bias.
        qk_norm: Whether each head of q and k goes through an RMSNorm before it is rotated.
        windows: For each layer, how many positions a token sees, itself the last of them; None
            for all of them. Empty where all layers see everything.

    Raises:
        UnsupportedModel: When query heads do not share KV heads evenly, or the features of a head
            do not pair off.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_position: int
    tie_word_embeddings: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int | None, ...] = ()
    eos_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Refuse shapes that cannot be."""
        if self.num_heads % self.num_kv_heads:
            raise UnsupportedModel(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads evenly"
            )
        if self.head_dim % 2:
            raise UnsupportedModel(
                f"the features of a head are rotated in pairs, and head_dim is {self.head_dim}"
            )
        if len(self.windows) not in (0, self.num_layers):
            raise ValueError(f"{len(self.windows)} windows for {self.num_layers} layers")

    def window(self, layer: int) -> int | None:
        """How many positions a token sees in a layer; None for all of them."""
        return self.windows[layer] if self.windows else None

    def hiding_windows(self, positions: int) -> tuple[int | None, ...]:
        """The windows of all layers; None where, of so many positions, nothing is out of sight."""
        windows = (self.window(layer) for layer in range(self.num_layers))
        return tuple(None if w is None or w >= positions else w for w in windows)
