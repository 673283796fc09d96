"""What the soak runs: prompts of mixed length, and the ways to serve them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from nanoserve_bench.workload import Prompt, Vocabulary


class Proof(StrEnum):
    """What a case must have done to count: one that did not proves nothing."""

    BATCHED = "rows in company"
    PREEMPTED = "preemptions"
    CHUNKED = "prompts in pieces"
    CACHED = "cached tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One way to serve the prompts.

    Attributes:
        name: Its name in the records.
        slots: The engine's slots.
        kernel: `auto` or `torch`.
        share: Of the prompts, from the first one on, in hundredths.
        block_size: Tokens of a block of the KV pool; small ones run out in the middle of an output.
        tight_pool: Whether the KV pool is the one in which most requests are preempted; otherwise
            every slot has room for the longest one.
        max_batch_tokens: Tokens of a step; None is the engine's own choice.
        prefix_cache: Whether prompts may begin with computed blocks.
        proofs: What it must have done.
    """

    name: str
    slots: int
    kernel: str = "auto"
    share: int = 100
    block_size: int = 16
    tight_pool: bool = False
    max_batch_tokens: int | None = None
    prefix_cache: bool = False
    proofs: tuple[Proof, ...] = ()

    def settings(self, pool_tokens: int | None = None) -> str:
        """The case in words, as the records hold it.

        Args:
            pool_tokens: How large the tight pool is, once that is known.
        """
        slots = "1 slot" if self.slots == 1 else f"{self.slots} slots"
        words = [slots, f"kernel {self.kernel}", f"blocks of {self.block_size}"]
        if self.max_batch_tokens is not None:
            words.append(f"{self.max_batch_tokens} tokens a step")
        if self.tight_pool:
            words.append(f"KV pool of {pool_tokens} tokens" if pool_tokens else "tight KV pool")
        if self.prefix_cache:
            words.append("prefix cache")
        return ", ".join(words)


_ALL = (Proof.BATCHED, Proof.PREEMPTED, Proof.CHUNKED, Proof.CACHED)

CASES: tuple[Case, ...] = (
    Case(name="slots-1", slots=1),
    Case(name="slots-3", slots=3, proofs=(Proof.BATCHED,)),
    Case(name="slots-8", slots=8, proofs=(Proof.BATCHED,)),
    Case(name="slots-32", slots=32, proofs=(Proof.BATCHED,)),
    Case(name="chunked", slots=8, max_batch_tokens=24, proofs=(Proof.BATCHED, Proof.CHUNKED)),
    Case(
        name="tiny-cache",
        slots=8,
        block_size=4,
        tight_pool=True,
        proofs=(Proof.BATCHED, Proof.PREEMPTED),
    ),
    Case(name="prefix-cache", slots=8, prefix_cache=True, proofs=(Proof.BATCHED, Proof.CACHED)),
    Case(
        name="everything",
        slots=8,
        block_size=4,
        tight_pool=True,
        max_batch_tokens=24,
        prefix_cache=True,
        proofs=_ALL,
    ),
    Case(name="torch-slots-1", slots=1, kernel="torch", share=15),
    Case(name="torch-slots-8", slots=8, kernel="torch", share=30, proofs=(Proof.BATCHED,)),
    Case(
        name="torch-everything",
        slots=8,
        kernel="torch",
        block_size=4,
        tight_pool=True,
        max_batch_tokens=24,
        prefix_cache=True,
        proofs=_ALL,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A prompt, and how many tokens are asked for."""

    prompt: Prompt
    max_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """The requests of a soak.

    Attributes:
        requests: How many.
        most_prompt: Longest prompt, tokens. Half of all are shorter than an eighth of it.
        new_tokens: Most output tokens; every request asks for 1 to so many.
        shared: Length of the prefixes that every fourth prompt shares with others.
    """

    requests: int
    most_prompt: int
    new_tokens: int
    shared: int


FULL = Mix(requests=200, most_prompt=400, new_tokens=24, shared=48)
QUICK = Mix(requests=24, most_prompt=120, new_tokens=24, shared=48)
_PREFIXES = 4


def draw(mix: Mix, vocabulary: Vocabulary, seed: int) -> tuple[Request, ...]:
    """The requests of a soak: the same for the same seed, on every machine."""
    # Seeding by a string and `random()` are what Python promises to keep the same for ever.
    source = random.Random(f"{seed}/soak")  # noqa: S311
    ordinary = vocabulary.ordinary()

    def tokens(count: int) -> Prompt:
        return tuple(ordinary[int(source.random() * len(ordinary))] for _ in range(count))

    prefixes = [tokens(mix.shared) for _ in range(_PREFIXES)]
    requests = []
    for index in range(mix.requests):
        # Cubed: many short prompts, a few as long as may be.
        length = 1 + int(source.random() ** 3 * mix.most_prompt)
        prompt = tokens(length)
        if index % 4 == 3:
            own = prompt[: mix.most_prompt - mix.shared]
            prompt = prefixes[int(source.random() * _PREFIXES)] + own
        max_tokens = 1 + int(source.random() * mix.new_tokens)
        requests.append(Request(prompt=prompt[: mix.most_prompt], max_tokens=max_tokens))
    return tuple(requests)
