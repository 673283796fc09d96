"""Shapes that cannot be, and windows that hide nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nanoserve.models.synthetic import SYNTHETIC_CONFIGS

TINY = SYNTHETIC_CONFIGS["tiny-llama"]


def test_without_windows_every_layer_sees_everything():
    assert (TINY.window(0), TINY.window(1)) == (None, None)
    assert TINY.hiding_windows(100) == (None, None)


def test_a_window_as_wide_as_the_longest_sequence_hides_nothing():
    config = replace(TINY, windows=(7, None))
    assert (config.window(0), config.window(1)) == (7, None)
    assert config.hiding_windows(8) == (7, None)
    assert config.hiding_windows(7) == (None, None)


def test_there_is_one_window_for_each_layer():
    with pytest.raises(ValueError, match="1 windows for 2 layers"):
        replace(TINY, windows=(7,))
