"""Workloads and their prompts.

Prompts are token ids drawn at random: seeded by the study and the block, distinct, never repeated
in a later block (a prefix cache would answer them), the same for every arm. The same seed gives
the same prompts on every machine and with every library.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nanoserve_bench.errors import PlanError
from nanoserve_bench.lengths import LogNormal, Ragged
from nanoserve_bench.plan import RequestLengths, WorkloadPlan

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
        WorkloadPlan(
            name="ragged", requests=24, prompt_tokens=128, new_tokens=64, slots=(1, 2, 4, 8)
        ),
        WorkloadPlan(
            name="long-prompt", requests=8, prompt_tokens=512, new_tokens=16, slots=(1, 2, 4, 8)
        ),
        WorkloadPlan(
            name="shared-prefix",
            requests=16,
            prompt_tokens=144,
            new_tokens=16,
            slots=(1, 2, 4, 8, 16),
            prefix_tokens=128,
        ),
    )
}
"""The offline workload of the source document, the same with four and eight times the requests
(the last is for cards, whose doublings go on being worth it for longer), and three of other
shapes: requests of unequal lengths, long prompts, prompts that begin alike."""

RAGGED: Mapping[str, Ragged] = {
    "ragged": Ragged(
        prompt=LogNormal(median=24, sigma=0.8, least=4, most=128),
        new=LogNormal(median=16, sigma=0.7, least=4, most=64),
    )
}
"""The distributions of the workloads whose requests differ."""

FULL = ("day44", "day44x32")
"""The workloads of a full study; the others run where they are chosen."""

SUFFIX = ".jsonl"
"""Of a file of requests, which is a workload of one's own."""

WARMUP_TOKENS = 3
"""Most tokens of a warm-up request: a prefill, and decode steps of which the second is warm."""

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
    """The prompts of one workload in one block; `wanted` is what each measured one asks for."""

    measured: tuple[Prompt, ...]
    wanted: tuple[int, ...]
    warmup: tuple[Prompt, ...]


def planned(name: str, seed: int) -> WorkloadPlan:
    """A workload of this module, with its lengths drawn where they differ.

    Raises:
        PlanError: There is none of this name.
    """
    if name not in WORKLOADS:
        raise PlanError(
            f"no workload is called {name!r}; there are: {', '.join(WORKLOADS)}, and files that "
            "end in .jsonl"
        )
    workload = WORKLOADS[name]
    if name not in RAGGED:
        return workload
    lengths = RAGGED[name].draw(workload.requests, f"{seed}/lengths/{name}")
    return dataclasses.replace(
        workload,
        prompt_tokens=max(one.prompt_tokens for one in lengths),
        new_tokens=max(one.new_tokens for one in lengths),
        lengths=lengths,
        source=str(RAGGED[name]),
    )


class PromptBook:
    """All prompts of a study, block by block, none of them twice.

    Args:
        seed: Of the study.
        workloads: Its workloads.
        vocabulary: What prompts are drawn from.
        given: Prompts that are not drawn, by the name of their workload: block after block.
    """

    def __init__(
        self,
        *,
        seed: int,
        workloads: Sequence[WorkloadPlan],
        vocabulary: Vocabulary,
        given: Mapping[str, Sequence[Prompt]] | None = None,
    ) -> None:
        self._seed = seed
        self._workloads = tuple(workloads)
        self._ordinary = vocabulary.ordinary()
        self._given = given or {}
        self._seen: set[Prompt] = {p for prompts in self._given.values() for p in prompts}
        self._blocks: list[dict[str, BlockPrompts]] = []
        for workload in workloads:
            lengths = workload.lengths or workload.of_block(0)
            free = min(one.prompt_tokens for one in lengths) - workload.prefix_tokens
            # Far more prompts than are ever drawn, or drawing until one is new may not end.
            drawn = len(self._given.get(workload.name, ())) or 10**5
            if len(self._ordinary) ** free < 10 * drawn:
                raise PlanError(
                    f"a vocabulary of {len(self._ordinary)} ordinary tokens has too few prompts of "
                    f"{free} tokens for distinct ones: choose another model"
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
        lengths = workload.of_block(block)
        given = self._given.get(workload.name)
        first = block * workload.requests
        measured = (
            self._fresh(workload, lengths, source)
            if given is None
            else tuple(given[first : first + workload.requests])
        )
        return BlockPrompts(
            measured=measured,
            wanted=tuple(one.new_tokens for one in lengths),
            # With a prefix of their own: a warm-up must not fill a cache for what is measured.
            warmup=self._fresh(workload, lengths, source),
        )

    def _fresh(
        self, workload: WorkloadPlan, lengths: Sequence[RequestLengths], source: random.Random
    ) -> tuple[Prompt, ...]:
        prefix = self._tokens(workload.prefix_tokens, source)
        prompts: list[Prompt] = []
        while len(prompts) < len(lengths):
            wanted = lengths[len(prompts)].prompt_tokens - workload.prefix_tokens
            prompt = prefix + self._tokens(wanted, source)
            if prompt not in self._seen:
                self._seen.add(prompt)
                prompts.append(prompt)
        return tuple(prompts)

    def _tokens(self, count: int, source: random.Random) -> Prompt:
        ordinary = self._ordinary
        return tuple(ordinary[int(source.random() * len(ordinary))] for _ in range(count))
