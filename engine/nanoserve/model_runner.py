"""A scheduler's decision, made into tensors and run through the model.

This is the only place where the plan of a step meets the device: it owns the weights and the KV
pool, flattens the rows of a step into one batch, and returns the logits of each row's successor.
"""

import torch

from nanoserve.attention import ATTENTION_PATH, AttentionPlan
from nanoserve.config import EngineConfig
from nanoserve.errors import ConfigError
from nanoserve.kv_cache import PagedKVCache, size_pool
from nanoserve.linear import choose_kernel
from nanoserve.models.weights import load_model, open_checkpoint
from nanoserve.scheduler import SchedulerOutput
from nanoserve.tokenizer import Tokenizer


class ModelRunner:
    """The model, its KV pool and its tokenizer.

    Attributes:
        model_config: The model's shape.
        max_model_len: Most tokens of one sequence.
        tokenizer: None if the model has none.
        kernel_path: Which kernel multiplies.
        attention_path: How attention runs.
        weights_digest: ``sha256:...`` of the canonical tensors.
    """

    attention_path = ATTENTION_PATH

    def __init__(self, settings: EngineConfig) -> None:
        self._device = torch.device(settings.device)
        checkpoint = open_checkpoint(settings.model)
        self.model_config = checkpoint.config
        self.max_model_len = self._choose_max_model_len(settings.max_model_len)
        source = checkpoint.tokenizer_source
        self.tokenizer = Tokenizer(source) if source else None
        kernel = choose_kernel(self._device, settings.torch_dtype)
        self.kernel_path = kernel.path
        with torch.inference_mode():
            self._model, self.weights_digest = load_model(
                checkpoint,
                kernel=kernel,
                device=self._device,
                dtype=settings.torch_dtype,
                max_positions=self.max_model_len,
            )
            self._cache = PagedKVCache(
                self.model_config,
                num_blocks=size_pool(
                    settings,
                    self.model_config,
                    max_model_len=self.max_model_len,
                    device=self._device,
                ),
                block_size=settings.block_size,
                device=self._device,
                dtype=settings.torch_dtype,
            )

    @property
    def num_blocks(self) -> int:
        """Blocks in the KV pool."""
        return self._cache.num_blocks

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
            Logits of each row's next token, ``[rows, vocab_size]``, in the order of the rows.
        """
        self._cache.clean(plan.new_blocks)
        token_ids: list[int] = []
        positions: list[int] = []
        last: list[int] = []
        for row in plan.rows:
            stop = row.start + row.length
            token_ids += row.request.token_ids[row.start : stop]
            positions += range(row.start, stop)
            last.append(len(token_ids) - 1)
        return self._model.forward(
            torch.tensor(token_ids, device=self._device),
            torch.tensor(positions, device=self._device),
            torch.tensor(last, device=self._device),
            cache=self._cache,
            plan=AttentionPlan.build(
                plan.rows, block_size=self._cache.block_size, device=self._device
            ),
        )
