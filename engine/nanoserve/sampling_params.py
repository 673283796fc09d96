"""What a request asks of the sampler, and when it wants to stop.

Building ``SamplingParams`` never raises on a bad value: a server receives such values from
outside, and one bad request must not take down the batch. The engine asks for ``problems()`` when
the request is added and turns them into an error on that request alone.
"""

from dataclasses import dataclass

from nanoserve._checks import are_integers, is_flag, is_integer, is_number, shown

SEED_LIMIT = 2**64


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """Decoding settings of one request.

    Attributes:
        max_tokens: Most tokens to generate, at least 1. The model's length limit also ends it.
        temperature: 0 is greedy (the highest logit, the lowest id in a tie); otherwise logits are
            divided by it before the softmax.
        top_k: Keep only the k highest logits (ties with the k-th stay); 0 keeps all.
        top_p: Keep the smallest set of most likely tokens whose probability reaches this; 1 keeps
            all. Applied after temperature and ``top_k``.
        seed: Draws depend on (seed, position of the token) alone, whoever else is in the batch.
            None draws a fresh seed.
        ignore_eos: Generate past the model's end-of-sequence tokens.
        stop_token_ids: Further tokens that end the output (they are part of it); ``ignore_eos``
            does not touch these.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether the highest logit is taken without a draw."""
        return self.temperature == 0

    def problems(self) -> tuple[str, ...]:
        """Every fault of these settings, as sentences; empty when there is none."""
        found: list[str] = []
        if not is_integer(self.max_tokens) or self.max_tokens < 1:
            found.append(
                f"max_tokens must be an integer of at least 1, not {shown(self.max_tokens)}"
            )
        if not is_number(self.temperature) or self.temperature < 0:
            given = shown(self.temperature)
            found.append(f"temperature must be a finite number of at least 0, not {given}")
        if not is_integer(self.top_k) or self.top_k < 0:
            given = shown(self.top_k)
            found.append(f"top_k must be an integer of at least 0 (0 = off), not {given}")
        if not is_number(self.top_p) or not 0 < self.top_p <= 1:
            found.append(f"top_p must be above 0 and at most 1 (1 = off), not {shown(self.top_p)}")
        if self.seed is not None and not (is_integer(self.seed) and 0 <= self.seed < SEED_LIMIT):
            found.append(f"seed must be an integer in [0, 2**64) or None, not {shown(self.seed)}")
        if not is_flag(self.ignore_eos):
            found.append(f"ignore_eos must be True or False, not {shown(self.ignore_eos)}")
        if not are_integers(self.stop_token_ids):
            found.append(f"stop_token_ids must be integers, not {shown(self.stop_token_ids)}")
        return tuple(found)
