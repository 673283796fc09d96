"""A transformers model on a device: loading it, and timing one `generate` call from inside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessor

from nanoserve_bench.runners import Generate, Generated
from nanoserve_bench.systems.static_batches import GenerateBatch, GeneratedBatch
from nanoserve_bench.systems.torch_facts import synchronise

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


def load_model(folder: str, *, device: str, dtype: str) -> Any:
    """Load a folder's causal language model, ready to generate.

    Its own generation config is put away: whatever it asks for (sampling, penalties, an EOS to
    stop at) would be filled into every call.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=getattr(torch, dtype),
        attn_implementation="sdpa",
        local_files_only=True,
    )
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    return model.eval().to(device)


class _Stamp(LogitsProcessor):
    """Stamps the moment at which each token's distribution exists, and changes nothing.

    `generate` hands it the scores of every step as they are produced: the first call is the end of
    the prompt's forward pass. On a device that runs ahead it waits for the scores to be there.
    """

    def __init__(self, device: str, clock: Callable[[], int]) -> None:
        self.device = device
        self.clock = clock
        self.stamps_ns: list[int] = []

    def __call__(
        self,
        input_ids: torch.LongTensor,  # noqa: ARG002 - the interface's
        scores: torch.Tensor,
    ) -> torch.Tensor:
        """Stamp, and return the scores as they came."""
        synchronise(self.device)
        self.stamps_ns.append(self.clock())
        return scores


def hf_generate_one(
    model: Any, *, timed: bool = True, clock: Callable[[], int] = time.monotonic_ns
) -> Generate:
    """A generator for `run_serial`: one greedy `model.generate` call for one prompt.

    End-of-sequence tokens do not end the output. That takes the keyword of the call; a generation
    config without an EOS is filled up from the model's own, and a minimum of new tokens masks the
    EOS, which can change the tokens.

    Args:
        model: A transformers model that can generate.
        timed: Whether a logits processor stamps each token; without it the call runs untouched,
            and tells no first token.
        clock: Monotonic time, ns.
    """
    device = str(model.device)

    def generate(prompt: Sequence[int], max_tokens: int) -> Generated:
        stamp = _Stamp(device, clock)
        input_ids = torch.tensor([list(prompt)], device=device)
        output = model.generate(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=None,
            logits_processor=[stamp] if timed else None,
        )
        token_ids = tuple(output[0, len(prompt) :].tolist())
        return Generated(token_ids, tuple(stamp.stamps_ns) if timed else None)

    return generate


def hf_generate_batch(model: Any, *, clock: Callable[[], int] = time.monotonic_ns) -> GenerateBatch:
    """A generator for `run_static`: one greedy `model.generate` call for a left-padded batch.

    Padding is masked, so that which id it has does not matter; it is never part of a row's output.
    End-of-sequence tokens do not end a row, as in `hf_generate_one`.

    Args:
        model: A transformers model that can generate.
        clock: Monotonic time, ns.
    """
    device = str(model.device)

    def generate(prompts: Sequence[Sequence[int]], max_tokens: int) -> GeneratedBatch:
        stamp = _Stamp(device, clock)
        longest = max(map(len, prompts))
        paddings = [longest - len(prompt) for prompt in prompts]
        output = model.generate(
            input_ids=torch.tensor(
                [[0] * n + list(prompt) for n, prompt in zip(paddings, prompts, strict=True)],
                device=device,
            ),
            attention_mask=torch.tensor(
                [[0] * n + [1] * (longest - n) for n in paddings], device=device
            ),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=None,
            logits_processor=[stamp],
        )
        rows = tuple(tuple(row) for row in output[:, longest:].tolist())
        return GeneratedBatch(rows, tuple(stamp.stamps_ns))

    return generate


def weight_bytes_per_step(model: torch.nn.Module) -> int:
    """Bytes of weights that a decode step reads.

    All of them once, but for an embedding table that the head does not share: of that only the
    rows of the step's tokens are read.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    unique = {parameter.data_ptr(): parameter for parameter in named.values()}
    head, table = named.get(HEAD), named.get(TABLE)
    if head is not None and table is not None and head.data_ptr() != table.data_ptr():
        del unique[table.data_ptr()]
    return sum(parameter.numel() * parameter.element_size() for parameter in unique.values())
