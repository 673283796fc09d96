"""What changes single logits of one request: which tokens it has seen how often, and its bias.

Numbers only; ``logits_processors`` applies them to a batch.
"""

from array import array
from collections.abc import Sequence

from nanoserve.sampling_params import SamplingParams

# Beyond these bounds float32 has no room, and a distribution no longer changes.
SMALL, LARGE = 1e-30, 1e30


class LogitAdjustment:
    """The penalties and the bias of one request.

    Kept as flat arrays that grow by a token at a time, so that a step copies them and counts
    nothing.

    Args:
        params: What was asked for.
        prompt: The prompt's token ids.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int]) -> None:
        self.repetition = min(max(params.repetition_penalty, SMALL), LARGE)
        self.presence = params.presence_penalty
        self.frequency = params.frequency_penalty
        self.seen = array("q")  # distinct ids
        self.counts = array("i")  # how often each stands in the output
        self._places: dict[int, int] = {}
        if self.repetition != 1:  # the only one of the penalties that looks at the prompt
            for token in prompt:
                self._place(token)
        bias = params.logit_bias or {}
        self.biased = array("q", bias)
        self.bias = array("f", [min(max(value, -LARGE), LARGE) for value in bias.values()])

    @property
    def penalises(self) -> bool:
        """Whether there is a penalty."""
        return self.repetition != 1 or self.presence != 0 or self.frequency != 0

    def count(self, token: int) -> None:
        """Take note of a generated token."""
        if self.penalises:
            self.counts[self._place(token)] += 1

    def _place(self, token: int) -> int:
        place = self._places.setdefault(token, len(self.seen))
        if place == len(self.seen):
            self.seen.append(token)
            self.counts.append(0)
        return place
