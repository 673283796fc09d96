"""The engine's settings: one frozen record, and no setting that is silently ignored.

A misspelt key is an error that names the nearest real one, and a bad value is an error that says
what would be good. Sizes that depend on the model or on the machine stay ``None`` here and are
resolved, with their arithmetic in the log, when the engine is built.
"""

import difflib
from dataclasses import dataclass, fields
from typing import Self

import torch

from nanoserve._checks import is_integer, is_text, shown
from nanoserve.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICES = ("cpu", "cuda", "mps", "xpu")
KERNELS = ("auto", "torch")


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
        max_batch_tokens: Tokens one step computes before it stops admitting further prompts. A
            prompt is prefilled whole, so a longer one is the only prompt of its step.
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
    max_batch_tokens: int = 2048
    kernel: str = "auto"

    def __new__(cls, *_args: object, **settings: object) -> Self:
        """Refuse unknown keys before ``__init__`` sees them."""
        known = [field.name for field in fields(cls)]
        faults = []
        for key in settings.keys() - set(known):
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            faults.append(f"unknown setting {key!r}; {hint}")
        if faults:
            raise ConfigError("; ".join(sorted(faults)))
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
        for name in ("max_slots", "block_size", "max_batch_tokens"):
            faults += self._at_least(1, name)
        if self.max_model_len is not None:
            faults += self._at_least(2, "max_model_len")
        if self.kv_pool_tokens is not None:
            faults += self._at_least(1, "kv_pool_tokens")
        if not faults and self.kv_pool_tokens is not None and self.kv_pool_tokens < self.block_size:
            faults.append(
                f"kv_pool_tokens ({self.kv_pool_tokens}) must hold at least one block "
                f"of block_size ({self.block_size}) tokens"
            )
        if faults:
            raise ConfigError("; ".join(faults))

    def _at_least(self, least: int, name: str) -> list[str]:
        value = getattr(self, name)
        if is_integer(value) and value >= least:
            return []
        return [f"{name} must be an integer of at least {least}, not {shown(value)}"]

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch names it."""
        return DTYPES[self.dtype]


def _is_device(name: object) -> bool:
    """Whether it names a device that models run on; torch knows others, which hold no numbers."""
    if not isinstance(name, str):
        return False
    try:
        return torch.device(name).type in DEVICES
    except RuntimeError:
        return False
