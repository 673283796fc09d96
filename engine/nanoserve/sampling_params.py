"""What a request asks of the sampler, and when it wants to stop.

A bad *value* is never raised here: a server receives such values from outside, and one bad request
must not take down the batch. The engine asks for ``problems()`` when the request is added and turns
them into an error on that request alone. An unknown *key* is raised, for whoever wrote it would
otherwise believe in a setting that does nothing.

In what order the settings act on the logits, and why, stands in ``logits_processors``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

from nanoserve._checks import (
    are_integers,
    is_flag,
    is_integer,
    is_number,
    is_text,
    shown,
    unknown_keys,
)
from nanoserve.errors import ConfigError

SEED_LIMIT = 2**64
MOST_LOGPROBS = 20
MOST_STOPS = 64
LONGEST_STOP = 1000  # characters


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """Decoding settings of one request.

    Attributes:
        max_tokens: Most tokens to generate, at least 1. The model's length limit also ends it.
        temperature: 0 is greedy (the highest logit, the lowest id in a tie); otherwise logits are
            divided by it before the softmax.
        top_k: Keep only the k highest logits (ties with the k-th stay); 0 keeps all, and 1 is
            greedy at any temperature.
        top_p: Keep the smallest set of most likely tokens whose probability reaches this; 1 keeps
            all.
        min_p: Keep the tokens that are at least this times as likely as the most likely one; 0
            keeps all.
        repetition_penalty: Logits of tokens that stand in the prompt or the output are divided by
            it where they are positive and multiplied where negative (Keskar et al., "CTRL", 2019,
            as Hugging Face applies it); 1 changes nothing.
        presence_penalty: Taken off the logit of every token that stands in the output, in
            [-2, 2], as OpenAI defines it; 0 changes nothing.
        frequency_penalty: The same, times how often the token stands there.
        logit_bias: Numbers to add to the logits of some token ids. -100 and less in effect bans a
            token.
        logprobs: How many of the most likely tokens to tell at each position with their
            log-probabilities, at most 20. The generated token's own is told in any case, so 0
            tells that alone; None tells nothing. They are those of the model itself: before
            penalties, bias, temperature and cuts.
        seed: Draws depend on (seed, position of the token) alone, whoever else is in the batch.
            None draws a fresh seed.
        ignore_eos: Generate past the model's end-of-sequence tokens.
        stop_token_ids: Further tokens that end the output (they are part of it); ``ignore_eos``
            does not touch these.
        stop: A text, or several, that end the output as soon as it contains one, however tokens
            divide it; of those that are complete at the same character the longest counts. The
            prompt is not searched. The token ids stay whole.
        include_stop_str_in_output: Whether the output's text ends with the stop string, and not
            before it.
        detokenize: Turn tokens into text as they come, so that a step tells what each of them
            added (``TokenOutput.text``). ``stop`` implies it.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    logprobs: int | None = None
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: Sequence[int] = ()
    stop: str | Sequence[str] = ()
    include_stop_str_in_output: bool = False
    detokenize: bool = False

    def __new__(cls, *_args: object, **settings: object) -> Self:
        """Refuse unknown keys before ``__init__`` sees them.

        Raises:
            ConfigError: Naming each of them and the nearest real one.
        """
        if faults := unknown_keys(settings, [field.name for field in fields(cls)]):
            raise ConfigError("; ".join(faults))
        return object.__new__(cls)

    @property
    def greedy(self) -> bool:
        """Whether the highest logit is taken without a draw."""
        return self.temperature == 0 or self.top_k == 1

    @property
    def adjusts(self) -> bool:
        """Whether single logits are changed before one is chosen."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
            or bool(self.logit_bias)
        )

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The texts that end the output."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def needs_text(self) -> bool:
        """Whether the output is turned into text while it grows."""
        return self.detokenize or bool(self.stop_strings)

    def problems(self) -> tuple[str, ...]:
        """Every fault of these settings, as sentences; empty when there is none."""
        found = {
            **self._bad_sizes(),
            **self._bad_numbers(),
            **self._bad_bias(),
            **self._bad_flags(),
            **self._bad_stops(),
        }
        return tuple(
            f"{field.name} must {found[field.name]}, not {shown(getattr(self, field.name))}"
            for field in fields(self)
            if field.name in found
        )

    def _bad_sizes(self) -> dict[str, str]:
        found = {}
        if not is_integer(self.max_tokens) or self.max_tokens < 1:
            found["max_tokens"] = "be an integer of at least 1"
        if not is_integer(self.top_k) or self.top_k < 0:
            found["top_k"] = "be an integer of at least 0 (0 = off)"
        if self.logprobs is not None and not (
            is_integer(self.logprobs) and 0 <= self.logprobs <= MOST_LOGPROBS
        ):
            found["logprobs"] = f"be an integer from 0 to {MOST_LOGPROBS} or None"
        if self.seed is not None and not (is_integer(self.seed) and 0 <= self.seed < SEED_LIMIT):
            found["seed"] = "be an integer in [0, 2**64) or None"
        return found

    def _bad_numbers(self) -> dict[str, str]:
        found = {}
        if not is_number(self.temperature) or self.temperature < 0:
            found["temperature"] = "be a finite number of at least 0"
        if not is_number(self.top_p) or not 0 < self.top_p <= 1:
            found["top_p"] = "be above 0 and at most 1 (1 = off)"
        if not is_number(self.min_p) or not 0 <= self.min_p <= 1:
            found["min_p"] = "be from 0 to 1 (0 = off)"
        if not is_number(self.repetition_penalty) or self.repetition_penalty <= 0:
            found["repetition_penalty"] = "be a finite number above 0 (1 = off)"
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            if not is_number(value) or not -2 <= value <= 2:
                found[name] = "be from -2 to 2 (0 = off)"
        return found

    def _bad_bias(self) -> dict[str, str]:
        bias: object = self.logit_bias
        if bias is None or (
            isinstance(bias, Mapping)
            and all(is_integer(token) and is_number(value) for token, value in bias.items())
        ):
            return {}
        return {"logit_bias": "map token ids, as integers, to finite numbers"}

    def _bad_flags(self) -> dict[str, str]:
        names = ("ignore_eos", "include_stop_str_in_output", "detokenize")
        return {name: "be True or False" for name in names if not is_flag(getattr(self, name))}

    def _bad_stops(self) -> dict[str, str]:
        found = {} if are_integers(self.stop_token_ids) else {"stop_token_ids": "be integers"}
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        if not isinstance(stops, tuple | list) or not all(map(is_text, stops)):
            found["stop"] = "be a non-empty string or a list of them"
        elif len(stops) > MOST_STOPS or any(len(text) > LONGEST_STOP for text in stops):
            found["stop"] = (
                f"be at most {MOST_STOPS} strings of at most {LONGEST_STOP} characters each"
            )
        return found
