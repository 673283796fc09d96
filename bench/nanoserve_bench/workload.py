"""Workloads and their prompts.

Prompts are token ids drawn at random: seeded by the study and the block, distinct, never repeated
in a later block (a prefix cache would answer them), the same for every arm. The same seed gives
the same prompts on every machine and with every library.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import WorkloadPlan

WORKLOADS: Mapping[str, WorkloadPlan] = {
    workload.name: workload
    for workload in (
        WorkloadPlan(name="day44", requests=8, prompt_tokens=6, new_tokens=16, slots=(1, 2, 4, 8)),
        WorkloadPlan(
            name="day44x32",
            requests=32,
            prompt_tokens=6,
            new_tokens=16,
            slots=(1, 2, 4, 8, 16, 32),
        ),
        WorkloadPlan(
            name="day44x64",
            requests=64,
            prompt_tokens=6,
            new_tokens=16,
            slots=(1, 2, 4, 8, 16, 32, 64),
        ),
    )
}
"""The offline workload of the source document, and the same with four and eight times the
requests; the last is for cards, whose doublings go on being worth it for longer."""

FULL = ("day44", "day44x32")
"""The workloads of a full study; the others run where they are chosen."""

WARMUP_TOKENS = 3
"""Tokens of a warm-up request: a prefill, and decode steps of which the second is warm."""

Prompt = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """The token ids of a model: `range(size)`, of which `special` do not stand in a prompt."""

    size: int
    special: frozenset[int]

    def ordinary(self) -> tuple[int, ...]:
        """The ids that a prompt may hold, ascending."""
        return tuple(token for token in range(self.size) if token not in self.special)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockPrompts:
    """The prompts of one workload in one block."""

    measured: tuple[Prompt, ...]
    warmup: tuple[Prompt, ...]


class PromptBook:
    """All prompts of a study, block by block, none of them twice."""

    def __init__(
        self, *, seed: int, workloads: Sequence[WorkloadPlan], vocabulary: Vocabulary
    ) -> None:
        self._seed = seed
        self._workloads = tuple(workloads)
        self._ordinary = vocabulary.ordinary()
        self._seen: set[Prompt] = set()
        self._blocks: list[dict[str, BlockPrompts]] = []
        for workload in workloads:
            # Far more prompts than are ever drawn, or drawing until one is new may not end.
            if len(self._ordinary) ** workload.prompt_tokens < 10**6:
                raise PlanError(
                    f"a vocabulary of {len(self._ordinary)} ordinary tokens has too few prompts of "
                    f"{workload.prompt_tokens} tokens for distinct ones: choose another model"
                )

    def block(self, block: int) -> Mapping[str, BlockPrompts]:
        """The prompts of a block, by workload; the blocks before it are drawn first."""
        while len(self._blocks) <= block:
            number = len(self._blocks)
            self._blocks.append({w.name: self._draw(number, w) for w in self._workloads})
        return self._blocks[block]

    def _draw(self, block: int, workload: WorkloadPlan) -> BlockPrompts:
        # Seeding by a string and `random()` are what Python promises to keep the same for ever.
        source = random.Random(f"{self._seed}/{block}/{workload.name}")  # noqa: S311
        count = len(self._ordinary)
        prompts: list[Prompt] = []
        while len(prompts) < 2 * workload.requests:
            prompt = tuple(
                self._ordinary[int(source.random() * count)] for _ in range(workload.prompt_tokens)
            )
            if prompt not in self._seen:
                self._seen.add(prompt)
                prompts.append(prompt)
        return BlockPrompts(
            measured=tuple(prompts[: workload.requests]), warmup=tuple(prompts[workload.requests :])
        )
