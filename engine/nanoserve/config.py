"""The engine's settings: one frozen record, and no setting that is silently ignored.

A misspelt key is an error that names the nearest real one, and a bad value is an error that says
what would be good. Sizes that depend on the model or on the machine stay ``None`` here and are
resolved, with their arithmetic in the log, when the engine is built.
"""

from dataclasses import dataclass, fields
from typing import Self

import torch

from nanoserve._checks import is_flag, is_integer, is_text, shown, unknown_keys
from nanoserve.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICES = ("cpu", "cuda", "mps", "xpu")
KERNELS = ("auto", "torch")

# A product is bound by arithmetic from a few dozen tokens on upon a CPU, from a few hundred on upon
# a card; twice to eight times as many make the rest of a step small beside it.
_CPU_TOKENS = 512
_DEVICE_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Settings of one engine.

    Attributes:
        model: ``smollm2-135m`` (the packaged weights), a ``.gguf`` file, a folder with
            ``config.json`` and safetensors, a Hugging Face id, or ``synthetic:<config>``.
        device: A torch device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``, ``xpu``.
        dtype: ``float32``, ``bfloat16`` or ``float16``, of weights, activations and KV cache alike.
        max_slots: Most requests in the running batch.
        max_model_len: Most tokens of a request, prompt and output together; None takes the
            model's own limit. At least 2, one of each.
        block_size: Tokens in a block of the KV cache.
        kv_pool_tokens: Tokens the KV cache holds, all requests together, rounded down to whole
            blocks; None takes ``max_slots * max_model_len``, bounded by the memory at hand.
        max_batch_tokens: Most tokens that one step computes, decoding and prompts together; a
            prompt that exceeds it is prefilled in several steps. As a running request needs one
            token of every step, no more of them run than that. None takes 512 on a CPU, where
            more at a time are no faster, and 2048 elsewhere.
        prefix_cache: Whether a prompt may begin with blocks that another request has computed.
        kernel: ``auto`` runs the compiled kernels where they can run, ``torch`` never does.

    Raises:
        ConfigError: On an unknown key or a bad value.
    """

    model: str
    device: str = "cpu"
    dtype: str = "float32"
    max_slots: int = 8
    max_model_len: int | None = None
    block_size: int = 16
    kv_pool_tokens: int | None = None
    max_batch_tokens: int | None = None
    prefix_cache: bool = False
    kernel: str = "auto"

    def __new__(cls, *_args: object, **settings: object) -> Self:
        """Refuse unknown keys before ``__init__`` sees them."""
        if faults := unknown_keys(settings, [field.name for field in fields(cls)]):
            raise ConfigError("; ".join(faults))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        """Check every value, and report all faults at once."""
        faults = []
        if not is_text(self.model):
            faults.append(f"model must be a non-empty string, not {shown(self.model)}")
        if not is_text(self.dtype) or self.dtype not in DTYPES:
            faults.append(f"dtype must be one of {', '.join(DTYPES)}, not {shown(self.dtype)}")
        if self.kernel not in KERNELS:
            faults.append(f"kernel must be one of {', '.join(KERNELS)}, not {shown(self.kernel)}")
        if not _is_device(self.device):
            faults.append(
                f"device must be one of {', '.join(DEVICES)}, perhaps with a number as in cuda:1, "
                f"not {shown(self.device)}"
            )
        if not is_flag(self.prefix_cache):
            faults.append(f"prefix_cache must be True or False, not {shown(self.prefix_cache)}")
        for name in ("max_slots", "block_size"):
            faults += self._at_least(1, name)
        for name, least in (("max_batch_tokens", 1), ("max_model_len", 2), ("kv_pool_tokens", 1)):
            if getattr(self, name) is not None:
                faults += self._at_least(least, name)
        if faults := faults or self._pool_below_a_block():
            raise ConfigError("; ".join(faults))

    def _at_least(self, least: int, name: str) -> list[str]:
        value = getattr(self, name)
        if is_integer(value) and value >= least:
            return []
        return [f"{name} must be an integer of at least {least}, not {shown(value)}"]

    def _pool_below_a_block(self) -> list[str]:
        if self.kv_pool_tokens is None or self.kv_pool_tokens >= self.block_size:
            return []
        fault = (
            f"kv_pool_tokens ({self.kv_pool_tokens}) must hold at least one block "
            f"of block_size ({self.block_size}) tokens"
        )
        return [fault]

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch names it."""
        return DTYPES[self.dtype]

    @property
    def step_tokens(self) -> int:
        """``max_batch_tokens``, or what takes its place."""
        default = _CPU_TOKENS if torch.device(self.device).type == "cpu" else _DEVICE_TOKENS
        return self.max_batch_tokens or default


def _is_device(name: object) -> bool:
    """Whether it names a device that models run on; torch knows others, which hold no numbers."""
    if not isinstance(name, str):
        return False
    try:
        return torch.device(name).type in DEVICES
    except RuntimeError:
        return False
