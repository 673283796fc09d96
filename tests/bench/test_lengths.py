"""Drawn lengths: the distribution that the plan names."""

from __future__ import annotations

import random
import statistics
from typing import Any

from nanoserve_bench.lengths import LogNormal, Ragged


class Fixed(random.Random):
    """A source that returns one number."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self, *_: Any) -> float:
        return self.value


def test_half_of_the_lengths_are_below_the_median() -> None:
    law = LogNormal(median=40, sigma=0.5, least=1, most=10_000)
    source = random.Random(1)
    drawn = [law.draw(source) for _ in range(4001)]
    assert 38 <= statistics.median(drawn) <= 42
    logs = statistics.quantiles(drawn, n=100)
    # One standard deviation up and down: the quantiles 0.16 and 0.84, e^0.5 apart from the median.
    assert 1.55 < logs[83] / statistics.median(drawn) < 1.75
    assert 1.55 < statistics.median(drawn) / logs[15] < 1.75


def test_what_is_too_long_or_too_short_is_clipped() -> None:
    law = LogNormal(median=10, sigma=2.0, least=4, most=30)
    assert law.draw(Fixed(0.0)) == 4
    assert law.draw(Fixed(1 - 2**-53)) == 30
    assert law.draw(Fixed(0.5)) == 10


def test_prompts_and_outputs_are_drawn_in_turn_and_written_down() -> None:
    ragged = Ragged(
        prompt=LogNormal(median=9, sigma=1, least=2, most=50),
        new=LogNormal(median=9, sigma=1, least=2, most=50),
    )
    one, other = ragged.draw(200, "a"), ragged.draw(200, "b")
    assert one == ragged.draw(200, "a")
    assert one[:50] == ragged.draw(50, "a")
    assert one != other
    assert any(x.prompt_tokens != x.new_tokens for x in one)
    assert str(ragged) == (
        "prompts log-normal, median 9, sigma 1, clipped to 2-50; "
        "outputs log-normal, median 9, sigma 1, clipped to 2-50"
    )
