"""One model on one device: its backend, its KV pool's size, its tokenizer.

This is the only place where the plan of a step meets the device. It finds the checkpoint, chooses
the backend that computes it, streams the weights into it and gives it a KV pool as large as the
settings and the memory at hand allow.
"""

import logging

import torch

from nanoserve.backend import choose_backend
from nanoserve.config import EngineConfig
from nanoserve.errors import ConfigError
from nanoserve.kv_cache import size_pool
from nanoserve.models.weights import load_weights, open_checkpoint
from nanoserve.scheduler import SchedulerOutput
from nanoserve.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


class ModelRunner:
    """The model, its KV pool and its tokenizer.

    Attributes:
        model_config: The model's shape.
        max_model_len: Most tokens of one sequence.
        tokenizer: None if the model has none.
        num_blocks: Blocks in the KV pool.
        kv_pool: Why it has so many, as a line of arithmetic.
        kernel_path: Which kernel multiplies.
        attention_path: How attention runs.
        weights_digest: ``sha256:...`` of the canonical tensors.
        highest: The greedy choice of each row of float32 logits, as ``sampler.highest`` makes it.
    """

    def __init__(self, settings: EngineConfig) -> None:
        device, dtype = _usable(settings.device), settings.torch_dtype
        checkpoint = open_checkpoint(settings.model)
        self.model_config = checkpoint.config
        self.max_model_len = self._choose_max_model_len(settings.max_model_len)
        source = checkpoint.tokenizer_source
        self.tokenizer = Tokenizer(source) if source else None
        self._backend = choose_backend(
            settings, self.model_config, max_positions=self.max_model_len
        )
        self.highest = self._backend.highest
        with torch.inference_mode():
            self.weights_digest = load_weights(
                checkpoint, self._backend.load, device=device, dtype=dtype
            )
            pool = size_pool(
                settings,
                block_bytes=self._backend.block_bytes(settings.block_size),
                max_model_len=self.max_model_len,
                device=device,
            )
            self._backend.reserve(num_blocks=pool.num_blocks, block_size=settings.block_size)
        self.num_blocks = pool.num_blocks
        self.kv_pool = str(pool)
        # Known only now: what cannot be recorded or compiled is run otherwise.
        self.kernel_path = self._backend.kernel_path
        self.attention_path = self._backend.attention_path
        _log.info("linears run by %s, attention by %s", self.kernel_path, self.attention_path)

    def _choose_max_model_len(self, asked: int | None) -> int:
        limit = self.model_config.max_position
        if asked is not None and asked > limit:
            raise ConfigError(
                f"max_model_len={asked} exceeds the {limit} positions that the model was made for"
            )
        return asked or limit

    @torch.inference_mode()
    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        """Compute the rows of a step.

        Returns:
            Logits of the next token of each row that samples, ``[rows, vocab_size]``, in the order
            of the rows; valid until the next step.
        """
        return self._backend.run(plan)


def _usable(name: str) -> torch.device:
    """The device, if this machine and this build of torch have it."""
    device = torch.device(name)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first_line = str(error).partition("\n")[0]
        raise ConfigError(f"device {name!r} cannot be used here: {first_line}") from error
    return device
