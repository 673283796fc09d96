"""Showing how far a sweep is, without taking part in what it measures.

Nothing is drawn while a trial runs: a progress bar that redraws itself ten times a second is a
neighbour. The bar moves when a trial or a launch has ended.
"""

from __future__ import annotations

import time
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from nanoserve_bench.estimate import WARMUP_S, Costs


class Progress(Protocol):
    """What a sweep reports to."""

    def start(self, what: str) -> None:
        """Something begins."""

    def finish_launch(self) -> None:
        """A worker is up."""

    def finish_trial(self, cell: str, wall_s: float, *, warmup: bool) -> None:
        """A trial has ended."""

    def finish_ceilings(self) -> None:
        """The ceilings of a device and dtype are measured."""

    def start_block(self, ordinal: int, planned: int, *, left: int, again: bool) -> None:
        """A block begins.

        Args:
            ordinal: Its number, counted from 1; a block that is run again keeps its own.
            planned: Blocks of the plan, without those that are run again.
            left: Blocks that are left, this one included.
            again: Whether the block is run again.
        """

    def finish_block(self, ordinal: int, contention: str | None) -> None:
        """A block is in the files."""


_LOG_WIDTH = 120


def make_console() -> Console:
    """A console as wide as the terminal; a log is wide enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=_LOG_WIDTH)


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Clock:
    """Work done and left, in expected seconds, set against the seconds that went by."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self.done_s = 0.0
        self._started = time.monotonic()

    def expect(self, left_s: float) -> None:
        """So much is left: blocks of an earlier start are no part of this one's work."""
        self.total_s = self.done_s + left_s

    def work(self, expected_s: float) -> None:
        """Something that was expected to take so long is done."""
        self.done_s = min(self.total_s, self.done_s + expected_s)

    def left_s(self) -> float:
        """Seconds left, at the pace so far."""
        elapsed = time.monotonic() - self._started
        pace = elapsed / self.done_s if self.done_s > 0 else 1.0
        return (self.total_s - self.done_s) * pace


def _block(ordinal: int, planned: int, *, again: bool) -> str:
    return f"block {ordinal} again" if again else f"block {ordinal} of {planned}"


class PlainProgress:
    """Lines, for a log: one per block."""

    def __init__(self, console: Console, costs: Costs, *, block_s: float) -> None:
        self._console = console
        self._costs = costs
        self._block_s = block_s
        self._clock = Clock()

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave what is shown."""

    def start(self, what: str) -> None:
        """Too much for a log."""

    def finish_launch(self) -> None:
        """Count it."""
        self._clock.work(self._costs.launch_s)

    def finish_trial(self, cell: str, wall_s: float, *, warmup: bool) -> None:  # noqa: ARG002
        """Count it."""
        self._clock.work(WARMUP_S if warmup else self._costs.cells_s[cell])

    def finish_ceilings(self) -> None:
        """Count it."""
        self._clock.work(self._costs.ceilings_s)

    def start_block(self, ordinal: int, planned: int, *, left: int, again: bool) -> None:
        """Say which."""
        self._clock.expect(left * self._block_s)
        left_s = duration(self._clock.left_s())
        self._console.print(f"{_block(ordinal, planned, again=again)}; about {left_s} left")

    def finish_block(self, ordinal: int, contention: str | None) -> None:
        """Say what disturbed it."""
        if contention is not None:
            self._console.print(f"block {ordinal} was disturbed: {contention}")


class BarProgress(PlainProgress):
    """A bar, for a terminal."""

    def __init__(self, console: Console, costs: Costs, *, block_s: float) -> None:
        super().__init__(console, costs, block_s=block_s)
        self._bar = RichProgress(
            TextColumn("{task.fields[block]}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[left]} left  {task.description}"),
            console=console,
            auto_refresh=False,
        )
        self._task = self._bar.add_task("", total=None, block="", left="")

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave the bar as it is."""
        self._bar.stop()

    def start(self, what: str) -> None:
        """Show what runs now; nothing moves until it has ended."""
        self._draw(description=what)

    def finish_launch(self) -> None:
        """Move on."""
        super().finish_launch()
        self._draw()

    def finish_trial(self, cell: str, wall_s: float, *, warmup: bool) -> None:
        """Move on."""
        super().finish_trial(cell, wall_s, warmup=warmup)
        self._draw()

    def finish_ceilings(self) -> None:
        """Move on."""
        super().finish_ceilings()
        self._draw()

    def start_block(self, ordinal: int, planned: int, *, left: int, again: bool) -> None:
        """Show which."""
        self._clock.expect(left * self._block_s)
        self._draw(block=_block(ordinal, planned, again=again))

    def _draw(self, **fields: str) -> None:
        self._bar.update(
            self._task,
            total=self._clock.total_s,
            completed=self._clock.done_s,
            left=duration(self._clock.left_s()),
            **fields,  # type: ignore[arg-type]
        )
        self._bar.refresh()
