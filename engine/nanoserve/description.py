"""What an engine says about itself, for the record of a measurement."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineDescription:
    """Everything that decides which numbers an engine computes, and how fast.

    Attributes:
        version: Of nanoserve.
        torch_version: Of torch.
        model: The model's name as it was given.
        weights_digest: ``sha256:...`` of the canonical tensors as loaded.
        device: Where it runs.
        dtype: Of weights, activations and KV cache.
        matmul_precision: torch's setting for float32 products (``highest``: no TF32).
        threads: CPU threads of one operation.
        kernel_path: Which kernel multiplies by weights.
        attention_path: How attention runs.
        prefix_cache: ``on`` or ``off``: whether requests reuse each other's keys and values.
        max_slots: Most requests in the running batch.
        max_batch_tokens: Most tokens of a step.
        max_model_len: Most tokens of a request.
        block_size: Tokens in a block of the KV cache.
        num_blocks: Blocks in the KV pool.
        kv_pool: Why it has so many, as a line of arithmetic.
    """

    version: str
    torch_version: str
    model: str
    weights_digest: str
    device: str
    dtype: str
    matmul_precision: str
    threads: int
    kernel_path: str
    attention_path: str
    prefix_cache: str
    max_slots: int
    max_batch_tokens: int
    max_model_len: int
    block_size: int
    num_blocks: int
    kv_pool: str
