"""Records of log-probabilities; ``logprobs`` computes them, and says of which distribution."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Logprob:
    """One token and the natural logarithm of its probability."""

    token_id: int
    logprob: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLogprobs:
    """What the model thought at one position.

    Attributes:
        sampled: The token that was generated.
        top: As many of the likeliest tokens as were asked for, the likeliest first, the lowest id
            first in a tie; the generated one is among them if it is that likely.
    """

    sampled: Logprob
    top: tuple[Logprob, ...]
