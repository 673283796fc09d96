"""Recorded noise played back, block after block, as a new study would meet it.

The trials of an A/A pair are of one and the same system, so which of them is called the candidate
means nothing: a new study draws its own order, as every plan does, and gets whatever the machine
made of the trial in that place. With the order mirrored in every second block the true ratio is
exactly 1 by design, whatever drift, place effect or phase the recording holds, and nothing has to
be subtracted from it.

A recorded block is played whole or not at all. Its two trials follow each other at once and share a
level, which the pause and the new workers before the next block change: trials of two recorded
blocks put into one simulated block would differ by what no real block holds.
"""

from __future__ import annotations

import random

from nanoserve_bench.calibration.noise import Logs, Source


class Tape:
    """A source that is played back from random places, `run_length` blocks in a row.

    At the end of a folder a run goes on at its beginning, so that every block is played as often
    as every other one (the circular block bootstrap). A run of 1 draws every block by itself.
    """

    def __init__(self, source: Source, run_length: int, rng: random.Random) -> None:
        self._stretches = source.stretches
        self._places = [
            (stretch, block)
            for stretch, blocks in enumerate(source.stretches)
            for block in range(len(blocks))
        ]
        self._run_length = run_length
        self._rng = rng
        self._left = 0
        self._stretch = 0
        self._block = 0

    def pair(self) -> tuple[Logs, Logs] | None:
        """The two trials of the next recorded block, in order; None where it was disturbed."""
        if self._left == 0:
            index = int(self._rng.random() * len(self._places))
            self._stretch, self._block = self._places[index]
            self._left = self._run_length
        self._left -= 1
        blocks = self._stretches[self._stretch]
        found = blocks[self._block % len(blocks)].trials
        self._block += 1
        return found

    def undisturbed_pair(self) -> tuple[Logs, Logs]:
        """The next block that nothing disturbed: for the arm that only lends its noise."""
        while True:
            found = self.pair()
            if found is not None:
                return found
