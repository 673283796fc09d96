"""Found wherever tokens divide them, and nothing is given out that must be taken back."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from nanoserve.stop_strings import StopStrings


def read(pieces: Sequence[str], *stops: str, include: bool = False) -> tuple[list[str], bool]:
    """What comes out for each piece, and at the end."""
    strings = StopStrings(stops, include=include)
    return [*map(strings.feed, pieces), strings.flush()], strings.found


def test_a_stop_string_over_several_pieces_never_comes_out():
    assert read(["x EN", "D o", "f"], "END") == (["x ", "", "", ""], True)
    assert read(["x EN", "D o", "f"], "END", include=True) == (["x ", "END", "", ""], True)


def test_what_only_began_like_a_stop_string_comes_out_after_all():
    assert read(["aE", "N", "x", "E"], "END") == (["a", "", "ENx", "", "E"], False)


def test_a_beginning_inside_a_beginning_is_not_overlooked():
    assert read(["aab", "aac"], "aac") == (["aab", "", ""], True)
    assert read(["aa", "a", "c!"], "aac") == (["", "a", "", ""], True)


def test_at_the_very_start_nothing_is_left():
    assert read(["END"], "END") == (["", ""], True)
    assert read(["END"], "END", include=True) == (["END", ""], True)


def test_the_one_that_is_complete_first_counts_and_then_the_longest():
    assert read(["xabc"], "abc", "ab") == (["x", ""], True)
    assert read(["xabc"], "abc", "ab", include=True) == (["xab", ""], True)
    assert read(["xabc"], "bc", "abc", "c") == (["x", ""], True)
    assert read(["yabxab"], "xab", "b") == (["ya", ""], True)


def test_tentative_text_stops_but_is_not_given_out():
    strings = StopStrings(["END"], include=False)
    assert strings.feed("a", "E") == "a"
    assert strings.feed("b", "EN") == "b"
    assert strings.feed("", "END") == ""
    assert strings.found


def test_after_the_end_nothing_comes_any_more():
    strings = StopStrings(["."], include=True)
    assert (strings.feed("a.b"), strings.feed("c."), strings.flush()) == ("a.", "", "")


@pytest.mark.parametrize("include", [False, True])
def test_it_makes_no_difference_where_the_text_is_divided(include: bool):
    """Against a reading character by character, as the definition has it."""
    rng = random.Random(1)
    found_any = 0
    for _ in range(3000):
        text = "".join(rng.choices("ab", k=rng.randrange(12)))
        stops = ["".join(rng.choices("ab", k=rng.randint(2, 4))) for _ in range(rng.randint(1, 3))]
        wanted = text
        for length in range(len(text) + 1):
            if complete := [stop for stop in stops if text[:length].endswith(stop)]:
                cut = 0 if include else max(map(len, complete))
                wanted = text[: length - cut]
                found_any += 1
                break
        pieces, rest = [], text
        while rest:
            cut = rng.randint(1, 3)
            pieces.append(rest[:cut])
            rest = rest[cut:]
        assert "".join(read(pieces, *stops, include=include)[0]) == wanted, (text, stops)
    assert 500 < found_any < 2900
